"""Mixtures of experts in few bits and as floats, beside onnxruntime's QMoE and MoE."""

from typing import Any

import numpy as np
import pytest
from model_zoo.few_bits import quantise

from tests.host.run_op import Ops

pytestmark = pytest.mark.operator

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
