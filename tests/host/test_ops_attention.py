"""Attention in one kernel: joint and separate projections, masks, sizes that divide nothing."""

from collections.abc import Iterator

import numpy as np
import pytest

from adrenoc.kernels.families.attention import attention
from adrenoc.kernels.families.attention.attention import AttentionWork
from adrenoc.kernels.families.attention.attention_walk import AttentionTile
from tests.host.run_op import Ops

pytestmark = pytest.mark.operator


def joint_projection(ops: Ops, x: str, tokens: int, heads: int, width: int) -> list[str]:
    """q, k and v of one product, as vision transformers split them."""
    dim = heads * width
    qkv = ops("Add", ops("MatMul", x, ops.weight(dim, 3 * dim)), ops.weight(3 * dim))
    split = ops("Reshape", qkv, ops.ints(1, tokens, 3, heads, width))
    moved = ops("Transpose", split, perm=[2, 0, 3, 1, 4])
    return [ops("Gather", moved, ops.const(i, np.int64), axis=0) for i in range(3)]


def joined(ops: Ops, x: str, tokens: int, dim: int) -> str:
    return ops("Reshape", ops("Transpose", x, perm=[0, 2, 1, 3]), ops.ints(1, tokens, dim))


@pytest.mark.parametrize("sizes", ((9, 2, 8), (37, 3, 16), (69, 1, 64)))
def test_joint_projection(ops, device, preset, sizes):
    tokens, heads, width = sizes
    x = ops.input(1, tokens, heads * width)
    q, k, v = joint_projection(ops, x, tokens, heads, width)
    q = ops("Mul", q, ops.const(width**-0.5))
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    y = ops("MatMul", ops("Softmax", scores, axis=-1), v)
    ops.output(ops("Add", x, joined(ops, y, tokens, heads * width)))
    ops.check(device, preset)
    assert ops.kernels.count("attention") == 1
    assert len(ops.kernels) <= 3, "heads are split and joined by a kernel of their own"


