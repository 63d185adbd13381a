"""Products of every rank and of activations, and attention in one kernel."""

from collections.abc import Iterator

import numpy as np
import pytest

from adrenoc.kernels.families.attention import attention
from adrenoc.kernels.families.attention.attention import AttentionWork
from adrenoc.kernels.families.attention.attention_walk import AttentionTile
from tests.host.run_op import Ops

pytestmark = pytest.mark.operator


def test_dense(ops, device, preset):
    for shape, columns in (((1, 7), 10), ((5, 30), 3), ((2, 5, 6), 7), ((2, 3, 4, 5), 6)):
        y = ops("MatMul", ops.input(*shape), ops.weight(shape[-1], columns))
        ops.output(ops("Relu", ops("Add", y, ops.weight(columns))))
    x = ops.input(4, 9)
    ops.output(ops("Gemm", x, ops.weight(5, 9), ops.weight(5), transB=1, alpha=0.5, beta=2.0))
    ops.check(device, preset)
    assert ops.fallbacks == []


def test_tokens_that_come_first(ops, device, preset):
    """As torch's attention has them: [tokens, 1, depth], or more axes of one between."""
    for *front, depth in ((19, 1, 30), (3, 5, 1, 21), (11, 1, 1, 6), (1, 13, 1, 8)):
        x = ops("Tanh", ops.input(*front, depth))
        y = ops("Add", ops("MatMul", x, ops.weight(depth, 37)), ops.weight(37))
        ops.output(ops("Add", ops("Relu", y), ops("Tanh", ops.input(*front, 37))))
    batches = ops("MatMul", ops("Relu", ops.input(12, 1, 9)), ops("Relu", ops.input(12, 9, 5)))
    ops.output(ops("MatMul", batches, ops.weight(5, 14)))
    ops.check(device, preset)
    assert ops.fallbacks == []


def test_two_activations(ops, device, preset):
    for a, b in (
        ((5, 6), (6, 7)),
        ((3, 5, 7), (3, 7, 2)),
        ((2, 3, 4, 5), (2, 3, 5, 6)),
        ((2, 3, 4, 5), (1, 3, 5, 6)),
        ((4, 5), (2, 5, 3)),
    ):
        ops.output(ops("MatMul", ops("Relu", ops.input(*a)), ops("Sigmoid", ops.input(*b))))
    ops.check(device, preset)
    assert ops.fallbacks == []


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
def test_batches_without_a_kernel_are_a_loop_nest(ops, device, preset):
    ops.output(ops("MatMul", ops.input(3, 4, 5), ops.input(2, 3, 5, 6)))
    ops.output(ops("MatMul", ops.input(5), ops.input(2, 5, 6)))
    ops.check(device, preset)
    assert len(ops.fallbacks) == 2


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_attention(ops, device, preset):
    """Heads split by reshape and transpose, a transposed key, softmax, heads joined."""
    x = ops.input(2, 9, 12)
    heads = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        split = ops("Reshape", ops("MatMul", x, ops.weight(12, 12)), ops.ints(2, 9, 2, 6))
        heads.append(ops("Transpose", split, perm=perm))
    scores = ops("Mul", ops("MatMul", heads[0], heads[1]), ops.const(0.4))
    mixed = ops("MatMul", ops("Softmax", scores, axis=-1), heads[2])
    joined = ops("Reshape", ops("Transpose", mixed, perm=[0, 2, 1, 3]), ops.ints(2, 9, 12))
    ops.output(ops("Add", x, ops("MatMul", joined, ops.weight(12, 12))))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_product_of_a_tensor_with_itself(ops, device, preset):
    """With maps behind it, which read more tensors, and the same one."""
    x = ops.input(2, 8, 8)
    scaled = ops("Mul", ops("MatMul", x, x), ops.const(0.5))
    ops.output(ops("Add", scaled, ops.weight(8, 8)))
    h = ops("Relu", ops.input(3, 6, 6))
    ops.output(ops("Add", ops("Add", ops("MatMul", h, h), h), ops.weight(3, 6, 6)))
    ops.check(device, preset)


def test_sums_shared_by_threads(ops, device, preset):
    """Inputs and outputs that are no multiple of four, of the team, or of the work-group."""
    for rows, depth, columns in ((1, 803, 130), (3, 129, 9), (8, 64, 50), (1, 5, 1030)):
        x = ops("Tanh", ops.input(rows, depth))
        y = ops("Add", ops("MatMul", x, ops.weight(depth, columns)), ops.weight(columns))
        ops.output(ops("Relu", y))
    ops.check(device, preset)
    assert ops.kernels.count("gemv") == 4


