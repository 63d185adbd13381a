"""Without inputs given, each gate sees a bundle that is wrong, and is quiet about the right one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from adrenoc.base.errors import AccuracyError, CheckFailedError
from adrenoc.base.reporter import SilentReporter
from adrenoc.check.accuracy.examine import check_accuracy
from adrenoc.check.accuracy.judge_preset import Wanted, meet_accuracy
from adrenoc.check.accuracy.result import AccuracyReport
from adrenoc.compile.make import make_bundle
from adrenoc.ir.options import CompileOptions, resolve_options
from adrenoc.kernels.families.shared.context import RuleContext
from adrenoc.target.target import load_target
from tests.commands import check_run, invoke
from tests.models import graph, parse_nodes, write

TOLERANCE = 1e-2


def _angles() -> onnx.ModelProto:
    """Of positions, as in embeddings of a diffusion's timestep."""
    nodes = "t = Cast <to = 1>(timestep) angles = Mul(t, rates) y = Sin(angles)"
    rates = np.exp(-np.arange(16) / 4).astype(np.float32)
    return graph(nodes, {"timestep": [8, 1]}, ["y"], {"rates": rates}, dtype=TensorProto.INT64)


def _mask() -> onnx.ModelProto:
    """Scores that the lowest float masks: nothing is left of rows before a padded batch's first."""
    nodes = (
        "there = Cast <to = 9>(attention_mask) seen = And(there, causal) "
        "masked = Where(seen, scores, lowest) odds = Softmax <axis = -1>(masked) "
        "y = MatMul(odds, values)"
    )
    random = np.random.default_rng(0)
    constants = {
        "scores": random.standard_normal((8, 8), np.float32),
        "causal": np.tri(8, dtype=bool),
        "lowest": np.float32(np.finfo(np.float32).min),
        "values": random.standard_normal((8, 16), np.float32),
    }
    shapes = {"attention_mask": [1, 8]}
    return graph(nodes, shapes, ["y"], constants, dtype=TensorProto.INT64)


def _pixels() -> onnx.ModelProto:
    """Raw ones of a sensor, of 16 bits."""
    nodes = "light = Cast <to = 1>(raw) y = Conv(light, w)"
    weights = np.random.default_rng(0).random((4, 1, 3, 3), np.float32)
    return graph(nodes, {"raw": [1, 1, 16, 16]}, ["y"], {"w": weights}, dtype=TensorProto.UINT16)


def _spectrum() -> onnx.ModelProto:
    """Bands of the powers of a sound in float, by products with sines and cosines."""
    places = np.outer(np.arange(32), np.arange(64)) * np.pi / 32
    bases = np.concatenate([np.cos(places), np.sin(places)]).astype(np.float32)
    nodes = (
        "parts = Conv <strides = [32]>(samples, bases) powers = Mul(parts, parts) "
        "y = MatMul(bands, powers)"
    )
    bands = np.random.default_rng(0).random((8, 64), np.float32)
    constants = {"bases": bases[:, None], "bands": bands}
    return graph(nodes, {"samples": [1, 1, 2048]}, ["y"], constants)


def _roots() -> onnx.ModelProto:
    """Of powers of a learned product, before their logarithm: small ones count most."""
    nodes = (
        "parts = Conv(x, w) powers = Mul(parts, parts) sizes = Sqrt(powers) "
        "scaled = Mul(sizes, small) y = Log(scaled)"
    )
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3), np.float32)
    constants = {"w": weights, "small": np.float32(1e-5)}
    return graph(nodes, {"x": [1, 3, 24, 24]}, ["y"], constants)


def _states() -> onnx.ModelProto:
    """Of recurrent layers that have learned to remember what a product makes of levels."""
    random = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)

    constants = {"conv": weights(64, 512, 1) + np.float32(1)}
    nodes = parse_nodes("made = Conv(x, conv) steps = Transpose <perm = [2, 0, 1]>(made)")
    before = "steps"
    for layer, width in (("first", 64), ("y", 8)):
        constants |= {f"{layer}w": weights(1, 24, width) / 64, f"{layer}r": weights(1, 24, 8)}
        bias = np.zeros((1, 48), np.float32)
        bias[0, :8] = 3.0  # the gate that keeps
        constants[f"{layer}b"] = bias
        operands = [before, f"{layer}w", f"{layer}r", f"{layer}b"]
        node = helper.make_node("GRU", operands, [f"{layer}_all"], hidden_size=8)
        before = layer
        nodes += [node, helper.make_node("Squeeze", [f"{layer}_all", "axis"], [layer])]
    constants["axis"] = np.array([1])
    return graph(nodes, {"x": [1, 512, 256]}, ["y"], constants)


