"""Products by weights in 2, 4 and 8 bits, beside onnxruntime's."""

import ml_dtypes
import numpy as np
import pytest

from tests.host.run_op import Ops

pytestmark = pytest.mark.operator

DOMAIN = "com.microsoft"
FEW = 16
"""Tokens of a product, at most, whose weights each thread opens by itself."""


def product(
    ops: Ops,
    x: str,
    k: int,
    n: int,
    *,
    block: int = 32,
    zeros: str = "",
    seed: int = 0,
    bits: int = 4,
) -> str:
    """A product by random weights; `zeros` are absent, `packed` or `float`."""
    random = np.random.default_rng(seed)
    blocks, middle = -(-k // block), 1 << (bits - 1)
    operands = [
        x,
        ops.const(random.integers(0, 256, (n, blocks, block * bits // 8)), np.uint8),
        ops.const(random.uniform(0.08, 0.24, (n, blocks)) / middle),
    ]
    if zeros == "packed":
        operands.append(ops.const(random.integers(0, 256, (n, -(-blocks * bits // 8))), np.uint8))
    if zeros == "float":
        operands.append(ops.const(random.uniform(0.5, 1.5, (n, blocks)) * middle))
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": 1}
    return ops("MatMulNBits", *operands, domain=DOMAIN, **attrs)


@pytest.mark.parametrize("bits", [2, 8])
@pytest.mark.parametrize("preset", ["fp32", "fp16"])
def test_products_of_2_and_of_8_bits(ops, device, preset, bits):
    cases = [
        ((1, 1, 96), 42, 32, ""),
        ((13, 80), 7, 16, "packed"),
        ((1, 19, 144), 33, 64, "float" if bits < 8 else "packed"),  # onnxruntime has no others
        ((18, 64), 24, 256, "packed"),
    ]
    for number, (shape, n, block, zeros) in enumerate(cases):
        x = ops.input(*shape)
        y = product(ops, x, shape[-1], n, block=block, zeros=zeros, seed=number, bits=bits)
        ops.output(ops("Add", y, ops.weight(n)))
    ops.check(device, preset)
    assert ops.kernels.count("n_bits") == ops.kernels.count("n_bits_matrix") == 2, ops.kernels
    assert not ops.fallbacks


def test_products_of_4_bits(ops, device, preset):
    shapes = [
        ((1, 1, 64), 96, 32, ""),
        ((1, 1, 40), 7, 16, "packed"),
        ((5, 72), 33, 32, "float"),
        ((2, 3, 3, 64), 50, 64, "packed"),
        ((1, 17, 128), 21, 128, ""),
        ((1, 130, 272), 70, 16, "packed"),
        ((9, 72), 40, 256, ""),
    ]
    for number, (shape, n, block, zeros) in enumerate(shapes):
        x = ops.input(*shape)
        y = product(ops, x, shape[-1], n, block=block, zeros=zeros, seed=number)
        ops.output(ops("Add", y, ops.weight(n)))
    ops.check(device, preset)
    of_many = sum(int(np.prod(shape[:-1])) > FEW for shape, *_ in shapes)
    assert ops.kernels.count("n_bits_matrix") == of_many, ops.kernels
    assert ops.kernels.count("n_bits") == len(shapes) - of_many, ops.kernels
    assert not ops.fallbacks


def test_lanes_beyond_the_last_output_are_zero(ops, device):
    """What follows sums them up."""
    y = product(ops, ops.input(3, 24), 24, 10, block=16, zeros="packed")
    ops.output(ops("MatMul", ops("Exp", y), ops.weight(10, 6)))
    ops.check(device, "fp32")


def test_what_the_kernel_does_not_cover_is_opened(ops, device):
    """An odd number of inputs is no whole number of words."""
    ops.output(product(ops, ops.input(3, 39), 39, 10, block=16))
    ops.check(device, "fp32")
    assert "n_bits" not in ops.kernels


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("kind", ["int4", "uint4", "uint4 with zeros"])
def test_products_that_a_node_opens_stay_in_4_bits(device, kind, turned):
    """As files for runtimes without an operator for them are written (`use_qdq`)."""
    ops = Ops(opset=21)
    random = np.random.default_rng(3)
    k, n, block = 64, 24, 32
    low, high = (-8, 8) if kind == "int4" else (0, 16)
    dtype = np.dtype(getattr(ml_dtypes, kind.removesuffix(" with zeros")))
    shape, axis = ((n, k), 1) if turned else ((k, n), 0)
    scales = (n, k // block) if turned else (k // block, n)
    operands = [
        ops.const(random.integers(low, high, shape), dtype),
        ops.const(random.uniform(0.01, 0.03, scales)),
    ]
    if "zeros" in kind:
        operands.append(ops.const(random.integers(low, high, scales), dtype))
    weights = ops("DequantizeLinear", *operands, axis=axis, block_size=block)
    if turned:
        weights = ops("Transpose", weights, perm=[1, 0])
    ops.output(ops("MatMul", ops.input(1, 3, k), weights))
    ops.check(device, "fp32")
    assert ops.kernels.count("n_bits") == 1, ops.kernels


@pytest.mark.parametrize("kind", ["uint8", "uint8 in 8 bits", "int4", "uint4"])
@pytest.mark.parametrize("zeros", [False, True])
def test_tables_in_blocks(device, kind, zeros):
    ops = Ops(opset=21)
    random = np.random.default_rng(4)
    rows, depth, block, bits = 11, 64, 32, 8 if "in 8" in kind else 4
    dtype = np.dtype(getattr(ml_dtypes, kind)) if kind.endswith("int4") else np.dtype(np.uint8)
    low, high = {"int4": (-8, 8), "uint4": (0, 16)}.get(kind, (0, 256))
    packs = 2 if kind == "uint8" else 1
    operands = [
        ops.const(random.integers(low, high, (rows, depth // packs)), dtype),
        ops.const(np.array([[3, 0, 10]]), np.int64),
        ops.const(random.uniform(0.01, 0.03, (rows, depth // block))),
    ]
    if zeros:
        operands.append(
            ops.const(random.integers(low, high, (rows, depth // block // packs)), dtype)
        )
    attrs = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    table = ops("GatherBlockQuantized", *operands, domain=DOMAIN, **attrs)
    ops.output(ops("Add", table, ops.input(1, 3, depth)))
    ops.check(device, "fp32")


@pytest.mark.parametrize("preset", ["fp32", "mixed", "fp16"])
def test_products_of_few_tokens_take_in_norms_and_gates(ops, device, preset):
    for tokens in (1, 12, FEW + 4):
        x = ops.input(1, tokens, 64)
        gains = ops.const(np.linspace(0.5, 1.5, 64))
        normed = ops("SimplifiedLayerNormalization", x, gains, axis=-1, epsilon=1e-5)
        gate = product(ops, normed, 64, 40, zeros="packed", seed=1)
        up = product(ops, normed, 64, 40, zeros="packed", seed=2)
        gated = ops("Mul", ops("Mul", gate, ops("Sigmoid", gate)), up)
        ops.output(ops("Add", product(ops, gated, 40, 24, seed=3, block=16), ops.weight(24)))
    ops.check(device, preset)
    assert ops.kernels.count("n_bits") == 2 * 2, ops.kernels
    assert ops.kernels.count("n_bits_matrix") == 3, ops.kernels
    assert ops.kernels.count("rms_norm") == 1, ops.kernels
