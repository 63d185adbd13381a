"""`compile --accuracy`, what pins do, and the floor that rounding alone costs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import planted
import pytest

from adrenoc.base.errors import (
    AccuracyError,
    CheckFailedError,
    DependencyError,
    PrecisionPolicyError,
)
from adrenoc.base.reporter import SilentReporter
from adrenoc.check.accuracy import bench as bench_module
from adrenoc.check.accuracy.bench import NOTHING, AccuracyBench, HalfTensors, round_to
from adrenoc.check.accuracy.result import Deviation
from adrenoc.check.accuracy.samples import Judge, take_samples
from adrenoc.cli.main import main
from adrenoc.compile.pipeline import State
from adrenoc.device import place as place_module
from adrenoc.native import opencl as opencl_runtime
from adrenoc.target.target import load_target
from tests.commands import invoke
from tests.decided import set_joins
from tests.host.run_op import Ops, execute, relative_error
from tests.ir.planning import run_until


def _compiled(model: Path, *words) -> dict[str, Any]:
    told = invoke("compile", model, "--json", *words)
    assert told.exit_code == 0, told.output
    return dict(json.loads(told.stdout))


def _pinned(bundle: Path) -> list[str]:
    manifest = json.loads((bundle / "manifest.json").read_text())
    return list(manifest["options"]["values"]["float32_tensors"])


@pytest.mark.usefixtures("halves")
def test_a_tolerance_is_met_and_told(device, tmp_path):
    model, bundle = planted.save(planted.cancellation(), tmp_path), tmp_path / "met.adrenoc"
    told = _compiled(model, "--device", "host", "-o", bundle, "--accuracy", 1e-2)
    (plan,) = told["accuracy"]["presets"]
    remedy = plan["remedy"]
    assert set(remedy["float32_tensors"]) == set(_pinned(bundle)) == {"t1", "t2", "t3"}
    assert remedy["error_after"] <= 1e-2 < remedy["error_before"]
    assert remedy["cost"]["moved_bytes"][1] > remedy["cost"]["moved_bytes"][0]
    assert 0.8 < plan["floor"]["ratio"] < 1.2
    assert remedy["trials"] > 1 and remedy["runs"] > 1 and plan["left"] == []
    kept = {d["subject"]: d for d in told["decisions"] if d["stage"] == "accuracy"}
    assert set(kept) == {"accuracy", "t1", "t2", "t3"}
    assert invoke("run", bundle, "--repeat", 1, "--check", model).exit_code == 0

    again = tmp_path / "again.adrenoc"
    same = _compiled(model, "--device", "host", "-o", again, "--accuracy", 1e-2)
    assert same["cached"] and same["accuracy"] == told["accuracy"]
    assert same["decisions"] == told["decisions"]
    # A loose tolerance is another compilation, which needs nothing.
    loose = _compiled(model, "--device", "host", "-o", again, "--accuracy", 0.9)
    assert loose["accuracy"]["presets"][0]["remedy"] is None and _pinned(again) == []


@pytest.mark.usefixtures("halves")
def test_a_phone_is_served_by_its_twin_and_inputs_count(device, tmp_path):
    model, folder = planted.save(planted.product_of_inputs(), tmp_path), tmp_path / "inputs"
    folder.mkdir()
    values = np.random.default_rng(0).uniform(500, 1000, (1, 4, 6, 5)).astype(np.float32)
    np.save(folder / "large.npy", values)
    bundle, options = tmp_path / "a.adrenoc", ("--device", "adreno:750", "--accuracy", 1e-2)
    plain = _compiled(model, *options, "-o", bundle)
    assert plain["accuracy"]["presets"][0]["remedy"] is None
    told = _compiled(model, *options, "-o", bundle, "--inputs", folder)
    remedy = told["accuracy"]["presets"][0]["remedy"]
    assert remedy["float32_tensors"] and told["accuracy"]["inputs"] == "large.npy"
    assert remedy["error_before"] is None  # it was infinite
    before, after = remedy["cost"]["time_us"]
    assert 0 < before <= after


def test_what_cannot_be_met_is_told_with_the_best(device, tmp_path, monkeypatch):
    model = planted.save(planted.sharp_softmax(), tmp_path)
    wrong = Deviation(largest=0.5, rms=0.5)
    monkeypatch.setattr(Judge, "judge_outputs", lambda *_: wrong)
    with pytest.raises(AccuracyError, match=r"within 0\.01 .*float32 throughout, is off by 5"):
        invoke("compile", model, "--device", "host", "--accuracy", 1e-2)
    assert not list(tmp_path.glob("*.adrenoc"))


def test_what_the_reference_knows_no_better_is_met(device, tmp_path):
    """No kernel gives a float's last digits: sums in another order have others."""
    model = planted.save(planted.sharp_softmax(), tmp_path)
    folder = tmp_path / "inputs"
    folder.mkdir()
    np.save(folder / "x.npy", np.random.default_rng(0).random((1, 16, 4, 4), np.float32))
    made = ("--device", "host", "-o", tmp_path / "out.adrenoc", "--preset", "fp32")
    made = (*made, "--inputs", folder)
    (plan,) = _compiled(model, *made, "--accuracy", 1e-12)["accuracy"]["presets"]
    assert plan["error"] > 1e-12 and plan["remedy"] is None
    assert "the reference's own" in plan["accepted_as"]


