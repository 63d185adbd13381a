"""The floor: what rounding alone costs, told from what kernels lose beyond it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest

from adrenoc.base.errors import CheckFailedError
from adrenoc.base.reporter import SilentReporter
from adrenoc.check.accuracy import bench as bench_module
from adrenoc.check.accuracy.bench import AccuracyBench
from adrenoc.check.accuracy.program_run import NOTHING, HalfTensors, round_to
from adrenoc.check.accuracy.samples import Judge, take_samples
from adrenoc.cli.main import main
from adrenoc.target.target import load_target
from tests.host.run_op import Ops


def _bench(
    ops: Ops, folder: Path, device: Any, target: str = "host"
) -> tuple[AccuracyBench, Judge]:
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

    def run(*words: Any) -> int:
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
