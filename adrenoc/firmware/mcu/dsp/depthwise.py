"""Depthwise 3x3 by strips over its own input, with strides of one or two rows."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.dsp.constants import Stored, pack_constants
from adrenoc.firmware.mcu.dsp.paired_depthwise import Strip, depthwise_code, unrolls_of
from adrenoc.firmware.mcu.dsp.product_code import MOST_OFFSET
from adrenoc.firmware.mcu.kernel import Array, Kernel
from adrenoc.firmware.mcu.network import Network, image_extents
from adrenoc.firmware.mcu.operators import Depthwise
from adrenoc.firmware.mcu.schedule import Choice

_GROUP = 4


_LAYER, _CALL, _PAIR_OF_ROWS, _PIXEL = 60, 12, 45, 17
"""Instructions as gcc makes them: of a layer, of a channel's strip, and of what brings two rows of
four channels into planes, by the pixel."""


def depthwise_choices(operator: Depthwise, network: Network) -> list[Choice]:
    """Return the schedules of a depthwise convolution.

    Raises:
        RefusedError: its window, shape or rule is not covered.
    """
    window = operator.window
    _, _, _, depth = network.shape4(operator.source)
    _, _, out_width, channels = network.shape4(operator.result)
    if window.kernel != (3, 3) or window.dilations != (1, 1):
        raise RefusedError(f"a window of {window.kernel}, dilated {window.dilations}")
    if depth != channels:
        raise RefusedError(f"{channels} channels of {depth}")
    if window.strides[0] > 2 or window.strides[1] > 30:
        raise RefusedError(f"strides of {list(window.strides)}")
    if out_width * channels > MOST_OFFSET or 8 * out_width * window.strides[1] >= 1 << 16:
        raise RefusedError(f"rows of {out_width * channels} bytes")
    rule = pack_constants(operator)
    return [
        Choice(
            actions={"way": "strips", "unroll": unroll},
            instructions=_estimate(operator, network, rule, unroll),
            scratch_bytes=4 * _GROUP * 2 * _columns(operator, network),
            make=partial(_kernel, operator, network, rule, unroll),
        )
        for unroll in unrolls_of(out_width)
    ]


def count_strips(out_height: int, rows: int) -> Counter[tuple[int, int]]:
    """Return how often each kind of strip is needed: the parity of a pair of rows, and rows that it
    has.

    A strip makes `rows` rows of the output, the last one perhaps fewer.
    """
    kinds: Counter[tuple[int, int]] = Counter()
    for pair in range(-(-out_height // rows)):
        kinds[pair % 2, 2 if rows == 2 and 2 * pair + 1 < out_height else 1] += 1
    return kinds


def _columns(operator: Depthwise, network: Network) -> int:
    """Pixels of a plane, its border included."""
    _, _, width, _ = network.shape4(operator.source)
    _, _, out_width, _ = network.shape4(operator.result)
    return max((out_width - 1) * operator.window.strides[1] + 3, operator.window.left + width)


def _strips(
    operator: Depthwise, network: Network, rule: Stored, unroll: int
) -> dict[tuple[int, int], tuple[Strip, int]]:
    """Return the functions by (first, rows), and how often each runs for a channel."""
    _, out_height, out_width, channels = network.shape4(operator.result)
    rows = 2 if operator.window.strides[0] == 1 else 1
    kinds = count_strips(out_height, rows)
    return {
        (first, count): (
            Strip(
                rows=count,
                first=first,
                width=out_width,
                step=operator.window.strides[1],
                channels=channels,
                store=rule.store,
                unroll=unroll,
            ),
            times,
        )
        for (first, count), times in sorted(kinds.items())
    }


def _estimate(operator: Depthwise, network: Network, rule: Stored, unroll: int) -> float:
    """Instructions by the cost model: the strips are counted, the code around them is fitted."""
    _, _, _, channels = network.shape4(operator.result)
    _, _, width, _ = network.shape4(operator.source)
    strips = _strips(operator, network, rule, unroll).values()
    own = sum(times * (strip.instructions + _CALL) for strip, times in strips)
    pairs = 1 + sum(times for _, times in strips)
    groups = -(-channels // _GROUP)
    return _LAYER + channels * own + groups * pairs * (_PAIR_OF_ROWS + _PIXEL * width)


def _kernel(operator: Depthwise, network: Network, rule: Stored, unroll: int) -> Kernel:
    rows = 2 if operator.window.strides[0] == 1 else 1
    columns = _columns(operator, network)
    strips = {key: strip for key, (strip, _) in _strips(operator, network, rule, unroll).items()}
    names = [
        ", ".join(strips[first, n].name if (first, n) in strips else "0" for n in (1, 2))
        for first in (0, 1)
    ]
    numbers = {
        **image_extents(operator, network),
        "rows": rows,
        "top": operator.window.top,
        "left": operator.window.left,
        "columns": columns,
        "zero": operator.zero_in,
        "rule_words": 7 + rule.store.words,
    }
    return Kernel(
        call="run_depthwise(&{layer}, {in0}, {out}, (uint32_t *)({scratch}));",
        how=f"SMLAD, strips of {rows} row{'s' * (rows - 1)}" + rule.store.how,
        snippets=("requantise", "pairs", "depthwise"),
        texts=tuple(map(depthwise_code, strips.values())),
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
