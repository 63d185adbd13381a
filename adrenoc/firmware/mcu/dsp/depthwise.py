"""Depthwise windows: 3x3 by strips over its own input, with strides of one or two rows, and any
other by two taps of a row in a word, by SMLAD.

A strip is a row or two of one channel's results, from pairs of rows in words. The weights of a
column are two words: of the first and second row, and of the second and third. A lower row of
results needs the upper half of the upper pair, and the whole of the lower one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu.dsp.assembly import (
    MOST_OFFSET,
    DspConstants,
    OutputStage,
    function,
    pack_constants,
)
from adrenoc.firmware.mcu.kernel import Array, Choice, FirmwareKernel, fields_of, table_text
from adrenoc.firmware.mcu.network import Network, image_fields
from adrenoc.firmware.mcu.operators import Depthwise
from adrenoc.firmware.mcu.plain import images_of, plain_parts

_GROUP = 4


_LAYER, _CALL, _PAIR_OF_ROWS, _PIXEL = 60, 12, 45, 17
"""Instructions as gcc makes them: of a layer, of a channel's strip, and of what brings two rows of
four channels into planes, by the pixel."""


def depthwise_choices(operator: Depthwise, network: Network) -> list[Choice]:
    """Return the schedules of a depthwise convolution. Raises RefusedError where its window, shape
    or rule is not covered."""
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
        # So many results a round of the loop, the most first.
        for unroll in range(_MOST_UNROLL, 0, -1)
        if out_width % unroll == 0
    ]


def count_strips(out_height: int, rows: int) -> Counter[tuple[int, int]]:
    """Return how often each kind of strip is needed, by the parity of its pair of rows and by rows.
    A strip makes `rows` rows of the output, the last one perhaps fewer."""
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
    operator: Depthwise, network: Network, rule: DspConstants, unroll: int
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


def _estimate(operator: Depthwise, network: Network, rule: DspConstants, unroll: int) -> float:
    """Instructions by the cost model: the strips are counted, the code around them is fitted."""
    _, _, _, channels = network.shape4(operator.result)
    _, _, width, _ = network.shape4(operator.source)
    strips = _strips(operator, network, rule, unroll).values()
    own = sum(times * (strip.instructions + _CALL) for strip, times in strips)
    pairs = 1 + sum(times for _, times in strips)
    groups = -(-channels // _GROUP)
    return _LAYER + channels * own + groups * pairs * (_PAIR_OF_ROWS + _PIXEL * width)


def _kernel(
    operator: Depthwise, network: Network, rule: DspConstants, unroll: int
) -> FirmwareKernel:
    columns = _columns(operator, network)
    strips = {key: strip for key, (strip, _) in _strips(operator, network, rule, unroll).items()}
    return strip_kernel(
        operator,
        network,
        {key: strip.name for key, strip in strips.items()},
        columns,
        _rules(operator, rule),
        how="SMLAD, strips of {}" + rule.store.how,
        call="run_depthwise(&{layer}, {in0}, {out}, (uint32_t *)({scratch}));",
        snippets=("requantise", "pairs", "depthwise"),
        texts=tuple(map(_print_strip, strips.values())),
        struct="depthwise_layer",
        scratch_bytes=4 * _GROUP * 2 * columns,
    )


def strip_kernel(
    operator: Depthwise,
    network: Network,
    names: Mapping[tuple[int, int], str],
    columns: int,
    rules: np.ndarray,
    *,
    how: str,
    **others: Any,
) -> FirmwareKernel:
    """Return a kernel of strips: functions by (parity, rows), a plane's columns, rows of rules."""
    window, rows = operator.window, 2 if operator.window.strides[0] == 1 else 1
    numbers = {
        **image_fields(operator, network),
        "rows": rows,
        "top": window.top,
        "left": window.left,
        "columns": columns,
        "zero": operator.zero_in,
        "rule_words": rules.shape[1],
        "rules": "{layer}_rules",
        "code": table_text(names, (0, 1), (1, 2)),
    }
    return FirmwareKernel(
        how=how.format(f"{rows} row{'s' * (rows - 1)}"),
        arrays=(Array(suffix="rules", ctype="int32_t", values=rules),),
        fields=fields_of(numbers),
        in_place=True,
        **others,
    )


