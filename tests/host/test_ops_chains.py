"""Random chains of operators: layouts, padding lanes and memory reuse between any two families."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_op import Ops

from tests.examples import examples

pytestmark = pytest.mark.operator

Shape = tuple[int, int, int, int]
CHANNELS = (1, 3, 4, 5, 7, 8, 30)
MOST_CHANNELS = 40


def convolution(draw: Any, ops: Ops, x: str, shape: Shape) -> tuple[str, Shape]:
    n, c, h, w = shape
    out, stride = draw(st.sampled_from(CHANNELS)), draw(st.sampled_from((1, 2)))
    kernel = draw(st.sampled_from((1, 3)))
    pad = kernel // 2
    y = ops("Conv", x, ops.weight(out, c, kernel, kernel), strides=[stride] * 2, pads=[pad] * 4)
    return ops("Tanh", y), (n, out, -(-h // stride), -(-w // stride))


def depthwise(draw: Any, ops: Ops, x: str, shape: Shape) -> tuple[str, Shape]:
    y = ops("Conv", x, ops.weight(shape[1], 1, 3, 3), pads=[1] * 4, group=shape[1])
    return ops("Add", y, x), shape


def pool(draw: Any, ops: Ops, x: str, shape: Shape) -> tuple[str, Shape]:
    kind = draw(st.sampled_from(("MaxPool", "AveragePool")))
    return ops(kind, x, kernel_shape=[3, 3], pads=[1] * 4), shape


def concat(draw: Any, ops: Ops, x: str, shape: Shape) -> tuple[str, Shape]:
    n, c, h, w = shape
    if 2 * c > MOST_CHANNELS:
        return ops("Relu", x), shape
    return ops("Concat", x, ops("Sigmoid", x), axis=1), (n, 2 * c, h, w)


def cut(draw: Any, ops: Ops, x: str, shape: Shape) -> tuple[str, Shape]:
    axis = draw(st.integers(1, 3))
    begin = draw(st.integers(0, shape[axis] - 1))
    end = draw(st.integers(begin + 1, shape[axis]))
    y = ops("Slice", x, ops.ints(begin), ops.ints(end), ops.ints(axis))
    return y, (*shape[:axis], end - begin, *shape[axis + 1 :])  # type: ignore[return-value]


def transpose(draw: Any, ops: Ops, x: str, shape: Shape) -> tuple[str, Shape]:
    perm = draw(st.sampled_from(([0, 2, 3, 1], [0, 3, 2, 1], [0, 1, 3, 2])))
    return ops("Transpose", x, perm=perm), tuple(shape[a] for a in perm)  # type: ignore[return-value]


def softmax(draw: Any, ops: Ops, x: str, shape: Shape) -> tuple[str, Shape]:
    return ops("Softmax", x, axis=draw(st.integers(1, 3))), shape


def squeeze_and_excite(draw: Any, ops: Ops, x: str, shape: Shape) -> tuple[str, Shape]:
    mean = ops("ReduceMean", x, ops.ints(2, 3), keepdims=1)
    return ops("Mul", x, ops("Exp", mean)), shape


LINKS = (convolution, depthwise, pool, concat, cut, transpose, softmax, squeeze_and_excite)


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
@examples(6)
@given(data=st.data())
def test_chains(device: Any, preset: str, data: Any) -> None:
    ops = Ops(seed=data.draw(st.integers(0, 99)))
    shape: Shape = (
        data.draw(st.sampled_from((1, 2))),
        data.draw(st.sampled_from(CHANNELS)),
        data.draw(st.integers(3, 9)),
        data.draw(st.integers(3, 9)),
    )
    x = ops.input(*shape)
    for link in data.draw(st.lists(st.sampled_from(LINKS), min_size=2, max_size=5)):
        x, shape = link(data.draw, ops, x, shape)
    ops.output(ops("Mul", x, ops.const(2.0)))
    # Errors of half storage add up along a chain.
    ops.check(device, preset, tolerance=1e-5 if preset == "fp32" else 2e-2)
