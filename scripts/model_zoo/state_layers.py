"""Layers of decoders that carry a state from token to token, as genai's builder writes them.

A short convolution (LFM2): a gate, a depthwise convolution over the last tokens, another gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

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
    taps = decoder.random.uniform(-1, 1, (width, 1, s.conv_taps))
    decoder.contrib(
        "CausalConvWithState",
        [f"{name}/gated", decoder.floats(f"{name}/weight", taps), "", f"past.{layer}.conv"],
        [f"{name}/mixed", f"present.{layer}.conv"],
        activation="none",
        ndim=1,
    )
    decoder.node("Mul", [parts[1], f"{name}/mixed"], [f"{name}/out"])
    decoder.node("Transpose", [f"{name}/out"], [f"{name}/back"], perm=[0, 2, 1])
    return decoder.product(
        f"{name}/out_proj", f"{name}/back", width, width, gain=0.5, out=f"{name}/out_proj/out"
    )


def list_state_ports(decoder: Decoder, layer: int) -> list[tuple[TensorProto, TensorProto]]:
    """The inputs and outputs that are states of a layer."""
    s = decoder.shape
    element = helper.np_dtype_to_tensor_dtype(s.float_type)
    extents = ["batch_size", s.hidden, s.conv_taps - 1]
    value = helper.make_tensor_value_info
    return [
        (
            value(f"past.{layer}.conv", element, extents),
            value(f"present.{layer}.conv", element, extents),
        )
    ]
