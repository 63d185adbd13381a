"""Quanta that are known, and whole numbers too wide for floats."""

import numpy as np
import pytest
from onnx import TensorProto

from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.host.run_op import Ops, execute
from tests.models import graph, write


def _quantised(ops: Ops, x: str, unit: float) -> str:
    scale, zero = ops.const(unit), ops.const(128, np.uint8)
    return ops("DequantizeLinear", ops("QuantizeLinear", x, scale, zero), scale, zero)


def _convolved(ops: Ops, x: str, weight: str, unit: float) -> str:
    return _quantised(ops, ops("Conv", x, weight, pads=[1] * 4), unit)


def _weights_of_bytes(ops: Ops, channels: int) -> str:
    whole = ops.const(np.rint(ops.values(channels, channels, 3, 3) * 200), np.int8)
    return ops("DequantizeLinear", whole, ops.const(0.00113), ops.const(0, np.int8))


@pytest.mark.parametrize("preset", ["mixed", "fp16"])
def test_a_first_convolution_in_floats_moves_no_quantum(device, preset):
    """As converters leave it out: all that comes behind is exact in halves and bytes."""
    ops = Ops(seed=4)
    y = _convolved(ops, ops.input(1, 3, 24, 20), ops.weight(16, 3, 3, 3), 0.0107)
    for _ in range(3):
        y = _convolved(ops, y, _weights_of_bytes(ops, 16), 0.0123)
    ops.output(y)
    ops.check(device, preset, tolerance=1e-5)
    assert any(d.taken == "float32" and "quanta are rounded of" in d.reason for d in ops.decisions)


def test_a_norm_between_roundings_moves_no_quantum(device):
    """As converters leave it in floats: its own factors stay exact, too."""
    ops = Ops(seed=4)
    y = _quantised(ops, ops.input(1, 24, 32), 0.0107)
    y = ops("LayerNormalization", y, ops.weight(32, around=1.0), ops.weight(32), axis=-1)
    ops.output(_quantised(ops, y, 0.0293))
    ops.check(device, "mixed", tolerance=1e-5)


def test_a_network_in_floats_with_one_quantised_layer_stays_in_halves(device):
    ops = Ops(seed=4)
    y = ops.input(1, 16, 24, 20)
    for _ in range(3):
        y = ops("Relu", ops("Conv", y, ops.weight(16, 16, 3, 3), pads=[1] * 4))
    y = _convolved(ops, _quantised(ops, y, 0.01), _weights_of_bytes(ops, 16), 0.02)
    ops.output(y)
    ops.check(device, "mixed", tolerance=2e-2)
    told = [d for d in ops.decisions if "quanta are rounded of" in d.reason]
    assert [d.taken for d in told] == ["stored as the preset says"]
    assert "%" in told[0].reason


def test_sums_and_choices_beyond_32_bits(device, tmp_path):
    large = 2**40
    nodes = (
        "a = Add(x, large) total = ReduceSum <keepdims = 1>(a) up = Greater(a, large) "
        "kept = Where(up, a, zero) row = Gather <axis = 0>(a, first)"
    )
    constants = {
        "large": np.array(large, np.int64),
        "zero": np.array(0, np.int64),
        "first": np.array([1, 0], np.int64),
    }
    names = ["total", "kept", "row"]
    model = graph(nodes, {"x": (3, 5)}, names, constants, dtype=TensorProto.INT64)
    x = (np.arange(15, dtype=np.int64) - 7).reshape(3, 5)
    target = load_target("host")
    options = resolve_options(target, preset="fp32", command_line={"check_ir": True}).options
    state = State(model=write(model, tmp_path), target=target, options=options)
    state, _ = run_stages(state, reporter=SilentReporter())
    total, kept, row = execute(state, [x], device)
    a = x + large
    np.testing.assert_array_equal(total, a.sum(keepdims=True))
    np.testing.assert_array_equal(kept, np.where(a > large, a, 0))
    np.testing.assert_array_equal(row, a[[1, 0]])
