"""Depthwise convolutions of any window, sixteen channels at a time."""

from __future__ import annotations

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.kernel import Array, Kernel
from adrenoc.firmware.mcu.neon.depthwise_code import CHANNELS, DotWalk, ProductWalk, WindowWalk
from adrenoc.firmware.mcu.neon.store import Stored, pack_constants
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Depthwise

_GROUP = 16
_MOST_TAPS = 128
"""As c/neon_depthwise.c has it."""


def neon_depthwise(operator: Depthwise, network: Network) -> Kernel:
    """Return the kernel of a depthwise convolution.

    Raises:
        RefusedError: its window, channels or rule are not covered.
    """
    window, channels = operator.window, operator.weights.shape[2]
    _, height, width, depth = network.shape4(operator.source)
    _, out_height, out_width, _ = network.shape4(operator.result)
    if depth != channels:
        raise RefusedError(f"{channels} channels of {depth}")
    if operator.weights.shape[0] * operator.weights.shape[1] > _MOST_TAPS:
        raise RefusedError(f"a window of {list(window.kernel)}")
    rule = pack_constants(operator)
    if rule.store.kind == "double":
        raise RefusedError("sums that are scaled in float64")
    numbers = {
        "in_height": height,
        "in_width": width,
        "channels": channels,
        "out_height": out_height,
        "out_width": out_width,
        **window.steps(),
        "dilation_y": window.dilations[0],
        "dilation_x": window.dilations[1],
        "top": window.top,
        "left": window.left,
        "careful": int((operator.weights == -128).any()),
    }
    bias, constants = rule.pad_channels(_GROUP)
    zeros = np.full(channels, operator.zero_in, np.int8)
    walks = _walks(operator, network, rule)
    arrays = (
        Array(suffix="weights", ctype="int8_t", values=operator.weights),
        Array(suffix="zeros", ctype="int8_t", values=zeros),
        Array(suffix="bias", ctype="int32_t", values=bias),
        Array(suffix="constants", ctype="int32_t", values=constants),
        *(
            Array(suffix=f"{walk.way}_blocks", ctype="int8_t", values=_blocks(operator, rule, walk))
            for walk in walks
        ),
    )
    return Kernel(
        call="run_neon_depthwise(environment, &{layer}, {in0}, {out});",
        how=("columns of 3x3, 8" if walks else "16") + f" channels at once{rule.store.how}",
        snippets=("requantise", "environment", "neon_runs", "neon_store", "neon_depthwise"),
        texts=tuple(walk.code() for walk in walks),
        arrays=arrays,
        struct="neon_depthwise_layer",
        fields=(
            *((key, str(value)) for key, value in numbers.items()),
            *rule.store.fields,
            *((array.suffix, "{layer}_" + array.suffix) for array in arrays),
            *((f"{walk.way}_code", f"ARM_CODE({walk.name})") for walk in walks),
        ),
    )


def _walks(operator: Depthwise, network: Network, rule: Stored) -> tuple[WindowWalk, ...]:
    """Return the functions for windows of 3x3, where they cover this one."""
    window, channels = operator.window, operator.weights.shape[2]
    _, _, width, _ = network.shape4(operator.source)
    _, _, out_width, _ = network.shape4(operator.result)
    if window.kernel != (3, 3) or window.dilations != (1, 1) or channels % CHANNELS:
        return ()
    if window.strides not in ((1, 1), (2, 2)):
        return ()
    stride = window.strides[0]
    beyond = max(0, (out_width - 1) * stride + 3 - window.left - width)
    # With a stride of two, only the last column of the last output may lie outside.
    inside = window.left <= 3 - stride and beyond <= 3 - stride
    if not inside or out_width * stride < 3 or width < 3:
        return ()
    careful = bool((operator.weights == -128).any())
    return (
        ProductWalk(stride=stride, store=rule.store, careful=careful),
        DotWalk(stride=stride, store=rule.store),
    )


def _blocks(operator: Depthwise, rule: Stored, walk: WindowWalk) -> np.ndarray:
    """Of eight channels: the window's columns, with four bytes a channel for SDOT; what follows."""
    bias, constants = rule.pad_channels(CHANNELS)
    taps = operator.weights.transpose(2, 1, 0).reshape(-1, CHANNELS, 3, 3)
    if isinstance(walk, DotWalk):
        grown = np.zeros((*taps.shape[:3], 4), np.int8)
        grown[..., :3] = taps
        ordered = grown.transpose(0, 2, 1, 3).reshape(len(taps), -1)
    else:
        ordered = np.zeros((len(taps), walk.weight_bytes), np.int8)
        ordered[:, : taps[0].size] = taps.transpose(0, 2, 3, 1).reshape(len(taps), -1)
    words = [part.reshape(len(taps), -1).astype("<i4") for part in (bias, constants)]
    return np.concatenate([ordered, *(part.view(np.int8) for part in words)], 1)
