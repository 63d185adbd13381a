"""Layers of decoders that carry a state from token to token, as genai's builder writes them.

A short convolution (LFM2): a gate, a depthwise convolution over the last tokens, another gate.
Linear attention (Qwen3.5): such a convolution over queries, keys and values, then a matrix a head
that each token changes by the gated delta rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

if TYPE_CHECKING:
    from model_zoo.decoders import Decoder


def add_short_conv(decoder: Decoder, prefix: str, layer: int, x: str) -> str:
    """The nodes of one; the state is what the convolution sees of earlier tokens."""
    s, name = decoder.shape, f"{prefix}/conv"
    width = s.hidden
    decoder.product(f"{name}/in_proj", x, width, 3 * width, gain=1.5, out=f"{name}/in_proj/out")
    decoder.node("Transpose", [f"{name}/in_proj/out"], [f"{name}/turned"], perm=[0, 2, 1])
    sizes = decoder.constant(f"{name}/sizes", np.array([width] * 3, np.int64))
    parts = [f"{name}/{letter}" for letter in "bcx"]
    decoder.node("Split", [f"{name}/turned", sizes], parts, axis=1)
    decoder.node("Mul", [parts[0], parts[2]], [f"{name}/gated"])
    _add_conv(decoder, layer, f"{name}/gated", f"{name}/mixed", width, activation="none")
    decoder.node("Mul", [parts[1], f"{name}/mixed"], [f"{name}/out"])
    decoder.node("Transpose", [f"{name}/out"], [f"{name}/back"], perm=[0, 2, 1])
    return decoder.product(
        f"{name}/out_proj", f"{name}/back", width, width, gain=0.5, out=f"{name}/out_proj/out"
    )


def _add_conv(
    decoder: Decoder, layer: int, x: str, out: str, width: int, *, activation: str
) -> None:
    """A convolution of each channel, over the tokens before too."""
    taps = decoder.random.uniform(-1, 1, (width, 1, decoder.shape.conv_taps))
    decoder.contrib(
        "CausalConvWithState",
        [x, decoder.floats(f"{out}/taps", taps), "", f"past.{layer}.conv"],
        [out, f"present.{layer}.conv"],
        activation=activation,
        ndim=1,
    )


def add_linear_attention(decoder: Decoder, prefix: str, layer: int, x: str) -> str:
    """The nodes of one; twice as many heads of values as of keys."""
    s, name = decoder.shape, f"{prefix}/linear"
    keys, values, head = s.kv_heads, 2 * s.kv_heads, s.head
    widths = [keys * head, keys * head, values * head]
    for part, width in (("qkv", sum(widths)), ("z", values * head), ("a", values), ("b", values)):
        decoder.product(f"{name}/{part}_proj", x, s.hidden, width, out=f"{name}/{part}")
    decoder.node("Transpose", [f"{name}/qkv"], [f"{name}/turned"], perm=[0, 2, 1])
    _add_conv(decoder, layer, f"{name}/turned", f"{name}/mixed", sum(widths), activation="silu")
    decoder.node("Transpose", [f"{name}/mixed"], [f"{name}/back"], perm=[0, 2, 1])
    sizes = decoder.constant(f"{name}/sizes", np.array(widths, np.int64))
    decoder.node("Split", [f"{name}/back", sizes], [f"{name}/{n}" for n in "qkv"], axis=-1)
    apart = decoder.constant(f"{name}/apart", np.array([0, 0, keys, head], np.int64))
    whole = decoder.constant(f"{name}/whole", np.array([0, 0, keys * head], np.int64))
    for part in "qk":
        decoder.node("Reshape", [f"{name}/{part}", apart], [f"{name}/{part}/heads"])
        decoder.node("LpNormalization", [f"{name}/{part}/heads"], [f"{name}/{part}/unit"], p=2)
        decoder.node("Reshape", [f"{name}/{part}/unit", whole], [f"{name}/{part}/normed"])
    bias = decoder.constant(f"{name}/bias", decoder.random.uniform(-3, 0, values).astype("f"))
    falls = decoder.constant(f"{name}/falls", -decoder.random.uniform(0.1, 3, values).astype("f"))
    gates = [f"{name}/decay", f"{name}/beta"]
    decoder.contrib("LinearAttentionGate", [f"{name}/a", bias, falls, f"{name}/b"], gates)
    decoder.contrib(
        "LinearAttention",
        [f"{name}/q/normed", f"{name}/k/normed", f"{name}/v", f"past.{layer}.recurrent", *gates],
        [f"{name}/seen", f"present.{layer}.recurrent"],
        q_num_heads=keys,
        kv_num_heads=values,
        update_rule="gated_delta",
        scale=float(head**-0.5),
    )
    gains = decoder.floats(f"{name}/norm/weight", decoder.gains(head))
    inputs = [f"{name}/seen", gains, f"{name}/z"]
    decoder.contrib("GatedRMSNorm", inputs, [f"{name}/gated"], epsilon=1e-6)
    out = f"{name}/out_proj"
    return decoder.product(
        out, f"{name}/gated", values * head, s.hidden, gain=0.5, out=f"{out}/out"
    )


def list_state_ports(decoder: Decoder, layer: int) -> list[tuple[Any, Any]]:
    """The inputs and outputs that are states of a layer."""
    s = decoder.shape
    element = helper.np_dtype_to_tensor_dtype(s.float_type)
    channels = 4 * s.kv_heads * s.head if s.linear else s.hidden
    states: dict[str, list[str | int]] = {"conv": ["batch_size", channels, s.conv_taps - 1]}
    if s.linear:
        states["recurrent"] = ["batch_size", 2 * s.kv_heads, s.head, s.head]
    value = helper.make_tensor_value_info
    return [
        (
            value(f"past.{layer}.{kind}", element, extents),
            value(f"present.{layer}.{kind}", element, extents),
        )
        for kind, extents in states.items()
    ]
