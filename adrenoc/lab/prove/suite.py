"""A suite: cases as one bundle, with inputs, and what a right device gives for them.

Bundles come from the compile cache, and references lie beside it: both are made once.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from adrenoc.base.files.outputs import cache_errors, write_atomically
from adrenoc.base.files.read import cache_folder
from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.check.reference import run_reference
from adrenoc.compile.make import make_bundle
from adrenoc.ir.options import CompileOptions, resolve_options
from adrenoc.lab.prove.case import Case, add_to
from adrenoc.lab.prove.net import Net
from adrenoc.target.avoid import HALF_DENORMALS
from adrenoc.target.target import Target

PRECISIONS = ("mixed", "fp32", "fp16")
"""Presets, the usual one first."""
MEMORIES = ("textures", "buffers")
TOLERANCES = {"fp32": 2e-5, "mixed": 3e-3, "fp16": 8e-3}
"""The largest error of each precision, over the range of an output."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Cases in one precision and memory."""

    precision: str
    memory: str
    cases: tuple[Case, ...]

    @property
    def name(self) -> str:
        """ "mixed, textures"."""
        return f"{self.precision}, {self.memory}"


@dataclass(frozen=True, kw_only=True)
class BuiltSuite:
    """A suite as a bundle; `of_case` has the case of each output, by its title."""

    suite: Suite
    options: CompileOptions
    bundle: Bundle
    inputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    of_case: dict[str, str]

    def kernels(self) -> int:
        """Return the number of different kernels in the bundle."""
        return len(self.bundle.manifest.kernels)


def all_suites(cases: Sequence[Case], *, half_type: bool) -> tuple[Suite, ...]:
    """Each precision that the device has, in each memory: buffers of halves need the half type."""
    return tuple(
        Suite(precision=precision, memory=memory, cases=tuple(cases))
        for precision in PRECISIONS
        for memory in MEMORIES
        if half_type or precision == "fp32" or (precision == "mixed" and memory == "textures")
    )


def make_suite(suite: Suite, target: Target, folder: Path, *, winograd: bool = True) -> BuiltSuite:
    """Compile a suite and compute its references; files lie in `folder`.

    Raises:
        AdrenocError: it cannot be compiled, or the reference is not installed.
    """
    net = Net()
    for case in suite.cases:
        add_to(net, case)
    text = net.model()
    digest = hashlib.sha256(text).hexdigest()[:24]
    model = folder / f"suite_{digest}.onnx"
    if not model.exists():
        model.write_bytes(text)
    options = resolve_options(
        target,
        preset=suite.precision,
        command_line={
            "textures": suite.memory == "textures",
            "winograd": winograd,
            "int8_prompts": True,
            # Each form of a kernel is to run in halves too, as between layers of a network.
            "keep_float32": HALF_DENORMALS in target.avoided,
        },
    ).options
    output = folder / f"{digest}_{target.digest()[:12]}_{options.digest()[:12]}.adrenoc"
    if not output.exists():
        make_bundle(model, target=target, options=options, output=output, reporter=SilentReporter())
    return BuiltSuite(
        suite=suite,
        options=options,
        bundle=open_bundle(output),
        inputs=net.inputs,
        expected=_references(suite, net, model, digest),
        of_case=net.of_case,
    )


def _references(suite: Suite, net: Net, model: Path, digest: str) -> dict[str, np.ndarray]:
    """Return what onnxruntime gives, kept by the digest of the model, whose data are seeded."""
    rounds = suite.precision != "fp32"
    kept = cache_folder() / "suites" / f"{digest}{'_half' if rounds else ''}.npz"
    if kept.exists():
        try:
            with np.load(kept, allow_pickle=False) as held:
                found = {name: held[name] for name in held.files}
            if set(found) == set(net.outputs):
                return found
        except (OSError, ValueError, EOFError):
            pass  # what is damaged is made again
    inputs = net.inputs
    if rounds:
        inputs = {k: v.astype(np.float16).astype(np.float32) for k, v in inputs.items()}
    made = run_reference(model, inputs, threads=1)
    stream = io.BytesIO()
    np.savez(stream, **made)  # type: ignore[arg-type]
    with cache_errors(kept.parent):
        kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, stream.getvalue())
    return made


def part_of(suite: Suite, titles: set[str]) -> Suite:
    """Return the suite of some of its cases."""
    return replace(suite, cases=tuple(case for case in suite.cases if case.title in titles))
