"""Without inputs given, each gate sees a bundle that is wrong, and is quiet about the right one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from adrenoc.base.errors import AccuracyError, CheckFailedError
from adrenoc.base.reporter import SilentReporter
from adrenoc.check.accuracy.accuracy_plans import Wanted
from adrenoc.check.accuracy.examine import check_accuracy
from adrenoc.check.accuracy.meet import meet_accuracy
from adrenoc.cli.main import cli
from adrenoc.compile.make import make_bundle
from adrenoc.ir.options import CompileOptions, resolve_options
from adrenoc.target.target import load_target
from tests.models import graph, write

TOLERANCE = 1e-2


def _angles() -> onnx.ModelProto:
    """Of positions, as in embeddings of a diffusion's timestep."""
    nodes = [
        helper.make_node("Cast", ["timestep"], ["t"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["t", "rates"], ["angles"]),
        helper.make_node("Sin", ["angles"], ["y"]),
    ]
    rates = np.exp(-np.arange(16) / 4).astype(np.float32)
    return graph(nodes, {"timestep": [8, 1]}, ["y"], {"rates": rates}, dtype=TensorProto.INT64)


def _mask() -> onnx.ModelProto:
    """Scores that the lowest float masks: nothing is left of rows before a padded batch's first."""
    nodes = [
        helper.make_node("Cast", ["attention_mask"], ["there"], to=TensorProto.BOOL),
        helper.make_node("And", ["there", "causal"], ["seen"]),
        helper.make_node("Where", ["seen", "scores", "lowest"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["odds"], axis=-1),
        helper.make_node("MatMul", ["odds", "values"], ["y"]),
    ]
    random = np.random.default_rng(0)
    constants = {
        "scores": random.standard_normal((8, 8), np.float32),
        "causal": np.tri(8, dtype=bool),
        "lowest": np.float32(np.finfo(np.float32).min),
        "values": random.standard_normal((8, 16), np.float32),
    }
    shapes = {"attention_mask": [1, 8]}
    return graph(nodes, shapes, ["y"], constants, dtype=TensorProto.INT64)


def _spectrum() -> onnx.ModelProto:
    """Bands of the powers of a sound, by products with sines and cosines."""
    places = np.outer(np.arange(32), np.arange(64)) * np.pi / 32
    bases = np.concatenate([np.cos(places), np.sin(places)]).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["audio"], ["samples"], to=TensorProto.FLOAT),
        helper.make_node("Conv", ["samples", "bases"], ["parts"], strides=[32]),
        helper.make_node("Mul", ["parts", "parts"], ["powers"]),
        helper.make_node("MatMul", ["bands", "powers"], ["y"]),
    ]
    bands = np.random.default_rng(0).random((8, 64), np.float32)
    constants = {"bases": bases[:, None], "bands": bands}
    shapes = {"audio": [1, 1, 2048]}
    return graph(nodes, shapes, ["y"], constants, dtype=TensorProto.INT16)


def _norm() -> onnx.ModelProto:
    """A norm of numbers whose mean is far from zero."""
    nodes = [
        helper.make_node("Add", ["x", "mean"], ["far"]),
        helper.make_node("InstanceNormalization", ["far", "one", "zero"], ["y"]),
    ]
    constants = {
        "mean": np.float32(3000),
        "one": np.ones(4, np.float32),
        "zero": np.zeros(4, np.float32),
    }
    return graph(nodes, {"x": [1, 4, 8, 8]}, ["y"], constants)


def _sees_run(model: Path, options: CompileOptions, folder: Path) -> bool:
    bundle = folder / "made.adrenoc"
    target, reporter = load_target("host"), SilentReporter()
    make_bundle(model, target=target, options=options, output=bundle, reporter=reporter)
    words = ("run", str(bundle), "--check", str(model), "--repeat", "1")
    try:
        done = CliRunner().invoke(cli, words, catch_exceptions=False)
    except CheckFailedError as error:
        assert ", on " in error.message
        return True
    assert "four sets of random numbers" in done.output
    return False


def _sees_examination(model: Path, options: CompileOptions, folder: Path) -> bool:
    report = check_accuracy(
        model,
        target=load_target("host"),
        presets=("mixed",),
        reporter=SilentReporter(),
        tolerance=TOLERANCE,
        effort=0.0,
        keep_float32=options.keep_float32,
    )
    assert report.samples == 4 and "four sets" in report.inputs
    return not report.presets[0].passed


def _sees_plan(model: Path, options: CompileOptions, folder: Path) -> bool:
    wanted = Wanted(tolerance=TOLERANCE, files=(), seed=0, effort=0.0)
    more: dict[str, Any] = {"target": load_target("host"), "reporter": SilentReporter()}
    try:
        plan = meet_accuracy(model, options=options, wanted=wanted, **more)
    except AccuracyError:
        return True
    error = plan.before.device_error
    return bool(plan.float32_tensors) or error is None or error > TOLERANCE


GATES = {"run": _sees_run, "check-accuracy": _sees_examination, "--accuracy": _sees_plan}


@pytest.mark.parametrize("keep", [False, True], ids=["bad", "right"])
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
@pytest.mark.parametrize("make", [_angles, _mask, _spectrum, _norm])
def test_each_gate_sees_what_halves_would_not_do_for(
    device: Any,
    tmp_path: Path,
    make: Callable[[], onnx.ModelProto],
    gate: Callable[[Path, CompileOptions, Path], bool],
    keep: bool,
) -> None:
    options = resolve_options(load_target("host"), preset="mixed").options
    model = write(make(), tmp_path)
    assert gate(model, replace(options, keep_float32=keep), tmp_path) is not keep