def test_without_a_device_it_says_what_brings_one(device, tmp_path, monkeypatch):
    monkeypatch.setattr(place_module, "list_devices", list)
    model = planted.save(planted.overflow(), tmp_path)
    with pytest.raises(DependencyError, match="no OpenCL device") as raised:
        invoke("compile", model, "--device", "adreno", "--no-cache", "--accuracy", 1e-2)
    assert "[opencl]'" in raised.value.hint


@pytest.mark.parametrize(
    "words",
    (
        ("--accuracy", "0.1", "--precision-policy", "p.json"),
        ("--accuracy", "0.1", "--clml", "all"),
        ("--accuracy", "0"),
        ("--inputs", "folder"),
    ),
)
def test_what_does_not_go_together_is_refused(tmp_path, words):
    assert invoke("compile", tmp_path / "m.onnx", *words).exit_code == 2


def test_a_second_search_builds_no_kernel_again(device, tmp_path, monkeypatch):
    """Its kernels come from where built kernels are kept, whatever the model is called."""
    model, told = planted.save(planted.cancellation(), tmp_path), []

    def noted(*arguments) -> dict[str, int]:
        told.append(opencl_runtime.build_cached(*arguments))
        return dict(told[-1])

    monkeypatch.setattr(bench_module, "build_cached", noted)
    words = ("--device", "host", "--no-cache", "-o", tmp_path / "a.adrenoc", "--accuracy", 1e-2)
    _compiled(model, *words)
    told.clear()
    _compiled(model, *words)
    assert len(told) > 3 and all(count["misses"] == 0 for count in told)


def _overflowing() -> Ops:
    """conv by 5e4, pool, conv by 2e-3: the middle is beyond half."""
    ops = Ops()
    x = ops.input(1, 8, 9, 7)
    big = ops("Conv", x, ops.const(np.full((8, 8, 1, 1), 5e4)))
    pooled = ops("AveragePool", big, kernel_shape=[3, 3])
    back = ops("Conv", pooled, ops.const(np.full((4, 8, 1, 1), 2e-3)))
    ops.output(ops("Relu", ops("MaxPool", back, kernel_shape=[2, 2])))
    return ops


def _compiled_pins(ops: Ops, folder: Path, preset: str, pins: tuple[str, ...]) -> State:
    path = folder / "ops.onnx"
    onnx.save(ops._model(), path)
    said = {"check_ir": True, "keep_float32": False, "float32_tensors": pins}
    return run_until(None, path, "host", preset=preset, **said)


