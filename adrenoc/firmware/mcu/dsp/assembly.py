"""Functions of the DSP extension as text: assembly where it exists, the same in C elsewhere. A
function is written in whole, so that no compiler option changes its registers or its count.

Sums are of products of a few pixels with a few channels, which come as words of two int16. Three
pixels by two channels are what fits into the registers: five loads in two instructions serve twelve
products in six. Constants for each channel make bytes of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu.fixed_point import INT8, high_product, sum_range
from adrenoc.firmware.mcu.operators import Filter


@dataclass(frozen=True, kw_only=True)
class OutputStage:
    """How a sum becomes a byte.

    `shift` above 0: a high product, and that shift for all channels; 0: each channel has its own;
    None: the rule's own two roundings, of twice the sum.  `low` and `high` clamp, beside what
    eight bits do.  `single`: a product in float32, halves to even, whose constants are the factor
    and the zero point; `shift` is 1 then, and none is made.
    """

    shift: int | None
    low: int
    high: int
    single: bool = False

    @property
    def name(self) -> str:
        """Return the store as a part of a function's name."""
        bounds = "" if (self.low, self.high) == INT8 else f"_{self.low + 128}_{self.high + 128}"
        if self.single:
            return "single" + bounds
        return ("twice" if self.shift is None else f"s{self.shift}") + bounds

    @property
    def how(self) -> str:
        """Return how sums become bytes, in words for reports."""
        if self.single:
            return ", scaled in float32"
        return {None: ", rounded twice", 0: ", shifts by channel"}.get(self.shift, "")

    @property
    def words(self) -> int:
        """Words of constants that each channel has beside its bias."""
        return 2 if self.shift else 3

    def scale_sums(self, sums: Sequence[str], spare: tuple[str, str], place: int) -> list[str]:
        """Instructions that make bytes of sums of one channel, whose constants lie at `place`. That
        is an offset from the stack's top; two registers are spare."""
        a, b = spare
        if self.single:
            lines = [f"vldr s1, [sp, #{place}]", f"ldr {b}, [sp, #{place + 4}]"]
            for s in sums:
                lines += self.scale_by_float(s, b)
            return lines + self.saturate(sums)
        lines = [f"ldrd {a}, {b}, [sp, #{place}]"]
        if self.shift is not None:
            lines += [f"smmlar {s}, {s}, {a}, {b}" for s in sums]
            if not self.shift:
                lines.append(f"ldr {a}, [sp, #{place + 8}]")
                lines += [f"asr {s}, {s}, {a}" for s in sums]
            return lines + self.saturate(sums)
        for s in sums:
            lines += [f"smmulr {s}, {s}, {a}", f"add {s}, {s}, {s}, asr #31"]
        lines.append(f"ldr {a}, [sp, #{place + 8}]")
        for s in sums:
            lines += [f"add {s}, {s}, {b}", f"asr {s}, {s}, {a}"]
        return lines + self.saturate(sums)

    @staticmethod
    def scale_by_float(total: str, zero: str) -> list[str]:
        """Instructions that scale a sum by s1; s0 is lost."""
        return [
            f"vmov s0, {total}",
            "vcvt.f32.s32 s0, s0",
            "vmul.f32 s0, s0, s1",
            "vcvtr.s32.f32 s0, s0",
            f"vmov {total}, s0",
            f"add {total}, {total}, {zero}",
        ]

    def saturate(self, sums: Sequence[str]) -> list[str]:
        """Instructions that shift by what all channels have in common, and clamp."""
        lines = []
        for r in sums:
            moved = f", asr #{self.shift}" if self.shift and not self.single else ""
            lines.append(f"ssat {r}, #8, {r}{moved}")
            if self.low > INT8[0]:
                lines += [f"cmp {r}, #{self.low}", "it lt", f"movlt {r}, #{self.low}"]
            if self.high < INT8[1]:
                lines += [f"cmp {r}, #{self.high}", "it gt", f"movgt {r}, #{self.high}"]
        return lines

    def print_c(self, total: str, constants: str) -> str:
        """Return a C expression of the byte, from a sum and a pointer to constants."""
        if self.single:
            raw = f"requantise_single({total}, ({constants})[0], ({constants})[1])"
        elif self.shift is None:
            raw = f"requantise_doubled({total}, {constants})"
        else:
            shift = str(self.shift) if self.shift else f"({constants})[2]"
            raw = f"requantise_high({total}, {constants}, {shift})"
        return f"(int8_t)clamp_int8({raw}, {self.low}, {self.high})"


