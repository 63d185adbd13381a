"""Functions of the DSP extension as text: assembly where it exists, the same in C elsewhere.

A function is written in whole, so that no compiler option changes its registers or its count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adrenoc.firmware.mcu.fixed_point import INT8


@dataclass(frozen=True, kw_only=True)
class Store:
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
        """The store as a part of a function's name."""
        bounds = "" if (self.low, self.high) == INT8 else f"_{self.low + 128}_{self.high + 128}"
        if self.single:
            return "single" + bounds
        return ("twice" if self.shift is None else f"s{self.shift}") + bounds

    @property
    def how(self) -> str:
        """How sums become bytes, in words for reports."""
        if self.single:
            return ", scaled in float32"
        return {None: ", rounded twice", 0: ", shifts by channel"}.get(self.shift, "")

    @property
    def words(self) -> int:
        """Words of constants that each channel has beside its bias."""
        return 2 if self.shift else 3

    def scale_sums(self, sums: Sequence[str], spare: tuple[str, str], place: int) -> list[str]:
        """Instructions that make bytes of sums of one channel, whose constants lie at `place`.

        That is an offset from the stack's top; two registers are spare.
        """
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
        """Return a C expression of the byte, from a sum and a pointer to the channel's
        constants."""
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
    """Return a function with two bodies: instructions, for compilers `where` they exist, and a C
    block."""
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