def _error(ops: Ops, state: State, device) -> float:
    (value,) = execute(state, list(ops._inputs.values()), device)
    (expected,) = ops.reference().values()
    return relative_error(value, expected)


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_planes_of_a_pinned_tensor_are_not_stored_in_half(
    ops, device, tmp_path, preset, monkeypatch
):
    """Winograd's algorithm would, so the convolution is computed as it is, in float."""
    set_joins(monkeypatch, winograd=0.0, winograd_three=0.0, winograd_least_launches=0.0)
    big = ops("Conv", ops.input(1, 8, 16, 12), ops.const(np.full((8, 8, 1, 1), 5e4)))
    taps = ops.const(np.full((4, 8, 3, 3), 2e-4))
    ops.output(ops("Conv", big, taps, pads=[1, 1, 1, 1]))
    assert _error(ops, _compiled_pins(ops, tmp_path, preset, ("t0",)), device) < 2e-3


@pytest.mark.parametrize("preset", ("mixed", "fp16", "buffer"))
def test_pins_carry_what_half_cannot(device, tmp_path, preset):
    ops = _overflowing()
    assert not _error(ops, _compiled_pins(ops, tmp_path, preset, ()), device) < 1.0
    pinned = _compiled_pins(ops, tmp_path, preset, ("t0", "t1"))
    assert _error(ops, pinned, device) < 2e-3
    dtypes = {name: p.dtype for name, p in pinned.graph.placements.items()}
    assert dtypes["t0"] == dtypes["t1"] == "float32"
    assert dtypes["t2"] == "float16"
    casts = [d for d in pinned.log if d.taken.startswith("converts on load")]
    assert casts and all("no copy is added" in d.reason for d in casts)
    unpinned = _compiled_pins(ops, tmp_path, preset, ())
    assert len(pinned.program.steps) == len(unpinned.program.steps)


def test_what_a_pin_is_fused_with_is_pinned_too(ops, device, tmp_path):
    y = ops("Conv", ops.input(1, 4, 6, 5), ops.weight(4, 4, 1, 1))
    z = ops("MaxPool", ops("Relu", y), kernel_shape=[2, 2])
    ops.output(ops("Relu", z))
    state = _compiled_pins(ops, tmp_path, "mixed", (y,))
    assert state.graph.placements["t1"].dtype == "float32"
    assert {str(p.value.dtype) for p in state.program.params.values()} == {"float32"}


def test_what_only_moves_keeps_the_dtype(ops, device, tmp_path):
    y = ops("MaxPool", ops("Softmax", ops.input(1, 4, 6, 8), axis=1), kernel_shape=[2, 2])
    moved = ops("Slice", y, ops.ints(1), ops.ints(3), ops.ints(3))
    ops.output(ops("Softmax", ops("MaxPool", moved, kernel_shape=[1, 1]), axis=1))
    state = _compiled_pins(ops, tmp_path, "mixed", (y,))
    dtypes = {name: p.dtype for name, p in state.graph.placements.items()}
    assert dtypes["t1"] == dtypes["t2"] == "float32"
    assert dtypes["t3"] == "float16"


def test_an_unknown_name_is_told_with_the_near_one(tmp_path):
    with pytest.raises(PrecisionPolicyError, match=r"'t00'.*t0"):
        _compiled_pins(_overflowing(), tmp_path, "mixed", ("t00",))


def test_what_becomes_infinite_is_a_decision(ops, tmp_path):
    """Whatever lets such weights through to the kernels."""
    x = ops.input(1, 8, 3, 3)
    ops.output(ops("Conv", x, ops.const(np.full((4, 8, 1, 1), 1e5))))
    state = _compiled_pins(ops, tmp_path, "mixed", ())
    (told,) = [d for d in state.log if d.taken == "infinite in float16"]
    assert "32 of 32 values" in told.reason and "1e+05" in told.reason
    pinned = _compiled_pins(ops, tmp_path, "mixed", ("t0",))
    assert not [d for d in pinned.log if d.taken == "infinite in float16"]