def test_squeeze_and_excite(ops, device, preset):
    """1 x 1 convolutions of one pixel; padding lanes of 37 channels must stay zero."""
    x = ops.input(2, 37, 6, 5)
    s = ops("GlobalAveragePool", ops("Relu", x))
    s = ops("Relu", ops("Conv", s, ops.weight(10, 37, 1, 1), ops.weight(10)))
    s = ops("HardSigmoid", ops("Conv", s, ops.weight(37, 10, 1, 1), ops.weight(37)))
    ops.output(ops("Mul", x, s), ops("ReduceSum", s, ops.ints(1), keepdims=1))
    ops.check(device, preset)
    assert ops.kernels.count("gemv") == 2


def test_nine_vectors_are_a_product_of_matrices(ops, device):
    ops.output(ops("MatMul", ops.input(9, 64), ops.weight(64, 20)))
    ops.check(device, "fp32")
    assert "gemv" not in ops.kernels


def _gated(ops: Ops, tokens: int, depth: int) -> None:
    """A decoder's MLP: a norm, a gate beside a product, and a residual sum."""
    x, gains = ops.input(1, tokens, depth), ops.weight(depth, around=1.0)
    normed = ops("SimplifiedLayerNormalization", x, gains, axis=-1, epsilon=1e-5)
    gate = ops("MatMul", normed, ops.weight(depth, 42))
    up = ops("MatMul", normed, ops.weight(depth, 42))
    gated = ops("Mul", ops("Mul", gate, ops("Sigmoid", gate)), up)
    ops.output(ops("Add", ops("MatMul", gated, ops.weight(42, depth)), x))


@pytest.mark.parametrize("tokens", (1, 3, 8))
def test_a_norm_and_a_gate_take_no_kernels(ops, device, preset, tokens):
    _gated(ops, tokens, 68)
    ops.check(device, preset)
    assert ops.kernels == ["gemv", "gemv"]


@pytest.mark.parametrize("tokens, depth", ((9, 68), (1, 67)))
def test_norms_of_many_tokens_or_parts_of_blocks_stay(ops, device, tokens, depth):
    _gated(ops, tokens, depth)
    ops.check(device, "fp32")
    assert "rms_norm" in ops.kernels


def test_a_norm_that_is_added_to_its_product_stays(ops, device):
    """The product's epilogue reads it: it is needed beside what is multiplied."""
    norm = ops(
        "SimplifiedLayerNormalization",
        *(ops.input(1, 3, 64), ops.weight(64, around=1.0)),
        axis=-1,
        epsilon=1e-5,
    )
    ops.output(ops("Add", ops("MatMul", norm, ops.weight(64, 64)), norm))
    ops.check(device, "fp32")
    assert ops.kernels == ["rms_norm", "gemv"]


def test_two_norms_of_one_tensor_are_no_gate(ops, device):
    """Products of other gains are apart, and each has its norm."""
    x = ops.input(1, 2, 64)
    a, b = (
        ops("SimplifiedLayerNormalization", x, ops.weight(64, around=1.0), axis=-1, epsilon=1e-5)
        for _ in range(2)
    )
    gate = ops("Sigmoid", ops("MatMul", a, ops.weight(64, 20)))
    ops.output(ops("Mul", gate, ops("MatMul", b, ops.weight(64, 20))))
    ops.check(device, "fp32")
    assert ops.kernels == ["gemv", "gemv"]


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


@pytest.mark.parametrize("rows, keys, channels", ((9, 69, 10), (37, 130, 40), (64, 16, 64)))
def test_two_sets_of_rows_a_thread(ops, device, monkeypatch, preset, rows, keys, channels):
    """Threads of eight rows, the last of which are not there; scores with a mask."""
    every = attention.candidates

    def candidates(work: AttentionWork, *others) -> Iterator[AttentionTile]:
        yield from (tile for tile in every(work, *others) if tile.row_sets == 2)

    monkeypatch.setattr(attention, "candidates", candidates)
    q, k = (ops("Tanh", ops.input(1, 2, n, channels)) for n in (rows, keys))
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    scores = ops("Add", ops("Mul", scores, ops.const(0.3)), ops.input(1, 1, rows, keys))
    v = ops("Tanh", ops.input(1, 2, keys, channels))
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
