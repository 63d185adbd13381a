"""Convolutions of any window as products of widened pixels and weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.dsp.constants import Stored, pack_constants
from adrenoc.firmware.mcu.dsp.product_code import MOST_OFFSET, Block, block_code
from adrenoc.firmware.mcu.dsp.rows import (
    byte_rows,
    interleaved_words,
    pad_words,
    row_choices,
    wide_words,
    widened_pairs,
)
from adrenoc.firmware.mcu.kernel import Array, Kernel
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Convolution, Sum
from adrenoc.firmware.mcu.plain import images_of
from adrenoc.firmware.mcu.schedule import Choice, strips_of
from adrenoc.firmware.mcu.sum_product import sum_product

_SNIPPETS = (
    *("requantise", "add_lines", "pairs", "widen", "widen_run"),
    *("patch_layer", "patches", "products"),
)
_MOST_UNROLL = 12
_FEW_PIXELS = 3
_MOST_SINGLES = 8
"""Pixels up to which one at a time may be faster."""
# Instructions as gcc makes them: of a layer, of a strip and of a pair of channels beside the rest,
# of a byte that is widened, of a pixel and of a row of its window that is gathered.
_LAYER, _STRIP, _PAIR = 60, 40, 34
_WIDENED_BYTE, _PIXEL, _WINDOW_ROW, _ADDED = 2.25, 40, 26, 10


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """A schedule of blocks: pixels that are widened at once, words a round, how weights lie."""

    strip: int
    unroll: int
    wide: bool = False
    between: bool = False

    @property
    def actions(self) -> dict[str, int | str]:
        return {
            "way": "blocks",
            "strip": self.strip,
            "unroll": self.unroll,
            "weights": "words" if self.wide else "bytes",
            "loads": "between" if self.between else "first",
        }


def product_choices(operator: Convolution, network: Network) -> list[Choice]:
    """Return the schedules of a convolution or a dense layer.

    Raises:
        RefusedError: its rule or its shape is not covered.
    """
    rule = pack_constants(operator)
    (_, _, _), (height, width, channels) = images_of(operator, network)
    pixels = height * width
    fits = 3 * channels <= MOST_OFFSET
    single = _is_side_by_side(operator) and operator.joined is None and not rule.doubled
    found: list[Choice] = []
    if single and pixels <= _MOST_SINGLES and (pixels < _FEW_PIXELS or fits):
        found += row_choices(operator, rule, pixels)
    if fits and (pixels >= _FEW_PIXELS or not found):
        found += _block_choices(operator, network, rule)
    if not found:
        raise RefusedError(f"rows of {channels} channels")
    return found


def _is_side_by_side(operator: Convolution) -> bool:
    return operator.window.kernel == (1, 1) and operator.window.strides == (1, 1)


def _block_choices(operator: Convolution, network: Network, rule: Stored) -> list[Choice]:
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    pixels, window = height * width, operator.window
    pairs = widened_pairs(window.kernel[0], window.kernel[1] * depth)
    unrolls = [u for u in range(1, _MOST_UNROLL + 1) if len(pairs) % u == 0]
    # Fewer loops are always fewer instructions; a board's cache may think otherwise.
    best, less = unrolls[-1], unrolls[len(unrolls) // 2]
    forms = [(strip, best, False) for strip in strips_of(pixels, 3)]
    last = forms[-1][0]
    forms += [(last, less, False), (last, best, True)]
    found = []
    for strip, unroll, between in dict.fromkeys(forms):
        for wide in (False, True):
            blocks = _Blocks(strip=strip, unroll=unroll, wide=wide, between=between)
            found.append(
                Choice(
                    actions=blocks.actions,
                    instructions=_estimate(operator, network, rule, blocks, len(pairs)),
                    scratch_bytes=_scratch(operator, network, blocks, len(pairs)),
                    make=partial(_kernel, operator, network, rule, blocks, pairs),
                    spare_bytes=2 * len(pairs) * channels if wide else 0,
                )
            )
    return found


def _is_plain(operator: Convolution) -> bool:
    """Return whether three pixels may be widened side by side."""
    return _is_side_by_side(operator) and operator.weights.shape[3] % 4 == 0


def _spare(operator: Convolution) -> int:
    """Bytes for one row of a window, as its border fills it."""
    run = operator.window.kernel[1] * operator.weights.shape[3]
    return 0 if _is_plain(operator) else pad_words(run)


def _scratch(operator: Convolution, network: Network, blocks: _Blocks, words: int) -> int:
    own = blocks.strip * operator.weights.shape[0] if operator.joined else 0
    rows = 0 if blocks.wide else 2
    return 4 * words * (rows + blocks.strip) + _spare(operator) + own


def _estimate(
    operator: Convolution, network: Network, rule: Stored, blocks: _Blocks, words: int
) -> float:
    """Instructions by the cost model: the products are counted, the code around them is fitted."""
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    pixels, window = height * width, operator.window
    if _is_plain(operator):
        widened = pixels * depth * 1.0 + pixels * 10
    else:
        row = _WINDOW_ROW + _WIDENED_BYTE * window.kernel[1] * depth
        widened = pixels * (_PIXEL + window.kernel[0] * row)
    total = _LAYER + widened + (_ADDED * pixels * channels if operator.joined else 0)
    strips: Counter[int] = Counter()
    strips[min(blocks.strip, pixels)] += pixels // blocks.strip or 1
    if pixels > blocks.strip and pixels % blocks.strip:
        strips[pixels % blocks.strip] += 1
    for count, times in strips.items():
        total += times * (_STRIP + _products(rule, blocks, words, channels, count))
    return total


def _products(rule: Stored, blocks: _Blocks, words: int, channels: int, count: int) -> float:
    """All channels of one strip of `count` pixels, with the widening of their weights."""
    total = 0.0
    for width, times in ((2, channels // 2), (1, channels % 2)):
        if not times:
            continue
        own = float(_PAIR)
        if not blocks.wide:
            own += 18 + (13 / 8 * 2 if width == 2 else 3.0) * words
        for pixels, groups in ((3, count // 3), (count % 3, 1)):
            if pixels and groups:
                own += _block(blocks, pixels, width, channels, rule).instructions(groups, words)
        total += times * own
    return total


def _block(blocks: _Blocks, pixels: int, width: int, channels: int, rule: Stored) -> Block:
    return Block(
        pixels=pixels,
        channels=width,
        unroll=blocks.unroll,
        stride=channels,
        store=rule.store,
        between=blocks.between,
    )


def _kernel(
    operator: Convolution,
    network: Network,
    rule: Stored,
    blocks: _Blocks,
    pairs: list[tuple[int, int]],
) -> Kernel:
    (_, _, _), (height, width, channels) = images_of(operator, network)
    pixels, words, strip = height * width, len(pairs), blocks.strip
    flat = operator.weights.reshape(channels, -1)
    rows = wide_words(flat, pairs) if blocks.wide else byte_rows(flat, pairs)
    even = channels - channels % 2
    weights = [interleaved_words(rows[:even], 2), interleaved_words(rows[even:], 1)]
    functions = {
        shape: _block(blocks, *shape, channels, rule) for shape in _shapes(pixels, strip, channels)
    }
    names = [
        ", ".join(functions[p, c].name if (p, c) in functions else "0" for p in (1, 2, 3))
        for c in (1, 2)
    ]
    numbers = {
        "pixels": pixels,
        "channels": channels,
        "words": words,
        "strip": strip,
        "plain_pixels": int(_is_plain(operator)),
        "rule_words": 1 + rule.store.words,
        "spare_bytes": _spare(operator),
        "wide_weights": int(blocks.wide),
        "adds": int(operator.joined is not None),
    }
    return Kernel(
        call="run_products(&{layer}, {in0}, "
        + ("{in1}" if operator.joined else "0")
        + ", {out}, (uint32_t *)({scratch}));",
        how="SMLAD, 3 pixels by 2 channels" + rule.store.how,
        snippets=_SNIPPETS,
        texts=tuple(map(block_code, functions.values())),
        arrays=(
            Array(suffix="weights", ctype="uint32_t", values=np.concatenate(weights)),
            Array(suffix="rules", ctype="int32_t", values=_rules(rule)),
        ),
        struct="product_layer",
        fields=(
            ("patch", patch_fields(operator, network)),
            *((key, str(value)) for key, value in numbers.items()),
            ("sum", sum_fields(operator.joined)),
            ("weights", "{layer}_weights"),
            ("rules", "{layer}_rules"),
            ("blocks", "{{{{" + "}}, {{".join(names) + "}}}}"),
        ),
        scratch_bytes=_scratch(operator, network, blocks, words),
        gap_bytes=_gap(operator, pixels, strip),
        gap_source=1 if operator.joined else None,
    )


def covers(operator: Convolution, network: Network) -> bool:
    """Return whether `run_products` computes a convolution, and so could add to it."""
    try:
        choices = product_choices(operator, network)
    except RefusedError:
        return False
    return any(choice.actions["way"] == "blocks" for choice in choices)


def patch_fields(operator: Convolution, network: Network) -> str:
    """Return the struct `patch_layer` of a convolution."""
    (in_height, in_width, depth), (_, width, _) = images_of(operator, network)
    window = operator.window
    # What dilates a window of one tap means nothing, and would be taken for a border.
    dilations = [
        d if taps > 1 else 1 for d, taps in zip(window.dilations, window.kernel, strict=True)
    ]
    patch = {
        "in_height": in_height,
        "in_width": in_width,
        "depth": depth,
        **window.steps(),
        "dilation_y": dilations[0],
        "dilation_x": dilations[1],
        "top": window.top,
        "left": window.left,
        "out_width": width,
        "zero": operator.zero_in,
    }
    return _struct(patch)


def sum_fields(joined: Sum | None) -> str:
    """Return the struct `line_layer` of the sum that a convolution takes, if it does."""
    if joined is None:
        return "{{0}}"
    bounds = {"low": joined.requantise.low, "high": joined.requantise.high}
    return _struct({**asdict(sum_product(joined)), **bounds})


def _struct(numbers: Mapping[str, int]) -> str:
    return "{{" + ", ".join(f".{key} = {value}" for key, value in numbers.items()) + "}}"


def _gap(operator: Convolution, pixels: int, strip: int) -> int | None:
    """Return how far before the input the output has to begin: a strip is read before it is
    written.

    A sum is written over its other operand, each number where it was read.
    """
    if operator.joined is not None:
        return 0
    if not operator.window.kernel == (1, 1) == operator.window.strides:
        return None
    channels, _, _, depth = operator.weights.shape
    return max(0, (pixels - 1) // strip * strip * (channels - depth))


def _shapes(pixels: int, strip: int, channels: int) -> list[tuple[int, int]]:
    """(pixels, channels) of the functions that a layer needs."""
    counts = {min(strip, pixels), pixels % strip}
    groups = {3 for count in counts if count >= 3} | {count % 3 for count in counts} - {0}
    widths = ({2} if channels > 1 else set()) | ({1} if channels % 2 else set())
    return [(p, c) for p in sorted(groups) for c in sorted(widths)]


def _rules(rule: Stored) -> np.ndarray:
    """For two channels at a time: their biases, then the constants of each."""
    found: list[int] = []
    for first in range(0, len(rule.bias), 2):
        found += rule.bias[first : first + 2].tolist()
        found += rule.constants[first : first + 2].reshape(-1).tolist()
    return np.array(found, np.int64)
