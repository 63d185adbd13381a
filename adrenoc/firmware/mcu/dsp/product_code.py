"""Sums of products of a few pixels with a few channels: the code of the inner loops.

Pixels and weights come as words of two int16.  Three pixels by two channels are what fits into
the registers: five loads in two instructions serve twelve products in six.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.firmware.mcu.dsp.assembly import Store, function

_SUMS = ("r0", "r1", "r2", "r3", "r4", "r5")
_PIXELS = ("r6", "r7", "r8")
_WEIGHTS = ("r9", "r10")
MOST_OFFSET = 4095
"""The largest offset that an instruction adds to an address, in bytes."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A function for groups of `pixels` pixels and a group of `channels` channels.

    It reads pixels up to `end`, for each group the same weights up to `last`, `unroll` words of
    each at a time, and writes rows of `stride` bytes.  `rule` has the biases, then the constants.
    `between`: each word of weights is loaded before its products, not with the others.
    """

    pixels: int
    channels: int
    unroll: int
    stride: int
    store: Store
    between: bool = False

    @property
    def name(self) -> str:
        """The name of the function."""
        order = "b" if self.between else ""
        return (
            f"products_{self.pixels}x{self.channels}_u{self.unroll}{order}"
            f"_c{self.stride}_{self.store.name}"
        )

    def instructions(self, groups: int, words: int) -> int:
        """Return how many a call takes, for so many groups of pixels, of so many words."""
        enter, begin, inner, finish, leave = map(len, _parts(self))
        rounds = words // self.unroll
        return enter + groups * (begin - 2 + rounds * inner + finish) + leave


def block_code(block: Block) -> str:
    """Return the function."""
    lines = [line for part in _parts(block) for line in part]
    twin = _twin(block.pixels, block.channels, block.stride, block.store)
    return function(_signature(block.name), lines, twin)


def _parts(block: Block) -> tuple[list[str], ...]:
    """Instructions before the groups, before a group's products, a round of them, what follows
    them in a group, and what follows all groups."""
    pixels, channels, store = block.pixels, block.channels, block.store
    sums = [list(_SUMS[3 * c : 3 * c + pixels]) for c in range(channels)]
    words = channels * (1 + store.words)
    frame = 4 * (2 + words)
    enter = ["push {r4-r11, lr}", *_constants_to_stack(words), "push {r1, r3}", "mov r11, r0"]
    enter.append(f"ldr lr, [sp, #{frame + 36 + 4}]")
    begin = ["1:", "ldr r12, [sp, #0]"]
    for c in range(channels):
        begin.append(f"ldr {sums[c][0]}, [sp, #{8 + 4 * c}]")
        begin += [f"mov {r}, {sums[c][0]}" for r in sums[c][1:]]
    begin.append("2:")
    inner = [line for _ in range(block.unroll) for line in _word(block, sums)]
    inner += ["cmp r12, lr", "bne 2b"]
    finish = []
    for c in range(channels):
        if store.shift is None:
            finish += [f"add {s}, {s}, {s}" for s in sums[c]]
        place = 8 + 4 * channels + 4 * store.words * c
        finish += store.scale_sums(sums[c], ("r6", "r7"), place)
    finish.append("ldr r10, [sp, #4]")
    for c in range(channels):
        finish += [f"strb {s}, [r10, #{block.stride * p + c}]" for p, s in enumerate(sums[c])]
    finish += [f"add r10, r10, #{block.stride * pixels}", "str r10, [sp, #4]"]
    finish += [f"ldr r6, [sp, #{frame + 36}]", "cmp r11, r6", "bne 1b"]
    leave = [f"add sp, sp, #{frame}", "pop {r4-r11, pc}"]
    return enter, begin, inner, finish, leave


def _word(block: Block, sums: list[list[str]]) -> list[str]:
    """Return the products of one word of each pixel with one of each channel."""
    pixels, weights = _PIXELS[: block.pixels], _WEIGHTS[: block.channels]
    lines = [_load(pixels, "r11")]
    if not block.between:
        lines.append(_load(weights, "r12"))
    for w, row in zip(weights, sums, strict=True):
        if block.between:
            lines.append(_load((w,), "r12"))
        lines += [f"smlad {s}, {p}, {w}, {s}" for s, p in zip(row, pixels, strict=True)]
    return lines


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
        f"{store.print_c(total, scale)};\n"
        "      }\n"
        "}"
    )