def function(
    signature: str, lines: Iterable[str], twin: str, *, where: str = "defined(__ARM_FEATURE_DSP)"
) -> str:
    """Return a function with two bodies: instructions for compilers `where` they exist, and C."""
    body = "\n".join(f'      "{line}\\n"' for line in lines)
    return (
        f"#if {where}\n"
        f"__attribute__((naked, noinline)) static void {signature} {{\n"
        '  __asm__ volatile(\n      ".syntax unified\\n"\n'
        f"{body});\n}}\n"
        "#else\n"
        f"static void {signature} {twin}\n"
        "#endif\n"
    )


_MOST_SHIFT = 23


@dataclass(frozen=True, kw_only=True, eq=False)
class DspConstants:
    """`bias` holds the input's zero point; `constants` has a row for each channel. `doubled` wants
    sums twice as large, and so the bias where weights cannot be doubled."""

    store: OutputStage
    bias: np.ndarray
    constants: np.ndarray

    @property
    def doubled(self) -> bool:
        """Return whether the code scales twice the sum."""
        return self.store.shift is None


@lru_cache(maxsize=1024)
def pack_constants(operator: Filter) -> DspConstants:
    """Return one product where its constants can be had, else the rule's own two roundings. Raises
    RefusedError where neither covers the rule, with the reason."""
    rule, bias = operator.requantise, operator.moved_bias
    for one_shift in (True, False):
        try:
            product = high_product(operator, one_shift=one_shift)
        except RefusedError:
            if not one_shift and rule.reals.dtype == np.float32:
                return _single(operator, bias)
            if not one_shift and rule.reals.size:
                raise
            continue
        columns = [product.multipliers, product.offsets, product.shifts]
        shift = int(product.shifts[0]) if one_shift else 0
        return DspConstants(
            store=OutputStage(shift=shift, low=rule.low, high=rule.high),
            bias=bias + product.nudges,
            constants=np.stack(columns[:2] if one_shift else columns, 1),
        )
    return _twice(operator, bias)


def _single(operator: Filter, bias: np.ndarray) -> DspConstants:
    """Return the rule's own product in float32, where no whole numbers round as it does."""
    rule = operator.requantise
    sum_range(operator)
    factors = rule.reals.view(np.int32).astype(np.int64)
    return DspConstants(
        store=OutputStage(shift=1, low=rule.low, high=rule.high, single=True),
        bias=bias,
        constants=np.stack([factors, np.full(len(factors), rule.zero, np.int64)], 1),
    )


def _twice(operator: Filter, bias: np.ndarray) -> DspConstants:
    rule = operator.requantise
    least, most = sum_range(operator)
    if max(-int(least.min()), int(most.max())) >= 1 << 30:
        raise RefusedError("sums beyond 31 bits")
    # A multiplier of zero gives the zero point with any shift.
    shifts = np.where(rule.multipliers == 0, 1, -rule.shifts)
    if (shifts < 1).any() or (shifts > _MOST_SHIFT).any():
        raise RefusedError(f"shifts of {shifts.min()} to {shifts.max()} bits")
    rounding = (np.int64(1) << (shifts - 1)) + (np.int64(rule.zero) << shifts)
    return DspConstants(
        store=OutputStage(shift=None, low=rule.low, high=rule.high),
        bias=bias,
        constants=np.stack([rule.multipliers, rounding, shifts], 1),
    )


_SUMS = ("r0", "r1", "r2", "r3", "r4", "r5")
_PIXELS = ("r6", "r7", "r8")
_WEIGHTS = ("r9", "r10")
MOST_OFFSET = 4095
"""The largest offset that an instruction adds to an address, in bytes."""


@dataclass(frozen=True, kw_only=True)
class PixelBlock:
    """A function for groups of `pixels` pixels and a group of `channels` channels.

    It reads pixels up to `end`, for each group the same weights up to `last`, `unroll` words of
    each at a time, and writes rows of `stride` bytes.  `rule` has the biases, then the constants.
    `between`: each word of weights is loaded before its products, not with the others.
    """

    pixels: int
    channels: int
    unroll: int
    stride: int
    store: OutputStage
    between: bool = False

    @property
    def name(self) -> str:
        """Return the name of the function."""
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


def block_code(block: PixelBlock) -> str:
    """Return the function."""
    lines = [line for part in _parts(block) for line in part]
    twin = _twin(block.pixels, block.channels, block.stride, block.store)
    return function(_signature(block.name), lines, twin)


def _parts(block: PixelBlock) -> tuple[list[str], ...]:
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


def _word(block: PixelBlock, sums: list[list[str]]) -> list[str]:
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


def _twin(pixels: int, channels: int, stride: int, store: OutputStage) -> str:
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
