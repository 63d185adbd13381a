"""Random graphs of odd shapes against onnxruntime.

A few by default; `ADRENOC_PROPERTY_EXAMPLES=2000 pytest tests/host/test_property_graphs.py` for
many.  Seeds that found something become tests of their own at the end.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.host.run_op import Ops

EXAMPLES = int(os.environ.get("ADRENOC_PROPERTY_EXAMPLES", "6"))
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 11, 13, 17)
MOST_ELEMENTS = 1 << 15
WIDE = (16385, 20011, 32749)
"""Wider than an image may be."""

Draw = Callable[[st.SearchStrategy], Any]
Shape = tuple[int, ...]
Step = Callable[[Ops, str, Shape, Draw], "tuple[str, Shape] | None"]


def _window(shape: Shape, draw: Draw) -> tuple[dict[str, Any], list[int]] | None:
    """Attributes of a window over H and W, and the extents that it leaves."""
    kernel = [draw(st.integers(1, min(3, e))) for e in shape[2:]]
    strides = [draw(st.integers(1, 2)) for _ in kernel]
    pads = [draw(st.integers(0, k // 2)) for k in kernel] * 2
    left = [
        (e + 2 * p - k) // s + 1
        for e, p, k, s in zip(shape[2:], pads, kernel, strides, strict=False)
    ]
    return {"kernel_shape": kernel, "strides": strides, "pads": pads}, left


def _conv(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape] | None:
    if len(shape) != 4:
        return None
    attrs, left = _window(shape, draw) or ({}, [])
    groups = draw(st.sampled_from([g for g in (1, 2, shape[1]) if shape[1] % g == 0]))
    made = groups * draw(st.integers(1, 5))
    weight = ops.weight(made, shape[1] // groups, *attrs["kernel_shape"])
    return ops("Conv", x, weight, ops.weight(made), group=groups, **attrs), (shape[0], made, *left)


def _pool(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape] | None:
    if len(shape) != 4:
        return None
    attrs, left = _window(shape, draw) or ({}, [])
    kind = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    if kind == "AveragePool":
        attrs["count_include_pad"] = draw(st.integers(0, 1))
    return ops(kind, x, **attrs), (*shape[:2], *left)


def _concat(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape]:
    axis = draw(st.integers(0, len(shape) - 1))
    more = draw(st.integers(1, 5))
    other = ops.weight(*(more if a == axis else e for a, e in enumerate(shape)))
    operands = [x, other] if draw(st.booleans()) else [other, x]
    grown = tuple(e + more if a == axis else e for a, e in enumerate(shape))
    return ops("Concat", *operands, axis=axis), grown


def _slice(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape]:
    axis = draw(st.integers(0, len(shape) - 1))
    begin = draw(st.integers(0, shape[axis] - 1))
    end = draw(st.integers(begin + 1, shape[axis]))
    step = draw(st.integers(1, 3))
    left = -(-(end - begin) // step)
    result = ops("Slice", x, ops.ints(begin), ops.ints(end), ops.ints(axis), ops.ints(step))
    return result, tuple(left if a == axis else e for a, e in enumerate(shape))


def _pad(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape]:
    before = [draw(st.integers(0, 2)) for _ in shape]
    after = [draw(st.integers(0, 2)) for _ in shape]
    result = ops("Pad", x, ops.ints(*before, *after), ops.const(0.5))
    return result, tuple(e + b + a for e, b, a in zip(shape, before, after, strict=True))


def _resize(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape] | None:
    # On long axes onnxruntime's coordinates, in float32, round to the neighbour of ONNX's own.
    if len(shape) != 4 or max(shape[2:]) > max(EXTENTS):
        return None
    sizes = [*shape[:2], *(draw(st.integers(1, 2 * e + 1)) for e in shape[2:])]
    mode = draw(st.sampled_from(["nearest", "linear"]))
    result = ops(
        "Resize",
        x,
        "",
        "",
        ops.ints(*sizes),
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return result, tuple(sizes)


def _matmul(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape]:
    columns = draw(st.sampled_from(EXTENTS))
    return ops("MatMul", x, ops.weight(shape[-1], columns)), (*shape[:-1], columns)


def _reduce(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape] | None:
    axis = draw(st.integers(0, len(shape) - 1))
    kind = draw(st.sampled_from(["ReduceMean", "ReduceMax", "ReduceSum"]))
    keep = draw(st.integers(0, 1))
    left = tuple(1 if a == axis else e for a, e in enumerate(shape) if keep or a != axis)
    if len(left) < 2:
        return None
    return ops(kind, x, ops.ints(axis), keepdims=keep), left


def _transpose(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape]:
    order = draw(st.permutations(range(len(shape))))
    return ops("Transpose", x, perm=order), tuple(shape[a] for a in order)


def _reshape(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape]:
    count = math.prod(shape)
    rank = draw(st.integers(2, 5))
    left: list[int] = []
    for _ in range(rank - 1):
        rest = count // math.prod(left)
        left.append(
            draw(st.sampled_from([d for d in range(1, min(rest, 20) + 1) if rest % d == 0]))
        )
    left.append(count // math.prod(left))
    return ops("Reshape", x, ops.ints(*left)), tuple(left)


def _unary(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape]:
    kind = draw(st.sampled_from(["Relu", "Sigmoid", "Tanh", "HardSwish", "Neg", "Softmax"]))
    return ops(kind, x), shape


def _broadcast(ops: Ops, x: str, shape: Shape, draw: Draw) -> tuple[str, Shape]:
    first = draw(st.integers(0, len(shape) - 1))
    other = ops.weight(*(e if draw(st.booleans()) else 1 for e in shape[first:]), around=0.75)
    return ops(draw(st.sampled_from(["Add", "Mul", "Sub"])), x, other), shape


STEPS: tuple[Step, ...] = (
    *(_conv, _pool, _concat, _slice, _pad, _resize, _matmul),
    *(_reduce, _transpose, _reshape, _unary, _broadcast),
)


@st.composite
def graphs(draw: Draw) -> tuple[Ops, list[str]]:
    """A chain of operators over an input of odd shape; its last tensors are outputs."""
    ops = Ops(seed=draw(st.integers(0, 1000)))
    shape: Shape = tuple(draw(st.sampled_from(EXTENTS)) for _ in range(4))
    most = MOST_ELEMENTS
    if draw(st.integers(0, 9)) == 0:
        wide = draw(st.integers(0, 3))
        shape = tuple(draw(st.sampled_from(WIDE if a == wide else (1, 2, 3))) for a in range(4))
        most *= 8
    x = ops.input(*shape)
    made = [x]
    for _ in range(draw(st.integers(1, 5))):
        step = draw(st.sampled_from(STEPS))(ops, x, shape, draw)
        if step is None or math.prod(step[1]) > most:
            continue
        x, shape = step
        made.append(x)
    outputs = [x] if len(made) < 3 or draw(st.booleans()) else [made[-2], x]
    if outputs[0] == made[0]:
        outputs = [ops("Relu", made[0])]
    ops.output(*outputs)
    return ops, outputs


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 6,
    suppress_health_check=list(HealthCheck),
)
@given(graph=graphs())
def test_random_graph(device: Any, graph: tuple[Ops, list[str]]) -> None:
    ops, _ = graph
    ops.check(device, "fp32", tolerance=2e-5)


@pytest.mark.parametrize("width", [16385, 20011])
def test_wider_than_an_image(device: Any, width: int) -> None:
    ops = Ops()
    x = ops.input(1, 3, 2, width)
    pooled = ops("MaxPool", x, kernel_shape=[1, 3], strides=[1, 2])
    conv = ops("Conv", pooled, ops.weight(2, 3, 1, 1))
    ops.output(conv, ops("Relu", ops("Add", x, ops.weight(1, 3, 1, 1))))
    ops.check(device, "fp32")