def _rules(operator: Depthwise, rule: DspConstants) -> np.ndarray:
    """Return of each channel: weights of three columns as two words each, bias, constants."""
    taps = operator.weights.astype(np.int64) * (2 if rule.doubled else 1)
    bias = rule.bias * (2 if rule.doubled else 1)
    words = []
    for column in range(3):
        for row in (0, 1):
            low, high = taps[row, column] & 0xFFFF, taps[row + 1, column] & 0xFFFF
            words.append((low | high << 16).astype(np.uint32).astype(np.int32))
    return np.concatenate([np.stack(words, 1), bias[:, None], rule.constants], 1)


_WEIGHTS = (("r3", "r4"), ("r5", "r6"), ("r7", "r8"))
_BIAS = "r9"
_SUMS = ("r10", "r11")
_DATA = ("r12", "lr")
_MOST_STEP = 255
_MOST_UNROLL = 5


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A function for `rows` rows of `width` results, `step` columns apart, `unroll` a round.
    `first`: which of the two words of a column holds the upper pair of rows."""

    rows: int
    first: int
    width: int
    step: int
    channels: int
    store: OutputStage
    unroll: int

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return (
            f"depthwise_{self.rows}{'ab'[self.first]}_w{self.width}_u{self.unroll}"
            f"_s{self.step}_c{self.channels}_{self.store.name}"
        )

    @property
    def instructions(self) -> int:
        """Return how many a call takes."""
        enter, inner, leave = map(len, _parts(self))
        return enter + self.width // self.unroll * inner + leave


def _print_strip(strip: Strip) -> str:
    """Return the function; `rule` has six weights, the bias and the constants."""
    lines = [line for part in _parts(strip) for line in part]
    if strip.width > strip.unroll:
        lines.insert(len(_parts(strip)[0]), "1:")
    signature = f"{strip.name}(const uint32_t *plane, int8_t *out, const int32_t *rule)"
    twin = _twin(strip.rows, strip.first, strip.width, strip.step, strip.channels, strip.store)
    return function(signature, lines, twin)


def _parts(strip: Strip) -> tuple[list[str], list[str], list[str]]:
    """Instructions before the loop, of a round of it, and after it."""
    store, channels = strip.store, strip.channels
    loops = strip.width > strip.unroll
    constants = [f"r{10 + n}" for n in range(store.words)]
    listed = "{" + ", ".join(constants) + "}"
    enter = ["push {r4-r11, lr}", "ldmia r2!, {r3-r9}", f"ldmia r2, {listed}", f"push {listed}"]
    if loops:
        enter += [f"movw r2, #{8 * strip.step * strip.width}", "add r2, r2, r0"]
    inner = []
    for _ in range(strip.unroll):
        inner += _column(strip.rows, strip.first, strip.step)
        inner += store.scale_sums(_SUMS[: strip.rows], _DATA, 0)
        if strip.rows == 2:
            inner.append(f"strb r11, [r1, #{strip.width * channels}]")
        if channels <= _MOST_STEP:
            inner.append(f"strb r10, [r1], #{channels}")
        else:
            inner += ["strb r10, [r1]", f"add r1, r1, #{channels}"]
    if loops:
        inner += ["cmp r0, r2", "bne 1b"]
    return enter, inner, [f"add sp, sp, #{4 * store.words}", "pop {r4-r11, pc}"]


def _column(rows: int, first: int, step: int) -> list[str]:
    """Return the sums of one or two results, and the pointer to where the next ones begin."""
    upper, lower = _DATA if first == 0 else _DATA[::-1]
    lines = []
    for column, (top, bottom) in enumerate(_WEIGHTS):
        place = f"[r0, #{8 * column}]" if column else "[r0]"
        if column == step and step < len(_WEIGHTS):
            place += "!"
        if column > step:
            place = f"[r0, #{8 * (column - step)}]"
        sums = [_BIAS] * rows if column == 0 else _SUMS
        lines.append(f"ldrd {_DATA[0]}, {_DATA[1]}, {place}")
        lines.append(f"smlad {_SUMS[0]}, {upper}, {top}, {sums[0]}")
        if rows == 2:
            lines.append(f"smlatb {_SUMS[1]}, {upper}, {top}, {sums[1]}")
        lines.append(f"smlabt {_SUMS[0]}, {lower}, {bottom}, {_SUMS[0]}")
        if rows == 2:
            lines.append(f"smlad {_SUMS[1]}, {lower}, {bottom}, {_SUMS[1]}")
    if step >= len(_WEIGHTS):
        lines.append(f"add r0, r0, #{8 * step}")
    return lines


def _twin(rows: int, first: int, width: int, step: int, channels: int, store: OutputStage) -> str:
    lines = [
        "{",
        f"  for (int32_t x = 0; x < {width}; ++x, plane += {2 * step}, out += {channels}) {{",
        f"    int32_t {'upper = rule[6], lower' if rows == 2 else 'upper'} = rule[6];",
        "    for (int32_t i = 0; i < 6; i += 2) {",
        f"      const uint32_t a = plane[i + {first}], b = plane[i + {1 - first}];",
        "      const uint32_t top = (uint32_t)rule[i], bottom = (uint32_t)rule[i + 1];",
        "      upper = add_pair(add_pair(upper, a, top), b & 0xffffu, bottom >> 16);",
    ]
    if rows == 2:
        lines.append("      lower = add_pair(add_pair(lower, a >> 16, top & 0xffffu), b, bottom);")
    lines += ["    }", f"    out[0] = {store.print_c('upper', 'rule + 7')};"]
    if rows == 2:
        lines.append(f"    out[{width * channels}] = {store.print_c('lower', 'rule + 7')};")
    return "\n".join([*lines, "  }", "}"])


_MOST_ROWS = 16
_MOST_TAPS = 256


def paired_kernel(operator: Depthwise, network: Network) -> FirmwareKernel:
    """Return the kernel of a depthwise convolution. Raises RefusedError where its window or its
    channels are not covered."""
    window = operator.window
    (_, width, depth), (_, out_width, channels) = images_of(operator, network)
    height, across = window.kernel
    if depth != channels:
        raise RefusedError(f"{channels} channels of {depth}")
    if height > _MOST_ROWS or height * across > _MOST_TAPS or across < 2:
        raise RefusedError(f"a window of {window.kernel}")
    words = -(-across // 2)
    step = window.dilations[1]
    # One more than what is read: an odd window's last word has a tap of weight zero.
    reach = max((out_width - 1) * window.strides[1] + 2 * words * step, window.left + width)
    part = -(-reach // step)
    ring = (height - 1) * window.dilations[0] + 1
    arrays, fields = plain_parts(operator, network)
    folded = Array(suffix="bias", ctype="int32_t", values=operator.moved_bias)
    kept = tuple(folded if a.suffix == "bias" else a for a in arrays if a.suffix != "weights")
    pairs = Array(suffix="pairs", ctype="uint32_t", values=_pairs(operator, words))
    name = f"paired_{height}x{words}"
    numbers: dict[str, object] = {
        "ring": ring,
        "columns": part * step,
        "part": part,
        "channel_words": height * words,
    }
    numbers |= {"pairs": "{layer}_pairs", "code": name}
    plain = {f"plain.{key}": "0" if key == "weights" else text for key, text in fields}
    return FirmwareKernel(
        call="run_paired(&{layer}, {in0}, {out}, (int16_t *)({scratch}));",
        how=f"SMLAD, a ring of {ring} rows",
        snippets=("requantise", "plain_layer", "pairs", "paired_depthwise"),
        texts=(_code(name, height, words),),
        arrays=(*kept, pairs),
        struct="paired_layer",
        fields=fields_of(plain, numbers),
        scratch_bytes=2 * _GROUP * part * step * ring,
        in_place=out_width <= width,
    )


def _pairs(operator: Depthwise, words: int) -> np.ndarray:
    """Pack each channel and row of its window: two taps a word, the first in the lower half."""
    height, across, channels = operator.weights.shape
    taps = np.zeros((channels, height, 2 * words), np.int64)
    taps[:, :, :across] = operator.weights.astype(np.int64).transpose(2, 0, 1)
    low, high = taps[:, :, ::2] & 0xFFFF, taps[:, :, 1::2] & 0xFFFF
    return low | high << 16


def _code(name: str, height: int, words: int) -> str:
    """Return the products of two windows, one after the other."""
    lines = [
        f"static void {name}(const int16_t *const *rows, int32_t first, int32_t second,",
        "    const uint32_t *weights, int32_t *sums) {",
        "  int32_t one = sums[0], two = sums[1];",
        "  const int16_t *a, *b;",
    ]
    for row in range(height):
        lines.append(f"  a = rows[{row}] + first, b = rows[{row}] + second;")
        for word in range(words):
            weight = f"weights[{row * words + word}]"
            lines.append(f"  one = multiply_pair(one, load_two(a + {2 * word}), {weight});")
            lines.append(f"  two = multiply_pair(two, load_two(b + {2 * word}), {weight});")
    return "\n".join([*lines, "  sums[0] = one, sums[1] = two;", "}", ""])
