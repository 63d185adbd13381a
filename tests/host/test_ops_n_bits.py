"""Products by weights in 2, 4 and 8 bits, and mixtures of experts, beside onnxruntime's."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from model_zoo.few_bits import quantise

from tests.host.run_op import Ops

pytestmark = pytest.mark.operator

DOMAIN = "com.microsoft"
FEW = 16
"""Tokens of a product, at most, whose weights each thread opens by itself."""


def product(
    ops: Ops, x: str, k: int, n: int, *, block: int = 32, zeros: str = "", seed: int = 0, bits=4
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


def _add_products(ops: Ops, cases: Sequence[tuple], bits: int = 4) -> None:
    for number, (shape, n, block, zeros) in enumerate(cases):
        x = ops.input(*shape)
        y = product(ops, x, shape[-1], n, block=block, zeros=zeros, seed=number, bits=bits)
        ops.output(ops("Add", y, ops.weight(n)))


@pytest.mark.parametrize("bits", [2, 8])
@pytest.mark.parametrize("preset", ["fp32", "fp16"])
def test_products_of_2_and_of_8_bits(ops, device, preset, bits):
    cases = [
        ((1, 1, 96), 42, 32, ""),
        ((13, 80), 7, 16, "packed"),
        ((1, 19, 144), 33, 64, "float" if bits < 8 else "packed"),  # onnxruntime has no others
        ((18, 64), 24, 256, "packed"),
    ]
    _add_products(ops, cases, bits)
    ops.check(device, preset)
    assert ops.kernels.count("n_bits") == ops.kernels.count("n_bits_matrix") == 2, ops.kernels
    assert not ops.fallbacks


def test_products_of_4_bits(ops, device, preset):
    cases = [
        ((1, 1, 64), 96, 32, ""),
        ((1, 1, 40), 7, 16, "packed"),
        ((5, 72), 33, 32, "float"),
        ((2, 3, 3, 64), 50, 64, "packed"),
        ((1, 17, 128), 21, 128, ""),
        ((1, 130, 272), 70, 16, "packed"),
        ((9, 72), 40, 256, ""),
    ]
    _add_products(ops, cases)
    ops.check(device, preset)
    of_many = sum(int(np.prod(shape[:-1])) > FEW for shape, *_ in cases)
    assert ops.kernels.count("n_bits_matrix") == of_many, ops.kernels
    assert ops.kernels.count("n_bits") == len(cases) - of_many, ops.kernels
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


EXPERTS, HIDDEN, WIDE, TOKENS = 4, 32, 64, 3

CASES: dict[str, dict[str, Any]] = {
    "gates beside each other, biases": {
        **{"activation_type": "swiglu", "swiglu_fusion": 1, "swiglu_limit": 0.5},
        **{"activation_alpha": 1.702, "activation_beta": 1.0, "biased": True, "k": 2},
    },
    "shares from elsewhere": {"activation_type": "silu", "routed": True, "k": 3},
    "shares from elsewhere, normed": {
        **{"activation_type": "identity", "routed": True, "k": 2, "normalize_routing_weights": 1}
    },
    "zero points": {"activation_type": "relu", "zeros": True, "k": 2, "block": 16},
    "one scale a row": {"activation_type": "relu", "block": 0, "k": 1, "bits": 8},
    "two bits": {"activation_type": "relu", "bits": 2, "k": 2},
    "gelu": {"activation_type": "gelu", "k": 2},
}


FLOAT_CASES: dict[str, dict[str, Any]] = {
    "gates beside each other, biases": {
        **{"activation_type": "swiglu", "swiglu_fusion": 1, "swiglu_limit": 0.5, "biased": True},
        **{"activation_alpha": 1.702, "activation_beta": 1.0, "k": 2},
        "normalize_routing_weights": 1,
    },
    "shares of all scores": {"activation_type": "silu", "k": 2},
    "one expert": {"activation_type": "relu", "k": 1, "biased": True},
    "one expert, whole": {"activation_type": "relu", "k": 1, "normalize_routing_weights": 1},
    "gelu": {"activation_type": "gelu", "k": 3, "normalize_routing_weights": 1},
    "packed tokens": {"activation_type": "identity", "k": 2, "packed": True},
}


def mix_float_experts(ops: Ops, *, biased: bool = False, packed: bool = False, **attrs) -> None:
    """One MoE of three tokens."""
    fusion = 2 if attrs.get("swiglu_fusion") else 1
    shape = (TOKENS, HIDDEN) if packed else (1, TOKENS, HIDDEN)
    inputs = [ops("Relu", ops.input(*shape)), ops.input(TOKENS, EXPERTS)]
    for outputs, width in ((fusion * WIDE, HIDDEN), (HIDDEN, WIDE)):
        inputs.append(ops.weight(EXPERTS, outputs, width))
        inputs.append(ops.weight(EXPERTS, outputs) if biased else "")
    ops.output(ops("MoE", *inputs, domain="com.microsoft", **attrs))


def mix_experts(
    ops: Ops,
    *,
    bits: int = 4,
    block: int = 32,
    biased: bool = False,
    routed: bool = False,
    zeros: bool = False,
    **attrs,
) -> None:
    """One QMoE of three tokens."""
    fusion = 2 if attrs.get("swiglu_fusion") else 1
    inputs = [ops("Relu", ops.input(1, TOKENS, HIDDEN)), ops.input(TOKENS, EXPERTS)]
    points = []
    for outputs, width in ((fusion * WIDE, HIDDEN), (HIDDEN, WIDE)):
        *held, zero = weights(ops, outputs, width, bits=bits, block=block, zeros=zeros)
        inputs += [*held, ops.weight(EXPERTS, outputs) if biased else ""]
        points.append(zero)
    if zeros:
        inputs += [*[""] * (11 - len(inputs)), *points]
    if routed:
        inputs += [*[""] * (14 - len(inputs)), ops.input(TOKENS, EXPERTS, low=0.1)]
    if block:
        attrs["block_size"] = block
    ops.output(ops("QMoE", *inputs, domain="com.microsoft", expert_weight_bits=bits, **attrs))


def weights(ops: Ops, outputs: int, width: int, *, bits: int, block: int, zeros: bool) -> list[str]:
    """Bytes, scales and zero points of all experts; these are empty where there are none."""
    random = np.random.default_rng(outputs + bits)
    parts = [
        quantise(random.standard_normal((outputs, width)), block or width, zeros=zeros, bits=bits)
        for _ in range(EXPERTS)
    ]
    packed = np.stack([part[0].reshape(outputs, -1) for part in parts])
    scales = np.stack([part[1] if block else part[1][:, 0] for part in parts])
    held = [ops.const(packed, np.uint8), ops.const(scales, np.float32)]
    points = [part[2] for part in parts if part[2] is not None]
    return [*held, ops.const(np.stack(points), np.uint8) if points else ""]


@pytest.mark.parametrize("preset", ["fp32", "mixed"])
def test_mixtures_of_experts(ops, device, preset):
    for case in CASES.values():
        mix_experts(ops, **case)
    ops.check(device, preset)
    assert ops.kernels.count("n_bits") >= 2 * len(CASES)


@pytest.mark.parametrize("preset", ["fp32", "mixed"])
def test_mixtures_of_experts_of_floats(ops, device, preset):
    for case in FLOAT_CASES.values():
        mix_float_experts(ops, **case)
    ops.check(device, preset)
