"""States of models that are no decoders, through the C API: they go on from run to run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import helper

from adrenoc.android.runtime_build import Runtime
from adrenoc.cli.main import main
from tests.models import graph, write
from tests.runtime.programs import Finished, compile_against

SHAPE = (1, 1, 8)


def test_a_state_goes_on(
    runtime: Runtime, opencl: str, execute: Callable[..., Finished], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Mul", ["h", "half"], ["less"]),
        helper.make_node("Add", ["less", "x"], ["hn"]),
        helper.make_node("Mul", ["hn", "two"], ["y"]),
    ]
    constants = {"half": np.float32(0.5).reshape(1), "two": np.float32(2).reshape(1)}
    model = write(
        graph(nodes, {"x": SHAPE, "h": SHAPE}, ["y", "hn"], constants), tmp_path, "step.onnx"
    )
    bundle = tmp_path / "step.adrenoc"
    command = ["compile", str(model), "--device", "host", "--preset", "fp32"]
    assert main([*command, "--state", "h=hn", "-o", str(bundle)]) == 0
    program = compile_against(runtime, "states_program.cc", tmp_path / "states")
    execute(program, bundle, opencl, tmp_path / "cache")
