"""Convolutions of any window as products of widened pixels and weights; of dense layers one pixel
at a time by four channels at once. Weights stay bytes in flash and are widened between the
products, or lie there widened, in the order in which the code reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from adrenoc.base.errors import RefusedError
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
from adrenoc.firmware.mcu.kernel import (
    Array,
    Choice,
    FirmwareKernel,
    fields_of,
    strips_of,
    table_text,
)
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


_UNROLLS = (1, 2, 4)
_LEAST_UNROLL = 2
"""Pixels are padded to whole rounds of so many words of bytes."""
_ENTRY = 30
"""Instructions of a pixel beside its products, as gcc makes them."""
_WIDENING = 2.25
"""Instructions a byte of a pixel."""


def _row_choices(operator: Convolution, rule: DspConstants, pixels: int) -> list[Choice]:
    channels, _, _, depth = operator.weights.shape
    groups = -(-channels // CHANNELS)
    pairs = _widened_pairs(1, depth, 2 * _LEAST_UNROLL)
    found = []
    for unroll in (u for u in _UNROLLS if len(pairs) % (2 * u) == 0):
        for wide in (False, True):
            row = Row(unroll=unroll, wide=wide, store=rule.store)
            of_pixel = _ENTRY + _WIDENING * depth + row.instructions(groups, len(pairs))
            found.append(
                Choice(
                    actions={
                        "way": "rows",
                        "unroll": unroll,
                        "weights": "words" if wide else "bytes",
                    },
                    instructions=pixels * of_pixel,
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
    numbers = {
        "pixels": pixels,
        "depth": depth,
        "channels": channels,
        "words": len(pairs),
        "rule_words": 1 + rule.store.words,
        "weight_words": len(pairs) // (1 if row.wide else 2),
    }
    signature = (
        f"{row.name}(const uint32_t *pixels, const uint32_t *weights,\n"
        "    const int32_t *rule, int8_t *out, const uint32_t *end, const uint32_t *last)"
    )
    return FirmwareKernel(
        call="run_rows(&{layer}, {in0}, {out}, (uint32_t *)({scratch}));",
        how="SMLAD, a pixel by 4 channels" + rule.store.how,
        snippets=("requantise", "pairs", "widen_run", "rows"),
        texts=(function(signature, [line for part in _parts(row) for line in part], _twin(row)),),
        arrays=arrays,
        struct="row_layer",
        fields=fields_of(numbers, arrays, {"row": row.name}),
        scratch_bytes=4 * len(pairs),
    )


def _row_rules(rule: DspConstants, channels: int) -> np.ndarray:
    """Pack four channels at a time: their biases, then the constants of each."""
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
        """Return how many a call takes, for groups of channels and words of a pixel."""
        enter, begin, inner, finish, leave = map(len, _parts(self))
        rounds = words // (2 * self.unroll)
        return enter + groups * (begin - 2 + rounds * inner + finish) + leave


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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Blocks:
    """A schedule of blocks: pixels that are widened at once, words a round, how weights lie."""

    operator: Convolution
    rule: DspConstants
    pixels: int
    pairs: list[tuple[int, int]]
    """The two weights of each word of a pixel."""
    strip: int
    unroll: int
    wide: bool
    between: bool

    @property
    def channels(self) -> int:
        return int(self.operator.weights.shape[0])

    @property
    def is_plain(self) -> bool:
        """Return whether three pixels may be widened side by side."""
        return self.operator.is_dense and self.operator.weights.shape[3] % 4 == 0

    @property
    def row_bytes(self) -> int:
        """Return what one row of a window takes, as its border fills it."""
        run = self.operator.window.kernel[1] * self.operator.weights.shape[3]
        return 0 if self.is_plain else _pad_words(run)

    @property
    def scratch_bytes(self) -> int:
        """Return what weights, pixels, a row and what is added to take while it runs."""
        own = self.strip * self.channels if self.operator.joined else 0
        rows = 0 if self.wide else 2
        return 4 * len(self.pairs) * (rows + self.strip) + self.row_bytes + own

    @property
    def instructions(self) -> float:
        """Estimate them: the products are counted, the code around them is fitted."""
        depth, (height, across) = self.operator.weights.shape[3], self.operator.window.kernel
        if self.is_plain:
            widened = self.pixels * depth * 1.0 + self.pixels * 10
        else:
            row = _WINDOW_ROW + _WIDENED_BYTE * across * depth
            widened = self.pixels * (_PIXEL + height * row)
        added = _ADDED * self.pixels * self.channels if self.operator.joined else 0
        total = _LAYER + widened + added
        strips = Counter({min(self.strip, self.pixels): self.pixels // self.strip or 1})
        if self.pixels > self.strip and self.pixels % self.strip:
            strips[self.pixels % self.strip] += 1
        for count, times in strips.items():
            total += times * (_STRIP + self._count_products(count))
        return total

    def _count_products(self, count: int) -> float:
        """All channels of one strip of `count` pixels, with the widening of their weights."""
        total, words = 0.0, len(self.pairs)
        for width, times in ((2, self.channels // 2), (1, self.channels % 2)):
            own = float(_PAIR)
            if not self.wide:
                own += 18 + (13 / 8 * 2 if width == 2 else 3.0) * words
            for pixels, groups in ((3, count // 3), (count % 3, 1)):
                if pixels and groups:
                    own += self._block(pixels, width).instructions(groups, words)
            total += times * own
        return total

    def _block(self, pixels: int, width: int) -> PixelBlock:
        return PixelBlock(
            pixels=pixels,
            channels=width,
            unroll=self.unroll,
            stride=self.channels,
            store=self.rule.store,
            between=self.between,
        )

    def choice(self, network: Network) -> Choice:
        actions = {
            "way": "blocks",
            "strip": self.strip,
            "unroll": self.unroll,
            "weights": "words" if self.wide else "bytes",
            "loads": "between" if self.between else "first",
        }
        return Choice(
            actions=actions,
            instructions=self.instructions,
            scratch_bytes=self.scratch_bytes,
            make=partial(self.kernel, network),
            spare_bytes=2 * len(self.pairs) * self.channels if self.wide else 0,
        )

    def kernel(self, network: Network) -> FirmwareKernel:
        operator, rule, channels = self.operator, self.rule, self.channels
        flat = operator.weights.reshape(channels, -1)
        rows = (_wide_words if self.wide else _byte_rows)(flat, self.pairs)
        even = channels - channels % 2
        weights = [_interleaved_words(rows[:even], 2), _interleaved_words(rows[even:], 1)]
        counts = {min(self.strip, self.pixels), self.pixels % self.strip}
        groups = {3 for count in counts if count >= 3} | {count % 3 for count in counts} - {0}
        widths = ({2} if channels > 1 else set()) | ({1} if channels % 2 else set())
        blocks = {(c, p): self._block(p, c) for p in sorted(groups) for c in sorted(widths)}
        numbers = {
            "pixels": self.pixels,
            "channels": channels,
            "words": len(self.pairs),
            "strip": self.strip,
            "plain_pixels": int(self.is_plain),
            "rule_words": 1 + rule.store.words,
            "spare_bytes": self.row_bytes,
            "wide_weights": int(self.wide),
            "adds": int(operator.joined is not None),
            "sum": sum_fields(operator.joined),
        }
        arrays = (
            Array(suffix="weights", ctype="uint32_t", values=np.concatenate(weights)),
            Array(suffix="rules", ctype="int32_t", values=_rules(rule)),
        )
        added = "{in1}" if operator.joined else "0"
        names = {key: block.name for key, block in blocks.items()}
        table = {"blocks": table_text(names, (1, 2), (1, 2, 3))}
        patch = {"patch": patch_fields(operator, network)}
        return FirmwareKernel(
            call=f"run_products(&{{layer}}, {{in0}}, {added}, {{out}}, (uint32_t *)({{scratch}}));",
            how="SMLAD, 3 pixels by 2 channels" + rule.store.how,
            snippets=_SNIPPETS,
            texts=tuple(map(block_code, blocks.values())),
            arrays=arrays,
            struct="product_layer",
            fields=fields_of(patch, numbers, arrays, table),
            scratch_bytes=self.scratch_bytes,
            gap_bytes=self._gap_bytes(),
            gap_source=1 if operator.joined else None,
        )

    def _gap_bytes(self) -> int | None:
        """Return how far before the input the output begins: a strip is read, then written. A sum
        is written over its other operand, each number where it was read."""
        if self.operator.joined is not None or not self.operator.is_dense:
            return None if self.operator.joined is None else 0
        depth = self.operator.weights.shape[3]
        return max(0, (self.pixels - 1) // self.strip * self.strip * (self.channels - depth))


def product_choices(operator: Convolution, network: Network) -> list[Choice]:
    """Return the schedules of a convolution or a dense layer. Raises RefusedError where its rule or
    its shape is not covered."""
    rule = pack_constants(operator)
    _, (height, width, channels) = images_of(operator, network)
    pixels = height * width
    fits = 3 * channels <= MOST_OFFSET
    single = operator.is_dense and operator.joined is None and not rule.doubled
    found: list[Choice] = []
    if single and pixels <= _MOST_SINGLES and (pixels < _FEW_PIXELS or fits):
        found += _row_choices(operator, rule, pixels)
    if fits and (pixels >= _FEW_PIXELS or not found):
        found += [blocks.choice(network) for blocks in _list_blocks(operator, rule, pixels)]
    if not found:
        raise RefusedError(f"rows of {channels} channels")
    return found


def _list_blocks(operator: Convolution, rule: DspConstants, pixels: int) -> list[_Blocks]:
    (height, across), depth = operator.window.kernel, operator.weights.shape[3]
    pairs = _widened_pairs(height, across * depth)
    unrolls = [u for u in range(1, _MOST_UNROLL + 1) if len(pairs) % u == 0]
    # Fewer loops are always fewer instructions; a board's cache may think otherwise.
    best, less = unrolls[-1], unrolls[len(unrolls) // 2]
    forms = [(strip, best, False) for strip in strips_of(pixels, 3)]
    last = forms[-1][0]
    forms += [(last, less, False), (last, best, True)]
    return [
        _Blocks(
            operator=operator,
            rule=rule,
            pixels=pixels,
            pairs=pairs,
            strip=strip,
            unroll=unroll,
            wide=wide,
            between=between,
        )
        for strip, unroll, between in dict.fromkeys(forms)
        for wide in (False, True)
    ]


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
    y, x = (d if n > 1 else 1 for d, n in zip(window.dilations, window.kernel, strict=True))
    images = {"in_height": in_height, "in_width": in_width, "depth": depth}
    fields = replace(window, dilations=(y, x)).fields(dilated=True)
    return _struct({**images, **fields, "out_width": width, "zero": operator.zero_in})


def sum_fields(joined: Sum | None) -> str:
    """Return the struct `line_layer` of the sum that a convolution takes, if it does."""
    if joined is None:
        return "{{0}}"
    bounds = {"low": joined.requantise.low, "high": joined.requantise.high}
    return _struct({**asdict(sum_product(joined)), **bounds})


def _struct(numbers: Mapping[str, int]) -> str:
    return "{{" + ", ".join(f".{key} = {value}" for key, value in numbers.items()) + "}}"


def _rules(rule: DspConstants) -> np.ndarray:
    """Pack two channels at a time: their biases, then the constants of each."""
    found: list[int] = []
    for first in range(0, len(rule.bias), 2):
        found += rule.bias[first : first + 2].tolist()
        found += rule.constants[first : first + 2].reshape(-1).tolist()
    return np.array(found, np.int64)
