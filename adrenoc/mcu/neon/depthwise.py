"""Depthwise convolutions of any window, sixteen channels at a time."""

from __future__ import annotations

import numpy as np

from adrenoc.mcu.kernel import Array, Kernel
from adrenoc.mcu.neon.store import stored
from adrenoc.mcu.network import Depthwise, Network

_GROUP = 16
_MOST_TAPS = 128
"""As c/neon_depthwise.c has it."""


def neon_depthwise(operator: Depthwise, network: Network) -> Kernel:
    """The kernel of a depthwise convolution.

    Raises:
        NotImplementedError: its window, channels or rule are not covered.
    """
    window, channels = operator.window, operator.weights.shape[2]
    _, height, width, depth = network.shape4(operator.source)
    _, out_height, out_width, _ = network.shape4(operator.result)
    if depth != channels:
        raise NotImplementedError(f"{channels} channels of {depth}")
    if operator.weights.shape[0] * operator.weights.shape[1] > _MOST_TAPS:
        raise NotImplementedError(f"a window of {list(window.kernel)}")
    rule = stored(operator)
    if rule.store.kind == "double":
        raise NotImplementedError("sums that are scaled in float64")
    numbers = {
        "in_height": height,
        "in_width": width,
        "channels": channels,
        "out_height": out_height,
        "out_width": out_width,
        "kernel_height": window.kernel[0],
        "kernel_width": window.kernel[1],
        "stride_y": window.strides[0],
        "stride_x": window.strides[1],
        "dilation_y": window.dilations[0],
        "dilation_x": window.dilations[1],
        "top": window.top,
        "left": window.left,
        "careful": int((operator.weights == -128).any()),
    }
    bias, constants = rule.grown(_GROUP)
    zeros = np.full(channels, operator.zero_in, np.int8)
    arrays = (
        Array(suffix="weights", ctype="int8_t", values=operator.weights),
        Array(suffix="zeros", ctype="int8_t", values=zeros),
        Array(suffix="bias", ctype="int32_t", values=bias),
        Array(suffix="constants", ctype="int32_t", values=constants),
    )
    return Kernel(
        call="run_neon_depthwise(environment, &{layer}, {in0}, {out});",
        how=f"SMULL and SMLAL, 16 channels{rule.store.how}",
        snippets=("requantise", "environment", "neon_runs", "neon_store", "neon_depthwise"),
        arrays=arrays,
        struct="neon_depthwise_layer",
        fields=(
            *((key, str(value)) for key, value in numbers.items()),
            *rule.store.fields,
            *((array.suffix, "{layer}_" + array.suffix) for array in arrays),
        ),
    )