def _block(*, expands: bool) -> Ops:
    """A depthwise convolution beside a 1x1 one, which one kernel computes."""
    ops = Ops(seed=5)
    channels = 8 if expands else 24
    x = ops("Conv", ops.input(1, 3, 28, 28), ops.weight(channels, 3, 3, 3), pads=[1, 1, 1, 1])
    if expands:
        x = ops("Relu", ops("Conv", x, ops.weight(24, 8, 1, 1), ops.weight(24)))
    d = ops("Conv", x, ops.weight(24, 1, 3, 3), ops.weight(24), group=24, pads=[1, 1, 1, 1])
    d = ops("Relu", d)
    if not expands:
        d = ops("Relu", ops("Conv", d, ops.weight(24, 24, 1, 1), ops.weight(24)))
    ops.output(ops("AveragePool", d, kernel_shape=[2, 2], strides=[2, 2]))
    return ops


@pytest.mark.parametrize(
    ("expands", "joined"), [(True, "expand_depthwise_conv2d"), (False, "separable_conv2d")]
)
def test_pinned_convolutions_join_as_others_do(device, tmp_path, expands, joined):
    """Two kernels would cost more than float32 does: the wide tensor between them is written."""
    ops = _block(expands=expands)
    free = _compiled_pins(ops, tmp_path, "mixed", ())
    nodes = [node for node in free.graph.nodes if node.op == joined]
    assert len(nodes) == 1
    pinned = _compiled_pins(ops, tmp_path, "mixed", (nodes[0].output,))
    (node,) = [node for node in pinned.graph.nodes if node.op == joined]
    assert pinned.graph.placements[node.output].dtype == "float32"
    assert _error(ops, pinned, device) < _error(ops, free, device)
    source = _compiled_pins(ops, tmp_path, "mixed", (nodes[0].inputs[0],))
    assert not [node for node in source.graph.nodes if node.op == joined]
    assert _error(ops, source, device) < 2e-3


def _bench(ops: Ops, folder: Path, device, target: str = "host") -> tuple[AccuracyBench, Judge]:
    model, reporter = planted.save(ops, folder), SilentReporter()
    bench = AccuracyBench(
        model, target=load_target(target), shapes=(), device=device, reporter=reporter
    )
    samples, _ = take_samples(bench, model, files=(), seed=0, reporter=reporter)
    return bench, Judge(bench, samples)


def _blocks() -> Ops:
    """Inverted residuals, a concatenation in place, a shuffle, a norm, attention, a sigmoid."""
    ops = Ops()
    y = ops.input(1, 8, 12, 12)
    for _ in range(2):
        wide = ops("Relu", ops("Conv", y, ops.weight(16, 8, 1, 1)))
        deep = ops("Conv", wide, ops.weight(16, 1, 3, 3), group=16, pads=[1] * 4)
        narrow = ops("Conv", ops("Relu", deep), ops.weight(8, 16, 1, 1), ops.weight(8))
        y = ops("Add", y, ops("Mul", narrow, ops.const(0.3)))
    both = ops("Concat", y, ops("Conv", y, ops.weight(8, 8, 3, 3), pads=[1] * 4), axis=1)
    split = ops("Reshape", both, ops.ints(1, 2, 8, 12, 12))
    moved = ops("Reshape", ops("Transpose", split, perm=[0, 2, 1, 3, 4]), ops.ints(1, 16, 144))
    scores = ops("Softmax", ops("MatMul", moved, ops("Transpose", moved, perm=[0, 2, 1])), axis=2)
    mixed = ops("MatMul", scores, moved)
    ops.output(ops("Sigmoid", ops("MatMul", mixed, ops.weight(144, 6))))
    ops.output(ops("GlobalAveragePool", both))
    return ops


