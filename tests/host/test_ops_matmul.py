"""Products of every rank, of few vectors, and of activations; batches broadcast."""

import pytest

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
