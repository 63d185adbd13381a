"""Sums of products of one pixel with four channels at a time: dense layers.

Weights stay bytes in flash and are widened between the products, or lie there widened.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.firmware.mcu.dsp.assembly import Store, function

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
