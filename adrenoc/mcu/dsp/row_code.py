"""Sums of products of one pixel with four channels at a time: dense layers.

Weights stay bytes in flash and are widened between the products.
"""

from __future__ import annotations

from adrenoc.mcu.dsp.assembly import Store, function

_SUMS = ("r0", "r1", "r2", "r3")
_WEIGHTS = ("r6", "r7", "r8", "r9")
CHANNELS = 4
UNROLL = 2
"""Words of bytes in a round of the inner loop."""


def row_name(store: Store) -> str:
    """The name of the function of `row_code`."""
    return f"products_row_{store.name}"


def row_code(store: Store) -> str:
    """A function for one pixel, of words of two int16 up to `end`, and weights up to `last`.

    `rule` has four biases, then the constants of four channels, for each group of them.
    """
    lines = ["push {r4-r11, lr}", "push {r0, r2, r3}", "mov r12, r1", "ldr lr, [sp, #48]", "1:"]
    lines += ["ldr r10, [sp, #4]", "ldmia r10!, {r0-r3}", "str r10, [sp, #4]", "ldr r11, [sp]"]
    lines.append("2:")
    for _ in range(UNROLL):
        lines += ["ldrd r4, r5, [r11], #8", "ldmia r12!, {r6-r9}"]
        for s, w in zip(_SUMS, _WEIGHTS, strict=True):
            lines += [f"sxtb16 r10, {w}", f"sxtb16 {w}, {w}, ror #8"]
            lines += [f"smlad {s}, r4, r10, {s}", f"smlad {s}, r5, {w}, {s}"]
    lines += ["cmp r11, lr", "bne 2b", "ldr r10, [sp, #4]"]
    for s in _SUMS:
        if store.single:
            lines += ["vldr s1, [r10]", "ldr r4, [r10, #4]", "adds r10, #8"]
            lines += store.by_float(s, "r4")
        elif store.shift:
            lines += ["ldmia r10!, {r4, r5}", f"smmlar {s}, {s}, r4, r5"]
        else:
            lines += ["ldmia r10!, {r4-r6}", f"smmlar {s}, {s}, r4, r5", f"asr {s}, {s}, r6"]
    lines += ["str r10, [sp, #4]", *store.saturated(_SUMS)]
    lines.append("ldr r10, [sp, #8]")
    lines += [f"strb {s}, [r10, #{c}]" for c, s in enumerate(_SUMS)]
    lines += ["add r10, r10, #4", "str r10, [sp, #8]", "ldr r4, [sp, #52]", "cmp r12, r4"]
    lines += ["bne 1b", "add sp, sp, #12", "pop {r4-r11, pc}"]
    signature = (
        f"{row_name(store)}(const uint32_t *pixels, const uint32_t *weights,\n"
        "    const int32_t *rule, int8_t *out, const uint32_t *end, const uint32_t *last)"
    )
    return function(signature, lines, _twin(store))


def _twin(store: Store) -> str:
    return (
        "{\n"
        "  const int32_t words = (int32_t)(end - pixels);\n"
        f"  for (; weights != last; weights += 2 * words, rule += {4 + 4 * store.words})\n"
        "    for (int32_t c = 0; c < 4; ++c) {\n"
        "      int32_t sum = rule[c];\n"
        "      for (int32_t i = 0; i < words / 2; ++i) {\n"
        "        const uint32_t four = weights[4 * i + c];\n"
        "        sum = add_pair(sum, pixels[2 * i], even_bytes(four));\n"
        "        sum = add_pair(sum, pixels[2 * i + 1], odd_bytes(four));\n"
        "      }\n"
        f"      *out++ = {store.in_c('sum', f'rule + 4 + {store.words} * c')};\n"
        "    }\n"
        "}"
    )