def test_mask_and_other_widths(ops, device, preset):
    """Tensors of their own, six channels of values, five of depth, a mask over keys."""
    q, k = ops("Tanh", ops.input(2, 3, 7, 5)), ops("Tanh", ops.input(2, 3, 21, 5))
    v = ops("Tanh", ops.input(2, 3, 21, 6))
    scores = ops("Div", ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2])), ops.const(2.2))
    mask = ops("Mul", ops("Sigmoid", ops.input(2, 1, 1, 21)), ops.const(-20.0))
    y = ops("MatMul", ops("Softmax", ops("Add", scores, mask), axis=-1), v)
    ops.output(ops("Relu", y))
    ops.check(device, preset)
    assert ops.kernels.count("attention") == 1
    assert "softmax" not in ops.kernels


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
def test_heads_in_one_batch_axis(ops, device, preset):
    """Tokens first and heads along the batch, as torch's multi-head attention is exported."""
    heads = []
    for perm in ([1, 0, 2], [1, 2, 0], [1, 0, 2]):
        y = ops("MatMul", ops.input(11, 1, 24), ops.weight(24, 24))
        heads.append(ops("Transpose", ops("Reshape", y, ops.ints(11, 3, 8)), perm=perm))
    scores = ops("MatMul", ops("Mul", heads[0], ops.const(0.35)), heads[1])
    y = ops("MatMul", ops("Softmax", scores, axis=-1), heads[2])
    y = ops("Reshape", ops("Transpose", y, perm=[1, 0, 2]), ops.ints(11, 1, 24))
    ops.output(ops("MatMul", y, ops.weight(24, 10)))
    ops.check(device, preset)
    assert ops.kernels.count("attention") == 1
    assert "map" not in ops.kernels[3:]


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_windows(ops, device, preset):
    """Windows as batches: a bias for each head and a mask for each window, as in Swin."""
    windows, tokens, heads, width = 3, 10, 2, 8
    x = ops.input(windows, tokens, heads * width)
    qkv = ops("MatMul", x, ops.weight(heads * width, 3 * heads * width))
    split = ops("Reshape", qkv, ops.ints(windows, tokens, 3, heads, width))
    moved = ops("Transpose", split, perm=[2, 0, 3, 1, 4])
    q, k, v = (ops("Gather", moved, ops.const(i, np.int64), axis=0) for i in range(3))
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    scores = ops("Add", scores, ops.weight(1, heads, tokens, tokens))
    scores = ops("Reshape", scores, ops.ints(1, windows, heads, tokens, tokens))
    scores = ops("Add", scores, ops.weight(1, windows, 1, tokens, tokens))
    scores = ops("Reshape", scores, ops.ints(windows, heads, tokens, tokens))
    y = ops("Transpose", ops("MatMul", ops("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    ops.output(ops("Relu", ops("Reshape", y, ops.ints(windows, tokens, heads * width))))
    ops.check(device, preset)
    assert ops.kernels.count("attention") == 1
    assert "softmax" not in ops.kernels


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_channels_before_positions(ops, device, preset):
    """Values times turned weights, of feature maps: the result's channels are not its last axis."""
    x = ops.input(2, 24, 3, 5)
    split = ops.split(ops("Conv", x, ops.weight(60, 24, 1, 1)), 1, 20, 20, 20)
    q, k, v = (ops("Reshape", part, ops.ints(2, 20, 15)) for part in split)
    scores = ops("MatMul", ops("Transpose", q, perm=[0, 2, 1]), k)
    weights = ops("Softmax", ops("Mul", scores, ops.const(0.2)), axis=-1)
    y = ops("MatMul", v, ops("Transpose", weights, perm=[0, 2, 1]))
    y = ops("Reshape", y, ops.ints(2, 20, 3, 5))
    ops.output(ops("Conv", y, ops.weight(24, 20, 1, 1)))
    ops.check(device, preset)
    assert ops.kernels.count("attention") == 1
    assert "softmax" not in ops.kernels


@pytest.mark.parametrize("hidden", (-np.inf, float(np.finfo(np.float32).min)))
def test_no_key_of_the_first_runs_is_seen(ops, device, preset, hidden):
    """Padding on the left: the first keys, more than a run of the softmax, have no score at all."""
    q, k = ops("Tanh", ops.input(1, 2, 9, 8)), ops("Tanh", ops.input(1, 2, 8, 300))
    v, mask = ops("Tanh", ops.input(1, 2, 300, 8)), ops.input(1, 1, 1, 300)
    ops.given(mask, np.where(np.arange(300) < 200, hidden, 0).astype(np.float32)[None, None, None])
    scores = ops("Add", ops("MatMul", q, k), mask)
    ops.output(ops("MatMul", ops("Softmax", scores, axis=-1), v))
    ops.check(device, preset)
    assert ops.kernels.count("attention") == 1


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
@pytest.mark.parametrize("keys, parts", ((69, 2), (144, 4), (300, 4), (89, 8)))
def test_parts_of_the_keys(ops, device, monkeypatch, preset, parts, keys):
    """Threads for parts of the keys, with runs that end behind the last one, merged at the end."""
    every = attention.candidates

    def candidates(work: AttentionWork, *others) -> Iterator[AttentionTile]:
        yield from (tile for tile in every(work, *others) if tile.parts == parts)

    monkeypatch.setattr(attention, "candidates", candidates)
    q, k = ops("Tanh", ops.input(2, 2, 9, 12)), ops("Tanh", ops.input(2, 2, 12, keys))
    scores = ops("Mul", ops("MatMul", q, k), ops.const(3.0))
    scores = ops("Add", scores, ops.input(1, 1, 1, keys))
    v = ops("Tanh", ops.input(2, 2, keys, 10))
    ops.output(ops("MatMul", ops("Softmax", scores, axis=-1), v))
    ops.check(device, preset)
    assert ops.kernels.count("attention") == 1


def test_what_is_no_attention_stays_in_parts(ops, device):
    """Scores that are an output too; a softmax along the queries; values too wide."""
    q, k = ops("Tanh", ops.input(1, 2, 6, 8)), ops("Tanh", ops.input(1, 2, 8, 7))
    v = ops("Tanh", ops.input(1, 2, 7, 8))
    seen = ops("MatMul", q, k)
    ops.output(seen, ops("MatMul", ops("Softmax", seen, axis=-1), v))
    ops.output(ops("MatMul", ops("Softmax", ops("MatMul", q, k), axis=-2), v))
    wide = ops("Tanh", ops.input(1, 2, 7, 260))
    ops.output(ops("MatMul", ops("Softmax", ops("MatMul", q, k), axis=-1), wide))
    ops.check(device, "fp32")
    assert "attention" not in ops.kernels
    reasons = [d.reason for d in ops.decisions if d.taken == "attention in parts"]
    assert len(reasons) == 3
    assert any("read elsewhere" in reason for reason in reasons)
    assert any("along the keys" in reason for reason in reasons)
    assert any("expected at most 256" in reason for reason in reasons)


def test_rows_that_local_memory_does_not_hold_stay_in_parts(ops, device):
    deep = ops("Tanh", ops.input(1, 2, 3, 4096)), ops("Tanh", ops.input(1, 2, 4096, 5))
    scores = ops("Mul", ops("MatMul", *deep), ops.const(1 / 64))
    ops.output(ops("MatMul", ops("Softmax", scores, axis=-1), ops("Tanh", ops.input(1, 2, 5, 8))))
    ops.check(device, "fp32")
    assert "attention" not in ops.kernels
    (reason,) = [d.reason for d in ops.decisions if d.taken == "attention in parts"]
    assert "of local memory" in reason
