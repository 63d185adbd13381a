"""Convolutions of any window as products of widened pixels and weights.

Products of a few pixels, one at a time, by four channels at once: dense layers.

Weights stay bytes in flash and are widened between the products, or lie there widened; they are
packed in the order in which the code of the DSP extension reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.dsp.assembly import (
    MOST_OFFSET,
    DspConstants,
    OutputStage,
    PixelBlock,
    block_code,
    function,
    pack_constants,
)
from adrenoc.firmware.mcu.fixed_point import sum_product
from adrenoc.firmware.mcu.kernel import Array, Choice, FirmwareKernel, fields_of, strips_of
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Convolution, Sum
from adrenoc.firmware.mcu.plain import images_of

_WORDS = 4
"""Widened words come in groups of so many."""


def pairs_of_run(count: int) -> list[tuple[int, int]]:
    """Return which two bytes of a run each widened word holds; -1 is one that does not count."""
    pairs = []
    for four in range(0, count - 3, 4):
        pairs += [(four, four + 2), (four + 1, four + 3)]
    tail = count - count % 4
    pairs += [[], [(tail, -1)], [(tail, tail + 1)], [(tail, tail + 2), (tail + 1, -1)]][count % 4]
    return pairs


def _pad_words(words: int, multiple: int = _WORDS) -> int:
    """Round words up to whole groups."""
    return -(-words // multiple) * multiple


def _widened_pairs(runs: int, run: int, multiple: int = _WORDS) -> list[tuple[int, int]]:
    """Return which two weights each widened word multiplies, of `runs` runs of `run` bytes each."""
    found = []
    for start in range(0, runs * run, run):
        for low, high in pairs_of_run(run):
            found.append((start + low, start + high if high >= 0 else -1))
    return found + [(-1, -1)] * (_pad_words(len(found), multiple) - len(found))


def _byte_rows(weights: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return the bytes of each channel (rows) whose even and odd ones widen to `pairs`."""
    extended = np.concatenate([weights, np.zeros((len(weights), 1), weights.dtype)], 1)
    order = []
    for (low, high), (next_low, next_high) in zip(pairs[::2], pairs[1::2], strict=True):
        order += [low, next_low, high, next_high]
    return extended[:, order].astype(np.int8)


def _interleaved_words(rows: np.ndarray, group: int) -> np.ndarray:
    """Words of four bytes: the first of each row of a group, then the second ..."""
    words = np.ascontiguousarray(rows).view("<u4")
    missing = -len(words) % group
    words = np.concatenate([words, np.zeros((missing, words.shape[1]), words.dtype)])
    return words.reshape(-1, group, words.shape[1]).transpose(0, 2, 1).reshape(-1)


