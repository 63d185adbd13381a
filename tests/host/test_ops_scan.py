"""Cumulative sums and products along every axis."""

import numpy as np
import pytest

from tests.host.run_op import Ops, check_relax

pytestmark = pytest.mark.operator

PRESETS = ("fp32", "mixed", "fp16", "buffer")
EVERY = [(exclusive, reverse) for exclusive in (0, 1) for reverse in (0, 1)]


def _scanned(ops: Ops, x: str, axis: int, exclusive: int = 0, reverse: int = 0) -> str:
    return ops("CumSum", x, ops.const(axis, np.int64), exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_axis_both_ways(ops, device, preset):
    y = ops("Sigmoid", ops.input(2, 7, 5, 6))
    for axis in (0, 1, 2, -1):
        ops.output(*(_scanned(ops, y, axis, *ways) for ways in EVERY))
    ops.check(device, preset)
    assert ops.fallbacks == []
    assert ops.kernels.count("cumsum") == 4 * len(EVERY)


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_every_rank_and_what_stands_around(ops, device, preset):
    """Lanes beyond the last channel hold zeros: a sum over channels would show others."""
    for shape in ((11,), (3, 10), (1, 9, 6), (2, 3, 1, 5, 3)):
        x = ops.input(*shape)
        for axis in range(len(shape)):
            y = _scanned(ops, ops("Exp", x), axis)
            ops.output(ops("Tanh", ops("Mul", y, ops.const(0.25))))
            ops.output(ops("ReduceSum", ops("Cos", y), ops.ints(min(1, len(shape) - 1))))
    ops.check(device, preset)
    assert ops.fallbacks == []


@pytest.mark.parametrize("preset", ("fp32", "mixed", "fp16"))
def test_long_rows(ops, device, preset):
    tokens = ops.input(1, 4096, 3)
    ops.output(_scanned(ops, ops("Relu", tokens), 1), _scanned(ops, ops.input(2, 5000, low=0), 1))
    ops.check(device, preset)
    assert ops.kernels.count("cumsum") == 2


def test_whole_numbers_are_a_loop_nest(ops, device):
    """Positions of tokens, as language models count them."""
    mask = ops.whole_input(2, 17, count=2, dtype=np.int32)
    ops.output(_scanned(ops, ops("Mul", mask, ops.const(3, np.int32)), 1))
    ops.check(device, "mixed")
    assert [reason.partition(":")[0] for reason in ops.fallbacks] == ["cumsum as a plain loop nest"]


@pytest.mark.parametrize("axis", (1, 2))
def test_products(device, axis):
    from tvm import relax

    x = np.random.default_rng(3).uniform(0.8, 1.2, (1, 6, 7, 5)).astype(np.float32)
    for exclusive in (False, True):
        state = check_relax(
            device, lambda x, e=exclusive: relax.op.cumprod(x, axis, "float32", e), x, preset="fp32"
        )
        assert any(kernel.family == "cumprod" for kernel in state.program.kernels.values())
