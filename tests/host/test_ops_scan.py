"""Cumulative sums, inverses, integers, rotations: operators of a kernel of their own."""

from typing import Any

import numpy as np
import pytest

from tests.host.run_op import Ops, check_relax

pytestmark = pytest.mark.operator

EVERY = [(exclusive, reverse) for exclusive in (0, 1) for reverse in (0, 1)]


def _scanned(ops: Ops, x: str, axis: int, exclusive: int = 0, reverse: int = 0) -> str:
    return ops("CumSum", x, ops.const(axis, np.int64), exclusive=exclusive, reverse=reverse)


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


DOMAIN = "com.microsoft"


def _inverted(ops: Ops, *shape: int, shift: float = 4.0) -> str:
    """Invert what is far enough from singular for halves, with its rows in another order."""
    rows = shape[-1]
    near = ops("Add", ops.input(*shape), ops.const(shift * np.eye(rows, dtype=np.float32)[::-1]))
    return ops("Inverse", near, domain=DOMAIN)


@pytest.mark.parametrize("rows", [1, 3, 4, 7, 8])
def test_small_matrices_are_one_kernel(ops, device, preset, rows):
    ops.output(ops("Tanh", _inverted(ops, 3, rows, rows)), _inverted(ops, rows, rows))
    ops.output(_inverted(ops, 2, 3, rows, rows))
    ops.check(device, preset)
    assert ops.fallbacks == []
    assert ops.kernels.count("inverse") == 3


def test_pivots_are_taken_from_other_rows(ops, device):
    ops.output(_inverted(ops, 5, 5, 5, shift=0.0))
    ops.check(device, "fp32", tolerance=1e-3)


def test_larger_ones_are_plain_loops(ops, device):
    ops.output(_inverted(ops, 2, 11, 11))
    ops.check(device, "fp32")
    assert "inverse" not in ops.kernels


KINDS = ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceSumSquare")
VALUES = {
    "beyond the dtype": [[2**31 - 1, 5, 3, 16777217, 0, 7], [-(2**31), -5, 2**20, 1, 3, 4]],
    "of products": [[40000, -40001, 39999, 1, -1, 2], [-40000, -40001, 0, 3, 5, 7]],
    "within it": [[16777217, -2, 4, 6, 8, 1], [33554433, 1, -1, 1, 1, 1]],
}


@pytest.mark.parametrize("values", VALUES)
def test_int32_ends_where_its_dtype_does(ops, device, values):
    x = ops.whole_input(2, 6, count=9, dtype=np.int32)
    ops.given(x, np.array(VALUES[values], np.int32))
    for kind in KINDS:
        ops.output(ops(kind, x, ops.ints(1), keepdims=0), ops(kind, x, ops.ints(0)), ops(kind, x))
    for name, seen in ops.run(device, "mixed").items():
        np.testing.assert_array_equal(seen, ops.reference()[name], err_msg=ops._path_to(name))


@pytest.mark.parametrize("kind", ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"])
def test_without_axes_each_number_is_mapped(ops, device, kind):
    ops.output(ops(kind, ops.input(3, 5, low=0.5, high=2.0), noop_with_empty_axes=1))
    ops.check(device, "fp32")


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [-2, 0, 9])
def test_triangle_of_a_diagonal_that_is_data(ops, device, upper, diagonal):
    x, k = ops.input(2, 4, 5), ops.whole_input(count=1)
    ops.given(k, np.array(diagonal, np.int64))
    ops.output(ops("Trilu", x, k, upper=upper))
    ops.check(device, "fp32")


CASES: dict[str, tuple[tuple[int, ...], int, list[Any], dict[str, int]]] = {
    "one token": ((1, 1, 64), 16, [[7]], {}),
    "tokens": ((1, 5, 64), 16, [[3, 4, 5, 6, 9]], {}),
    "from the first one's": ((1, 5, 64), 16, [2], {}),
    "two texts": ((2, 3, 32), 16, [[0, 1, 2], [5, 6, 7]], {}),
    "heads apart": ((1, 4, 5, 16), 16, [[3, 4, 5, 6, 9]], {}),
    "heads apart, from the first one's": ((2, 4, 5, 16), 16, [3], {}),
    "neighbours": ((1, 5, 64), 16, [[3, 4, 5, 6, 9]], {"interleaved": 1}),
    "a part of a head": (
        (1, 5, 96),
        16,
        [[3, 4, 5, 6, 9]],
        {"num_heads": 3, "rotary_embedding_dim": 16},
    ),
    "neighbours of a part": (
        (1, 2, 96),
        8,
        [[3, 4]],
        {"num_heads": 3, "rotary_embedding_dim": 8, "interleaved": 1},
    ),
}


@pytest.mark.parametrize("preset", ["fp32", "mixed"])
def test_rotary_embedding(ops, device, preset):
    for shape, rotated, positions, attrs in CASES.values():
        angles = np.arange(12)[:, None] * 10.0 ** -np.arange(rotated // 2)
        tables = [ops.const(turn(angles)) for turn in (np.cos, np.sin)]
        inputs = [ops("Relu", ops.input(*shape)), ops.const(positions, np.int64), *tables]
        ops.output(ops("RotaryEmbedding", *inputs, domain=DOMAIN, **attrs))
    ops.check(device, preset)
