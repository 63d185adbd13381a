"""Attention in one kernel: joint and separate projections, masks, sizes that divide nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_op import Ops

PRESETS = ("fp32", "mixed", "fp16", "buffer")


def joint_projection(ops: Ops, x: str, tokens: int, heads: int, width: int) -> list[str]:
    """q, k and v of one product, as vision transformers split them."""
    dim = heads * width
    qkv = ops("Add", ops("MatMul", x, ops.weight(dim, 3 * dim)), ops.weight(3 * dim))
    split = ops("Reshape", qkv, ops.ints(1, tokens, 3, heads, width))
    moved = ops("Transpose", split, perm=[2, 0, 3, 1, 4])
    return [ops("Gather", moved, ops.const(i, np.int64), axis=0) for i in range(3)]


def joined(ops: Ops, x: str, tokens: int, dim: int) -> str:
    return ops("Reshape", ops("Transpose", x, perm=[0, 2, 1, 3]), ops.ints(1, tokens, dim))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("sizes", ((9, 2, 8), (37, 3, 16), (69, 1, 64)))
def test_joint_projection(device: Any, preset: str, sizes: tuple[int, int, int]) -> None:
    tokens, heads, width = sizes
    ops = Ops()
    x = ops.input(1, tokens, heads * width)
    q, k, v = joint_projection(ops, x, tokens, heads, width)
    q = ops("Mul", q, ops.const(width**-0.5))
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    y = ops("MatMul", ops("Softmax", scores, axis=-1), v)
    ops.output(ops("Add", x, joined(ops, y, tokens, heads * width)))
    ops.check(device, preset)
    assert ops.kernels.count("attention") == 1
    assert len(ops.kernels) <= 3, "heads are split and joined by a kernel of their own"


@pytest.mark.parametrize("preset", PRESETS)
def test_mask_and_other_widths(device: Any, preset: str) -> None:
    """Tensors of their own, six channels of values, five of depth, a mask over keys."""
    ops = Ops()
    q, k = ops("Tanh", ops.input(2, 3, 7, 5)), ops("Tanh", ops.input(2, 3, 21, 5))
    v = ops("Tanh", ops.input(2, 3, 21, 6))
    scores = ops("Div", ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2])), ops.const(2.2))
    mask = ops("Mul", ops("Sigmoid", ops.input(2, 1, 1, 21)), ops.const(-20.0))
    y = ops("MatMul", ops("Softmax", ops("Add", scores, mask), axis=-1), v)
    ops.output(ops("Relu", y))
    ops.check(device, preset)
    assert ops.kernels.count("attention") == 1
    assert "softmax" not in ops.kernels
