"""Run the pipeline on small graphs up to a stage, and models as importers leave them."""

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import tvm

from adrenoc.base.reporter import SilentReporter
from adrenoc.check.check_model import check_model
from adrenoc.check.inputs import make_inputs
from adrenoc.check.reference import run_reference
from adrenoc.check.verdict import Policy, Verdict
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.importers import import_model
from adrenoc.importers.imported import Imported
from adrenoc.importers.relax.values import op_name
from adrenoc.ir.options import resolve_options
from adrenoc.passes.rewrites.simplify import simplify
from adrenoc.target.target import Target, load_target
from tests.stock_tvm import run_on_cpu


def plan(
    model: onnx.ModelProto | Path,
    *,
    until: str,
    device: str = "adreno",
    preset: str = "mixed",
    clml: str = "off",
    keep_float32: bool = False,
    **limits: int,
) -> State:
    """The state after stage `until`; `limits` replace the target's.

    All that may lie in half does, as it does between layers of a network, unless `keep_float32`.
    """
    target = load_target(device)
    options = replace(
        resolve_options(target, preset=preset).options,
        check_ir=True,
        clml=clml,
        keep_float32=keep_float32,
    )
    if limits:
        gpu = replace(target.gpu, limits=replace(target.limits, **limits))
        target = replace(target, gpu=gpu)
    with tempfile.TemporaryDirectory() as folder:
        path = model
        if not isinstance(path, Path):
            path = Path(folder) / "model.onnx"
            onnx.save(model, path)
        start = State(model=path, target=target, options=options)
        return run_stages(start, reporter=SilentReporter(), stop_after=until)[0]


def run_until(
    until: str | None, model: Path, target: Target | str, *, preset: str | None = None, **said
) -> State:
    """The state of a file after a stage, or after all, as the command line's options have it."""
    target = load_target(target) if isinstance(target, str) else target
    options = resolve_options(target, preset=preset, command_line=said).options
    start = State(model=model, target=target, options=options)
    return run_stages(start, reporter=SilentReporter(), stop_after=until)[0]


def judge(
    model: Path, target: Target | str = "adreno:750", policy: Policy | None = None
) -> Verdict:
    """What `check` finds of a file."""
    target = load_target(target) if isinstance(target, str) else target
    options = resolve_options(target).options
    told = {"policy": policy or Policy(), "reporter": SilentReporter()}
    return check_model(model, target=target, options=options, **told)


def plan_as_user(path: Path) -> State:
    """Import and plan a file for a phone; what would follow are kernels."""
    return run_until("plan_memory", path, "adreno:730")


def operators(module: tvm.IRModule) -> Counter[str]:
    """How often `main` calls each operator; it must be one flat block."""
    (block,) = module["main"].body.blocks
    return Counter(op_name(b.value).removeprefix("relax.") for b in block.bindings)


def check(
    path: Path, *, shapes: dict[str, tuple[int, ...]] | None = None, tolerance: float = 1e-5
) -> tuple[Imported, tvm.IRModule]:
    """Assert that the imported model computes what the file says; return both modules."""
    imported = import_model(path, shapes=shapes or {})
    module, _ = simplify(imported.module)
    feeds = make_inputs(imported.inputs)
    expected = run_reference(path, feeds, optimise=False)
    assert [spec.name for spec in imported.outputs] == list(expected)
    for spec, found in zip(imported.outputs, run_on_cpu(module, list(feeds.values())), strict=True):
        wanted = expected[spec.name]
        assert found.shape == wanted.shape == spec.shape
        assert str(found.dtype) == str(wanted.dtype) == spec.dtype
        extent = max(float(np.ptp(wanted.astype(np.float64))), 1e-3)
        error = np.abs(found.astype(np.float64) - wanted).max() / extent
        assert error < tolerance, f"{spec.name}: {error:.2e} of the range"
    return imported, module
