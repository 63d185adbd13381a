"""Products of a few pixels, one at a time, by four channels at once: dense layers.

Weights stay bytes in flash and are widened between the products, or lie there widened.

Weights in the order in which the code of the DSP extension reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from adrenoc.firmware.mcu.dsp.assembly import Store, function
from adrenoc.firmware.mcu.dsp.constants import Stored
from adrenoc.firmware.mcu.kernel import Array, Kernel
from adrenoc.firmware.mcu.operators import Convolution
from adrenoc.firmware.mcu.schedule import Choice

_WORDS = 4
"""Widened words come in groups of so many."""


def pairs_of_run(count: int) -> list[tuple[int, int]]:
    """Which two bytes of a run each widened word holds; -1 is one that does not count."""
    pairs = []
    for four in range(0, count - 3, 4):
        pairs += [(four, four + 2), (four + 1, four + 3)]
    tail = count - count % 4
    pairs += [[], [(tail, -1)], [(tail, tail + 1)], [(tail, tail + 2), (tail + 1, -1)]][count % 4]
    return pairs


def pad_words(words: int, multiple: int = _WORDS) -> int:
    """Round words up to whole groups."""
    return -(-words // multiple) * multiple


def widened_pairs(runs: int, run: int, multiple: int = _WORDS) -> list[tuple[int, int]]:
    """Which two weights each widened word multiplies, of `runs` runs of `run` bytes each."""
    found = []
    for start in range(0, runs * run, run):
        for low, high in pairs_of_run(run):
            found.append((start + low, start + high if high >= 0 else -1))
    return found + [(-1, -1)] * (pad_words(len(found), multiple) - len(found))


def byte_rows(weights: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return the bytes of each channel (rows) whose even and odd ones widen to `pairs`."""
    extended = np.concatenate([weights, np.zeros((len(weights), 1), weights.dtype)], 1)
    order = []
    for (low, high), (next_low, next_high) in zip(pairs[::2], pairs[1::2], strict=True):
        order += [low, next_low, high, next_high]
    return extended[:, order].astype(np.int8)


def interleaved_words(rows: np.ndarray, group: int) -> np.ndarray:
    """Words of four bytes: the first of each row of a group, then the second ..."""
    words = np.ascontiguousarray(rows).view("<u4")
    missing = -len(words) % group
    words = np.concatenate([words, np.zeros((missing, words.shape[1]), words.dtype)])
    return words.reshape(-1, group, words.shape[1]).transpose(0, 2, 1).reshape(-1)


def wide_words(weights: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return the bytes of each channel (rows) as the words of two int16 that `pairs` names."""
    extended = np.concatenate([weights, np.zeros((len(weights), 1), weights.dtype)], 1)
    flat = [place for pair in pairs for place in pair]
    return np.ascontiguousarray(extended[:, flat].astype("<i2")).view(np.int8)


_SNIPPETS = ("requantise", "pairs", "widen_run", "rows")
_UNROLLS = (1, 2, 4)
_LEAST_UNROLL = 2
"""Pixels are padded to whole rounds of so many words of bytes."""
_ENTRY = 30
"""Instructions of a pixel beside its products, as gcc makes them."""
_WIDENING = 2.25
"""Instructions a byte of a pixel."""


def row_choices(operator: Convolution, rule: Stored, pixels: int) -> list[Choice]:
    """Return the schedules of a window of 1x1, a pixel at a time."""
    channels, _, _, depth = operator.weights.shape
    groups = -(-channels // CHANNELS)
    found = []
    for unroll in _UNROLLS:
        pairs = widened_pairs(1, depth, 2 * _LEAST_UNROLL)
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
                    make=partial(_kernel, operator, rule, row, pixels, pairs),
                    spare_bytes=2 * len(pairs) * groups * CHANNELS if wide else 0,
                )
            )
    return found


def _kernel(
    operator: Convolution, rule: Stored, row: Row, pixels: int, pairs: list[tuple[int, int]]
) -> Kernel:
    channels, _, _, depth = operator.weights.shape
    weights = operator.weights.reshape(channels, depth)
    words = wide_words(weights, pairs) if row.wide else byte_rows(weights, pairs)
    arrays = (
        Array(suffix="weights", ctype="uint32_t", values=interleaved_words(words, CHANNELS)),
        Array(suffix="rules", ctype="int32_t", values=_rules(rule, channels)),
    )
    numbers = {"pixels": pixels, "depth": depth, "channels": channels, "words": len(pairs)}
    numbers |= {
        "rule_words": 1 + rule.store.words,
        "weight_words": len(pairs) // (1 if row.wide else 2),
    }
    return Kernel(
        call="run_rows(&{layer}, {in0}, {out}, (uint32_t *)({scratch}));",
        how="SMLAD, a pixel by 4 channels" + rule.store.how,
        snippets=_SNIPPETS,
        texts=(row_code(row),),
        arrays=arrays,
        struct="row_layer",
        fields=(
            *((key, str(value)) for key, value in numbers.items()),
            ("weights", "{layer}_weights"),
            ("rules", "{layer}_rules"),
            ("row", row.name),
        ),
        scratch_bytes=4 * len(pairs),
    )


def _rules(rule: Stored, channels: int) -> np.ndarray:
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
    store: Store

    @property
    def name(self) -> str:
        """The name of the function."""
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