@pytest.mark.parametrize("target", ("host", "host:a750"))
def test_kernels_lose_no_more_than_rounding_does(device, tmp_path, target):
    bench, judge = _bench(_blocks(), tmp_path, device, target)
    ours = judge.judge_compiled(bench.whole("mixed"))
    floor = judge.judge_rounding(bench.find_halves("mixed"))
    assert judge.judge_rounding(NOTHING).rms < 0.02 * floor.rms
    assert 0.8 * floor.rms < ours.rms < 1.2 * floor.rms


def test_one_tensor_is_rounded_and_its_constants_are_not(ops, device, tmp_path):
    x = ops.input(1, 4, 5, 5)
    y = ops("Conv", ops("MaxPool", x, kernel_shape=[1, 1]), ops.weight(4, 4, 1, 1))
    ops.output(ops("MaxPool", y, kernel_shape=[1, 1]))
    bench, judge = _bench(ops, tmp_path, device)
    value = np.random.default_rng(5).uniform(-1, 1, (1, 4, 5, 5)).astype(np.float32)
    (exact,) = judge.ideal.run({bench.graph.inputs[0]: value}, NOTHING)
    only = HalfTensors(tensors=frozenset({y}), constants=frozenset())
    (seen,) = judge.ideal.run({bench.graph.inputs[0]: value}, only)
    np.testing.assert_array_equal(seen, round_to(exact, "float16"))
    assert not np.array_equal(seen, exact)


def test_a_kernel_that_loses_more_is_seen(device, tmp_path, monkeypatch):
    """Weights of eight bits less than the plan says are no rounding to half."""
    bench, judge = _bench(_blocks(), tmp_path, device)
    floor = judge.judge_rounding(bench.find_halves("mixed"))
    state = bench.run_planning("mixed")
    for param in state.program.params.values():
        if str(param.value.dtype) == "float16":
            param.value[...] = (param.value * np.float16(1.01)).astype(np.float16)
    monkeypatch.setattr(AccuracyBench, "run_planning", lambda *_: state)
    assert judge.judge_compiled(bench.whole("mixed")).rms > 2 * floor.rms


def test_a_run_shows_the_floor_of_its_bundle(device, tmp_path, capsys):
    model, bundle = planted.save(planted.cancellation(), tmp_path), tmp_path / "b.adrenoc"

    def run(*words) -> int:
        return main([str(word) for word in words])

    assert run("compile", model, "--device", "host", "--no-cache", "-o", bundle) == 0
    checked = ("run", bundle, "--repeat", 1, "--check", model)
    capsys.readouterr()
    assert run(*checked, "--rounding-floor", "--json") == CheckFailedError.exit_code
    floor = json.loads(capsys.readouterr().out)["rounding_floor"]
    assert floor["error"] > 0.1 and 0.8 < floor["ratio"] < 1.2
    assert run("run", bundle, "--rounding-floor") == 2


def test_steps_on_the_cpu_take_part(ops, device, tmp_path):
    x = ops("Conv", ops.input(1, 4, 5, 5), ops.weight(4, 4, 1, 1))
    wide = ops("Cast", ops("MaxPool", x, kernel_shape=[1, 1]), to=11)
    back = ops("Cast", ops("CumSum", wide, ops.ints(1)), to=1)
    ops.output(ops("Conv", back, ops.weight(4, 4, 1, 1)))
    bench, judge = _bench(ops, tmp_path, device)
    assert any(node.op == "cpu" for node in bench.graph.nodes)
    assert judge.judge_rounding(NOTHING).rms < 1e-6
    ratio = (
        judge.judge_compiled(bench.whole("mixed")).rms
        / judge.judge_rounding(bench.find_halves("mixed")).rms
    )
    assert 0.8 < ratio < 1.2


def test_the_stages_that_the_ideal_run_needs_are_stages():
    names = [stage.name for stage in bench_module.STAGES]
    assert set(bench_module._NEEDED) < set(names)