def _wide_words(weights: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return the bytes of each channel (rows) as the words of two int16 that `pairs` names."""
    extended = np.concatenate([weights, np.zeros((len(weights), 1), weights.dtype)], 1)
    flat = [place for pair in pairs for place in pair]
    return np.ascontiguousarray(extended[:, flat].astype("<i2")).view(np.int8)


_ROW_SNIPPETS = ("requantise", "pairs", "widen_run", "rows")
_UNROLLS = (1, 2, 4)
_LEAST_UNROLL = 2
"""Pixels are padded to whole rounds of so many words of bytes."""
_ENTRY = 30
"""Instructions of a pixel beside its products, as gcc makes them."""
_WIDENING = 2.25
"""Instructions a byte of a pixel."""


def _row_choices(operator: Convolution, rule: DspConstants, pixels: int) -> list[Choice]:
    """Return the schedules of a window of 1x1, a pixel at a time."""
    channels, _, _, depth = operator.weights.shape
    groups = -(-channels // CHANNELS)
    found = []
    for unroll in _UNROLLS:
        pairs = _widened_pairs(1, depth, 2 * _LEAST_UNROLL)
        if len(pairs) % (2 * unroll):
            continue
        for wide in (False, True):
            row = Row(unroll=unroll, wide=wide, store=rule.store)
            actions = {"way": "rows", "unroll": unroll, "weights": "words" if wide else "bytes"}
            found.append(
                Choice(
                    actions=actions,
                    instructions=pixels
                    * (_ENTRY + _WIDENING * depth + row.instructions(groups, len(pairs))),
                    scratch_bytes=4 * len(pairs),
                    make=partial(_row_kernel, operator, rule, row, pixels, pairs),
                    spare_bytes=2 * len(pairs) * groups * CHANNELS if wide else 0,
                )
            )
    return found


def _row_kernel(
    operator: Convolution, rule: DspConstants, row: Row, pixels: int, pairs: list[tuple[int, int]]
) -> FirmwareKernel:
    channels, _, _, depth = operator.weights.shape
    weights = operator.weights.reshape(channels, depth)
    words = _wide_words(weights, pairs) if row.wide else _byte_rows(weights, pairs)
    arrays = (
        Array(suffix="weights", ctype="uint32_t", values=_interleaved_words(words, CHANNELS)),
        Array(suffix="rules", ctype="int32_t", values=_row_rules(rule, channels)),
    )
    numbers = {"pixels": pixels, "depth": depth, "channels": channels, "words": len(pairs)}
    numbers |= {
        "rule_words": 1 + rule.store.words,
        "weight_words": len(pairs) // (1 if row.wide else 2),
    }
    return FirmwareKernel(
        call="run_rows(&{layer}, {in0}, {out}, (uint32_t *)({scratch}));",
        how="SMLAD, a pixel by 4 channels" + rule.store.how,
        snippets=_ROW_SNIPPETS,
        texts=(row_code(row),),
        arrays=arrays,
        struct="row_layer",
        fields=(
            *fields_of(numbers),
            ("weights", "{layer}_weights"),
            ("rules", "{layer}_rules"),
            ("row", row.name),
        ),
        scratch_bytes=4 * len(pairs),
    )


def _row_rules(rule: DspConstants, channels: int) -> np.ndarray:
    """For four channels at a time: their biases, then the constants of each."""
    missing = -channels % CHANNELS
    biases = np.concatenate([rule.bias, np.zeros(missing, np.int64)])
    constants = np.concatenate([rule.constants, np.zeros((missing, rule.store.words), np.int64)])
    rows = constants.reshape(-1, CHANNELS * rule.store.words)
    return np.concatenate([biases.reshape(-1, CHANNELS), rows], 1)


_SUMS = ("r0", "r1", "r2", "r3")
_WEIGHTS = ("r6", "r7", "r8", "r9")
CHANNELS = 4


@dataclass(frozen=True, kw_only=True)
class Row:
    """A function for one pixel, of words of two int16 up to `end`, and weights up to `last`.

    A round of its loop takes `unroll` pairs of such words.  `wide`: weights are such words too,
    else words of four bytes.  `rule` has four biases, then the constants of four channels, for
    each group of them.
    """

    unroll: int
    wide: bool
    store: OutputStage

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return f"products_row_u{self.unroll}{'w' * self.wide}_{self.store.name}"

    def instructions(self, groups: int, words: int) -> int:
        """Return how many a call takes, for so many groups of channels, of so many words of a
        pixel."""
        enter, begin, inner, finish, leave = map(len, _parts(self))
        rounds = words // (2 * self.unroll)
        return enter + groups * (begin - 2 + rounds * inner + finish) + leave


def row_code(row: Row) -> str:
    """Return the function."""
    signature = (
        f"{row.name}(const uint32_t *pixels, const uint32_t *weights,\n"
        "    const int32_t *rule, int8_t *out, const uint32_t *end, const uint32_t *last)"
    )
    return function(signature, [line for part in _parts(row) for line in part], _twin(row))


def _parts(row: Row) -> tuple[list[str], ...]:
    """Instructions before the groups, before a group's products, a round of them, what follows
    them in a group, and what follows all groups."""
    store = row.store
    enter = ["push {r4-r11, lr}", "push {r0, r2, r3}", "mov r12, r1", "ldr lr, [sp, #48]"]
    begin = ["1:", "ldr r10, [sp, #4]", "ldmia r10!, {r0-r3}", "str r10, [sp, #4]"]
    begin += ["ldr r11, [sp]", "2:"]
    inner = []
    for _ in range(row.unroll):
        inner.append("ldrd r4, r5, [r11], #8")
        inner += _wide_pair() if row.wide else _pair()
    inner += ["cmp r11, lr", "bne 2b"]
    finish = ["ldr r10, [sp, #4]"]
    for s in _SUMS:
        if store.single:
            finish += ["vldr s1, [r10]", "ldr r4, [r10, #4]", "adds r10, #8"]
            finish += store.scale_by_float(s, "r4")
        elif store.shift:
            finish += ["ldmia r10!, {r4, r5}", f"smmlar {s}, {s}, r4, r5"]
        else:
            finish += ["ldmia r10!, {r4-r6}", f"smmlar {s}, {s}, r4, r5", f"asr {s}, {s}, r6"]
    finish += ["str r10, [sp, #4]", *store.saturate(_SUMS), "ldr r10, [sp, #8]"]
    finish += [f"strb {s}, [r10, #{c}]" for c, s in enumerate(_SUMS)]
    finish += ["add r10, r10, #4", "str r10, [sp, #8]", "ldr r4, [sp, #52]", "cmp r12, r4"]
    finish.append("bne 1b")
    return enter, begin, inner, finish, ["add sp, sp, #12", "pop {r4-r11, pc}"]


def _pair() -> list[str]:
    """Products of two words of the pixel with four bytes of each channel."""
    lines = ["ldmia r12!, {r6-r9}"]
    for s, w in zip(_SUMS, _WEIGHTS, strict=True):
        lines += [f"sxtb16 r10, {w}", f"sxtb16 {w}, {w}, ror #8"]
        lines += [f"smlad {s}, r4, r10, {s}", f"smlad {s}, r5, {w}, {s}"]
    return lines


def _wide_pair() -> list[str]:
    """Products of two words of the pixel with two of each channel."""
    lines = []
    for p in ("r4", "r5"):
        lines.append("ldmia r12!, {r6-r9}")
        lines += [f"smlad {s}, {p}, {w}, {s}" for s, w in zip(_SUMS, _WEIGHTS, strict=True)]
    return lines


def _twin(row: Row) -> str:
    rule_words = 4 + 4 * row.store.words
    words, first, second = "2", "even_bytes(weights[4 * i + c])", "odd_bytes(weights[4 * i + c])"
    if row.wide:
        words, first, second = "4", "weights[8 * i + c]", "weights[8 * i + 4 + c]"
    return (
        "{\n"
        "  const int32_t words = (int32_t)(end - pixels);\n"
        f"  for (; weights != last; weights += {words} * words, rule += {rule_words})\n"
        "    for (int32_t c = 0; c < 4; ++c) {\n"
        "      int32_t sum = rule[c];\n"
        "      for (int32_t i = 0; i < words / 2; ++i) {\n"
        f"        sum = add_pair(sum, pixels[2 * i], {first});\n"
        f"        sum = add_pair(sum, pixels[2 * i + 1], {second});\n"
        "      }\n"
        f"      *out++ = {row.store.print_c('sum', f'rule + 4 + {row.store.words} * c')};\n"
        "    }\n"
        "}"
    )


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
        found += _row_choices(operator, rule, pixels)
    if fits and (pixels >= _FEW_PIXELS or not found):
        found += _block_choices(operator, network, rule)
    if not found:
        raise RefusedError(f"rows of {channels} channels")
    return found


def _is_side_by_side(operator: Convolution) -> bool:
    return operator.window.kernel == (1, 1) and operator.window.strides == (1, 1)


def _block_choices(operator: Convolution, network: Network, rule: DspConstants) -> list[Choice]:
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    pixels, window = height * width, operator.window
    pairs = _widened_pairs(window.kernel[0], window.kernel[1] * depth)
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
    return 0 if _is_plain(operator) else _pad_words(run)


def _scratch(operator: Convolution, network: Network, blocks: _Blocks, words: int) -> int:
    own = blocks.strip * operator.weights.shape[0] if operator.joined else 0
    rows = 0 if blocks.wide else 2
    return 4 * words * (rows + blocks.strip) + _spare(operator) + own


def _estimate(
    operator: Convolution, network: Network, rule: DspConstants, blocks: _Blocks, words: int
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


def _products(rule: DspConstants, blocks: _Blocks, words: int, channels: int, count: int) -> float:
    """Return all channels of one strip of `count` pixels, with the widening of their weights."""
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


def _block(
    blocks: _Blocks, pixels: int, width: int, channels: int, rule: DspConstants
) -> PixelBlock:
    return PixelBlock(
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
    rule: DspConstants,
    blocks: _Blocks,
    pairs: list[tuple[int, int]],
) -> FirmwareKernel:
    (_, _, _), (height, width, channels) = images_of(operator, network)
    pixels, words, strip = height * width, len(pairs), blocks.strip
    flat = operator.weights.reshape(channels, -1)
    rows = _wide_words(flat, pairs) if blocks.wide else _byte_rows(flat, pairs)
    even = channels - channels % 2
    weights = [_interleaved_words(rows[:even], 2), _interleaved_words(rows[even:], 1)]
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
    return FirmwareKernel(
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
            *fields_of(numbers),
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


def _rules(rule: DspConstants) -> np.ndarray:
    """For two channels at a time: their biases, then the constants of each."""
    found: list[int] = []
    for first in range(0, len(rule.bias), 2):
        found += rule.bias[first : first + 2].tolist()
        found += rule.constants[first : first + 2].reshape(-1).tolist()
    return np.array(found, np.int64)
