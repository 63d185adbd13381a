"""Depthwise windows of any size and dilation: two taps of a row in a word, by SMLAD."""

from __future__ import annotations

import numpy as np

from adrenoc.base.refused import RefusedError
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
