"""Functions of the DSP extension as text: assembly where it exists, the same in C elsewhere.

A function is written in whole, so that no compiler option changes its registers or its count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adrenoc.mcu.fixed_point import INT8


@dataclass(frozen=True, kw_only=True)
class Store:
    """How a sum becomes a byte.

    `shift`: the one shift of a high product with fitted constants; None: the rule's own two
    roundings, each channel with its shift.  `low` and `high` clamp, beside what eight bits do.
    """

    shift: int | None
    low: int
    high: int

    @property
    def name(self) -> str:
        """As a part of a function's name."""
        bounds = "" if (self.low, self.high) == INT8 else f"_{self.low + 128}_{self.high + 128}"
        return ("twice" if self.shift is None else f"s{self.shift}") + bounds

    @property
    def words(self) -> int:
        """Of constants for each channel, beside the bias."""
        return 3 if self.shift is None else 2

    def saturated(self, registers: Sequence[str]) -> list[str]:
        """Instructions that make bytes of shifted sums."""
        lines = []
        for r in registers:
            moved = f", asr #{self.shift}" if self.shift else ""
            lines.append(f"ssat {r}, #8, {r}{moved}")
            if self.low > INT8[0]:
                lines += [f"cmp {r}, #{self.low}", "it lt", f"movlt {r}, #{self.low}"]
            if self.high < INT8[1]:
                lines += [f"cmp {r}, #{self.high}", "it gt", f"movgt {r}, #{self.high}"]
        return lines

    def in_c(self, total: str, constants: str) -> str:
        """A C expression of the byte, from a sum and a pointer to the channel's constants."""
        if self.shift is None:
            raw = f"requantise_doubled({total}, {constants})"
        else:
            raw = f"requantise_high({total}, {constants}, {self.shift})"
        return f"(int8_t)clamp_int8({raw}, {self.low}, {self.high})"


def function(signature: str, lines: Iterable[str], twin: str) -> str:
    """A function with two bodies: instructions, and a C block."""
    body = "\n".join(f'      "{line}\\n"' for line in lines)
    return (
        "#if defined(__ARM_FEATURE_DSP)\n"
        f"__attribute__((naked, noinline)) static void {signature} {{\n"
        '  __asm__ volatile(\n      ".syntax unified\\n"\n'
        f"{body});\n}}\n"
        "#else\n"
        f"static void {signature} {twin}\n"
        "#endif\n"
    )
