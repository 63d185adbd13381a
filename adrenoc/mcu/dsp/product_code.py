"""Sums of products of a few pixels with a few channels: the code of the inner loops.

Pixels and weights come as words of two int16.  Three pixels by two channels are what fits into
the registers: five loads in two instructions serve twelve products in six.
"""

from __future__ import annotations

from adrenoc.mcu.dsp.assembly import Store, function

_SUMS = ("r0", "r1", "r2", "r3", "r4", "r5")
_PIXELS = ("r6", "r7", "r8")
_WEIGHTS = ("r9", "r10")
MOST_OFFSET = 4095
"""That an instruction adds to an address."""


def block_name(pixels: int, channels: int, unroll: int, stride: int, store: Store) -> str:
    """The name of the function of `block_code`."""
    return f"products_{pixels}x{channels}_u{unroll}_c{stride}_{store.name}"


def block_code(pixels: int, channels: int, unroll: int, stride: int, store: Store) -> str:
    """A function for groups of `pixels` pixels and a group of `channels` channels.

    It reads pixels up to `end`, for each group the same weights up to `last`, `unroll` words of
    each at a time, and writes rows of `stride` bytes.  `rule` has the biases, then the constants.
    """
    sums = [list(_SUMS[3 * c : 3 * c + pixels]) for c in range(channels)]
    words = channels * (1 + store.words)
    frame = 4 * (2 + words)
    lines = ["push {r4-r11, lr}", *_constants_to_stack(words), "push {r1, r3}", "mov r11, r0"]
    lines += [f"ldr lr, [sp, #{frame + 36 + 4}]", "1:", "ldr r12, [sp, #0]"]
    for c in range(channels):
        lines.append(f"ldr {sums[c][0]}, [sp, #{8 + 4 * c}]")
        lines += [f"mov {r}, {sums[c][0]}" for r in sums[c][1:]]
    lines.append("2:")
    for _ in range(unroll):
        lines += [_load(_PIXELS[:pixels], "r11"), _load(_WEIGHTS[:channels], "r12")]
        for c in range(channels):
            pairs = zip(sums[c], _PIXELS[:pixels], strict=True)
            lines += [f"smlad {s}, {p}, {_WEIGHTS[c]}, {s}" for s, p in pairs]
    lines += ["cmp r12, lr", "bne 2b"]
    for c in range(channels):
        if store.shift is None:
            lines += [f"add {s}, {s}, {s}" for s in sums[c]]
        place = 8 + 4 * channels + 4 * store.words * c
        lines += store.scaled(sums[c], ("r6", "r7"), place)
    lines.append("ldr r10, [sp, #4]")
    for c in range(channels):
        lines += [f"strb {s}, [r10, #{stride * p + c}]" for p, s in enumerate(sums[c])]
    lines += [f"add r10, r10, #{stride * pixels}", "str r10, [sp, #4]"]
    lines += [f"ldr r6, [sp, #{frame + 36}]", "cmp r11, r6", "bne 1b"]
    lines += [f"add sp, sp, #{frame}", "pop {r4-r11, pc}"]
    name = block_name(pixels, channels, unroll, stride, store)
    return function(_signature(name), lines, _twin(pixels, channels, stride, store))


def _signature(name: str) -> str:
    return (
        f"{name}(const uint32_t *pixels, const uint32_t *weights, const int32_t *rule,\n"
        "    int8_t *out, const uint32_t *end, const uint32_t *last)"
    )


def _constants_to_stack(words: int) -> list[str]:
    """Push `words` words from r2 on, so that the first lies lowest."""
    registers = [f"r{n}" for n in range(4, 4 + words)]
    listed = "{" + ", ".join(registers) + "}"
    return [f"ldmia r2, {listed}", f"push {listed}"]


def _load(registers: tuple[str, ...], pointer: str) -> str:
    if len(registers) == 1:
        return f"ldr {registers[0]}, [{pointer}], #4"
    return f"ldmia {pointer}!, {{{', '.join(registers)}}}"


def _twin(pixels: int, channels: int, stride: int, store: Store) -> str:
    scale = f"rule + {channels} + {store.words} * c"
    total = "2 * sum" if store.shift is None else "sum"
    return (
        "{\n"
        f"  const int32_t words = (int32_t)(last - weights) / {channels};\n"
        f"  for (; pixels != end; pixels += {pixels} * words, out += {pixels * stride})\n"
        f"    for (int32_t p = 0; p < {pixels}; ++p)\n"
        f"      for (int32_t c = 0; c < {channels}; ++c) {{\n"
        "        int32_t sum = rule[c];\n"
        "        for (int32_t i = 0; i < words; ++i)\n"
        f"          sum = add_pair(sum, pixels[{pixels} * i + p], weights[{channels} * i + c]);\n"
        f"        out[p * {stride} + c] = "
        f"{store.in_c(total, scale)};\n"
        "      }\n"
        "}"
    )