def _norm() -> onnx.ModelProto:
    """A norm of numbers whose mean is far from zero."""
    nodes = "far = Add(x, mean) y = InstanceNormalization(far, one, zero)"
    constants = {
        "mean": np.float32(3000),
        "one": np.ones(4, np.float32),
        "zero": np.zeros(4, np.float32),
    }
    return graph(nodes, {"x": [1, 4, 8, 8]}, ["y"], constants)


def _sees_run(model: Path, options: CompileOptions, folder: Path) -> bool:
    bundle = _made(model, options, folder / "made.adrenoc")
    try:
        done = invoke("run", bundle, "--check", model, "--repeat", "1")
    except CheckFailedError as error:
        assert ", on " in error.message
        return True
    assert "four sets of random numbers" in done.output
    return False


def _examined(model: Path, **more: Any) -> AccuracyReport:
    return check_accuracy(
        model,
        target=load_target("host"),
        presets=("mixed",),
        reporter=SilentReporter(),
        tolerance=TOLERANCE,
        effort=0.0,
        **more,
    )


def _made(model: Path, options: CompileOptions, bundle: Path) -> Path:
    target, reporter = load_target("host"), SilentReporter()
    make_bundle(model, target=target, options=options, output=bundle, reporter=reporter)
    return bundle


def _sees_examination(model: Path, options: CompileOptions, folder: Path) -> bool:
    report = _examined(model, keep_float32=options.keep_float32)
    assert report.samples == 4 and "four sets" in report.inputs
    return not report.presets[0].passed


def _sees_plan(model: Path, options: CompileOptions, folder: Path) -> bool:
    wanted = Wanted(tolerance=TOLERANCE, files=(), seed=0, effort=0.0)
    more: dict[str, Any] = {"target": load_target("host"), "reporter": SilentReporter()}
    try:
        plan = meet_accuracy(model, options=options, wanted=wanted, **more)
    except AccuracyError:
        return True
    (found,) = plan.presets
    return not found.passed


GATES = {"run": _sees_run, "check-accuracy": _sees_examination, "--accuracy": _sees_plan}


MODELS = (_angles, _mask, _pixels, _spectrum, _roots, _states, _norm)


@pytest.mark.parametrize("keep", [False, True], ids=["bad", "right"])
@pytest.mark.parametrize(
    ("gate", "make"),
    [
        # All draw the same inputs and compare alike: one has every model.
        pytest.param(
            GATES[name],
            make,
            id=f"{name}{make.__name__}",
            marks=[pytest.mark.nightly] * (name != "run" and make is not _angles),
        )
        for name in GATES
        for make in MODELS
    ],
)
def test_each_gate_sees_what_halves_would_not_do_for(
    device, tmp_path, monkeypatch, make, gate, keep
):
    if make is _states and not keep:
        # Gates by the device's own functions, as they were where states' readers lie in half.
        exact = RuleContext.kernel

        def forget(*args, carries: bool = False, **options):
            return exact(*args, **options)

        monkeypatch.setattr(RuleContext, "kernel", forget)
    options = resolve_options(load_target("host"), preset="mixed").options
    model = write(make(), tmp_path)
    assert gate(model, replace(options, keep_float32=keep), tmp_path) is not keep


@pytest.mark.parametrize(("times", "ends"), [(0.1, False), (8.0, True)])
def test_scales_that_a_bundle_does_not_hold_are_told(device, tmp_path, times, ends):
    """They fail no check: nobody says that inputs are so large."""
    nodes = "a = Conv(x, w) b = Relu(a) y = Conv(b, v)"
    weights = np.random.default_rng(0).standard_normal((8, 8, 1, 1), np.float32)
    constants = {"w": np.float32(times) * weights, "v": weights}
    model = write(graph(nodes, {"x": [1, 8, 8, 8]}, ["y"], constants), tmp_path)
    options = resolve_options(load_target("host"), preset="mixed").options
    bundle = _made(model, options, tmp_path / "m.adrenoc")
    said, report = check_run(bundle, model, "--repeat", "1")["check"], _examined(model)
    assert report.passed
    for told in (said["inputs"], report.presets[0].scales):
        assert ("on 10000 times the usual ones `y` is not finite" in told) == ends
        assert ("finite as float32 is on 0.001 to 10000 times" in told) != ends
