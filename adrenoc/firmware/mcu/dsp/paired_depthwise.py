"""Depthwise windows of any size and dilation: two taps in a word, by SMLAD.

Two taps of a row lie side by side.  A window of 3x3 on one channel is faster by columns: pairs of
rows in words, weights as two words of a column (the first and second row, the second and third), so
that a lower row of results needs the upper half of the upper pair and the whole of the lower one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.dsp.assembly import Store, function
from adrenoc.firmware.mcu.kernel import Array, Kernel
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Depthwise
from adrenoc.firmware.mcu.plain import images_of, plain_parts

_GROUP = 4
_MOST_ROWS = 16
_MOST_TAPS = 256


def paired_kernel(operator: Depthwise, network: Network) -> Kernel:
    """Return the kernel of a depthwise convolution.

    Raises:
        RefusedError: its window or its channels are not covered.
    """
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
    sums = operator.weights.astype(np.int64).sum((0, 1))
    folded = Array(suffix="bias", ctype="int32_t", values=operator.bias - operator.zero_in * sums)
    kept = tuple(folded if a.suffix == "bias" else a for a in arrays if a.suffix != "weights")
    pairs = Array(suffix="pairs", ctype="uint32_t", values=_pairs(operator, words))
    numbers = {"ring": ring, "columns": part * step, "part": part, "channel_words": height * words}
    name = f"paired_{height}x{words}"
    return Kernel(
        call="run_paired(&{layer}, {in0}, {out}, (int16_t *)({scratch}));",
        how=f"SMLAD, a ring of {ring} rows",
        snippets=("requantise", "plain_layer", "pairs", "paired_depthwise"),
        texts=(_code(name, height, words),),
        arrays=(*kept, pairs),
        struct="paired_layer",
        fields=(
            *((f"plain.{key}", "0" if key == "weights" else text) for key, text in fields),
            *((key, str(value)) for key, value in numbers.items()),
            ("pairs", "{layer}_pairs"),
            ("code", name),
        ),
        scratch_bytes=2 * _GROUP * part * step * ring,
        in_place=out_width <= width,
    )


def _pairs(operator: Depthwise, words: int) -> np.ndarray:
    """For each channel and row of its window: two taps a word, the first in the lower half."""
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


_WEIGHTS = (("r3", "r4"), ("r5", "r6"), ("r7", "r8"))
_BIAS = "r9"
_SUMS = ("r10", "r11")
_DATA = ("r12", "lr")
_MOST_STEP = 255
_MOST_UNROLL = 5


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A function for `rows` rows of `width` results, `step` columns apart, `unroll` a round.

    `first`: which of the two words of a column holds the upper pair of rows.
    """

    rows: int
    first: int
    width: int
    step: int
    channels: int
    store: Store
    unroll: int

    @property
    def name(self) -> str:
        """The name of the function."""
        return (
            f"depthwise_{self.rows}{'ab'[self.first]}_w{self.width}_u{self.unroll}"
            f"_s{self.step}_c{self.channels}_{self.store.name}"
        )

    @property
    def instructions(self) -> int:
        """How many a call takes."""
        enter, inner, leave = map(len, _parts(self))
        return enter + self.width // self.unroll * inner + leave


def unrolls_of(width: int) -> tuple[int, ...]:
    """Return how many results a round of the loop may have, the most first."""
    return tuple(u for u in range(_MOST_UNROLL, 0, -1) if width % u == 0)


def depthwise_code(strip: Strip) -> str:
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


def _twin(rows: int, first: int, width: int, step: int, channels: int, store: Store) -> str:
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
