"""Depthwise 3x3 by strips over its own input, with strides of one or two rows."""

from __future__ import annotations

import numpy as np

from adrenoc.mcu.dsp.constants import Stored, stored
from adrenoc.mcu.dsp.depthwise_code import depthwise_code, depthwise_name
from adrenoc.mcu.dsp.product_code import MOST_OFFSET
from adrenoc.mcu.kernel import Array, Kernel
from adrenoc.mcu.network import Depthwise, Network

_GROUP = 4


def depthwise_kernel(operator: Depthwise, network: Network) -> Kernel:
    """The kernel of a depthwise convolution.

    Raises:
        NotImplementedError: its window, shape or rule is not covered.
    """
    window = operator.window
    _, height, width, depth = network.shape4(operator.source)
    _, out_height, out_width, channels = network.shape4(operator.result)
    if window.kernel != (3, 3) or window.dilations != (1, 1):
        raise NotImplementedError(f"a window of {window.kernel}, dilated {window.dilations}")
    if depth != channels:
        raise NotImplementedError(f"{channels} channels of {depth}")
    if window.strides[0] > 2 or window.strides[1] > 30:
        raise NotImplementedError(f"strides of {list(window.strides)}")
    if out_width * channels > MOST_OFFSET or 8 * out_width * window.strides[1] >= 1 << 16:
        raise NotImplementedError(f"rows of {out_width * channels} bytes")
    rule = stored(operator)
    rows = 2 if window.strides[0] == 1 else 1
    columns = max((out_width - 1) * window.strides[1] + 3, window.left + width)
    counts = {1} if rows == 1 or out_height == 1 else {2} | ({1} if out_height % 2 else set())
    shape = (out_width, window.strides[1], channels, rule.store)
    pairs = -(-out_height // rows)
    turns = {(n % 2, 2 if rows == 2 and 2 * n + 1 < out_height else 1) for n in range(pairs)} & {
        (first, count) for first in (0, 1) for count in counts
    }
    codes = {turn: depthwise_code(turn[1], turn[0], *shape) for turn in sorted(turns)}
    names = [
        ", ".join(
            depthwise_name(count, first, *shape) if (first, count) in codes else "0"
            for count in (1, 2)
        )
        for first in (0, 1)
    ]
    numbers = {
        "in_height": height,
        "in_width": width,
        "channels": channels,
        "out_height": out_height,
        "out_width": out_width,
        "rows": rows,
        "top": window.top,
        "left": window.left,
        "columns": columns,
        "zero": operator.zero_in,
        "rule_words": 7 + rule.store.words,
    }
    return Kernel(
        call="run_depthwise(&{layer}, {in0}, {out}, (uint32_t *)({scratch}));",
        how=f"SMLAD, strips of {rows} row{'s' * (rows - 1)}" + rule.store.how,
        snippets=("requantise", "pairs", "depthwise"),
        texts=tuple(codes.values()),
        arrays=(Array(suffix="rules", ctype="int32_t", values=_rules(operator, rule)),),
        struct="depthwise_layer",
        fields=(
            *((key, str(value)) for key, value in numbers.items()),
            ("rules", "{layer}_rules"),
            ("code", "{{{{" + "}}, {{".join(names) + "}}}}"),
        ),
        scratch_bytes=4 * _GROUP * 2 * columns,
        in_place=True,
    )


def _rules(operator: Depthwise, rule: Stored) -> np.ndarray:
    """Of each channel: weights of three columns as two words each, bias, constants."""
    taps = operator.weights.astype(np.int64) * (2 if rule.doubled else 1)
    bias = rule.bias * (2 if rule.doubled else 1)
    words = []
    for column in range(3):
        for row in (0, 1):
            low, high = taps[row, column] & 0xFFFF, taps[row + 1, column] & 0xFFFF
            words.append((low | high << 16).astype(np.uint32).astype(np.int32))
    return np.concatenate([np.stack(words, 1), bias[:, None], rule.constants], 1)
