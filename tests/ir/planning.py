"""Run the pipeline on small graphs up to a stage, as the product does."""

import tempfile
from dataclasses import replace
from pathlib import Path

import onnx

from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import Target, load_target


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


def plan_as_user(path: Path) -> State:
    """Import and plan a file for a phone; what would follow are kernels."""
    return run_until("plan_memory", path, "adreno:730")
