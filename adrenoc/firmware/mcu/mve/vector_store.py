"""How a vector of four sums becomes four bytes, with the constants of `dsp.constants`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adrenoc.firmware.mcu.dsp.assembly import Store
from adrenoc.firmware.mcu.dsp.constants import Stored

LANES = 4
GUARD = "defined(__ARM_FEATURE_MVE)"
"""What the preprocessor knows of a compiler for the vector extension."""


def gather_registers(vector: int, registers: Sequence[str]) -> list[str]:
    """Instructions that put four registers into the lanes of a vector, in order."""
    first, second, third, fourth = registers
    return [f"vmov d{2 * vector}, {first}, {second}", f"vmov d{2 * vector + 1}, {third}, {fourth}"]


def scale_by_float(sums: str, factors: str) -> list[str]:
    """Instructions that scale sums in float32, halves to even."""
    return [
        f"vcvt.f32.s32 {sums}, {sums}",
        f"vmul.f32 {sums}, {sums}, {factors}",
        f"vcvtn.s32.f32 {sums}, {sums}",
    ]


@dataclass(frozen=True, kw_only=True)
class VectorStore:
    """A `Store`, four channels a vector: rows of biases, multipliers, offsets, perhaps shifts."""

    store: Store

    @property
    def rows(self) -> int:
        """Rows of constants that a group of four channels has."""
        return 3 if self.store.shift else 4

    def bounds(self, low: str, high: str, spare: str) -> list[str]:
        """Instructions that fill two vectors with the bounds, by way of a spare register."""
        return [
            f"mov {spare}, #{self.store.low}",
            f"vdup.32 {low}, {spare}",
            f"mov {spare}, #{self.store.high}",
            f"vdup.32 {high}, {spare}",
        ]

    def scale_sums(
        self, sums: Sequence[str], constants: Sequence[str], spare: str, bounds: tuple[str, str]
    ) -> list[str]:
        """Instructions from sums to bytes, with a vector for each row of constants.

        The first of these, and `spare`, may be lost.
        """
        bias, multiplier, offset = constants[:3]
        lines = [f"vadd.i32 {s}, {s}, {bias}" for s in sums]
        if self.store.single:
            for s in sums:
                lines += scale_by_float(s, multiplier)
        elif self.store.shift is None:
            for s in sums:
                lines += [f"vqrdmulh.s32 {s}, {s}, {multiplier}", f"vshr.s32 {spare}, {s}, #31"]
                lines += [f"vadd.i32 {s}, {s}, {spare}"]
        else:
            lines += [f"vrmulh.s32 {s}, {s}, {multiplier}" for s in sums]
        lines += [f"vadd.i32 {s}, {s}, {offset}" for s in sums]
        if self.store.single:
            pass
        elif self.store.shift:
            lines += [f"vshr.s32 {s}, {s}, #{self.store.shift}" for s in sums]
        else:
            lines += [f"vshl.s32 {s}, {s}, {constants[3]}" for s in sums]
        for s in sums:
            lines += [f"vmax.s32 {s}, {s}, {bounds[0]}", f"vmin.s32 {s}, {s}, {bounds[1]}"]
        return lines

    def print_c(self, total: str, constants: str, step: int) -> str:
        """Return a C expression of a byte: the channel's constants lie `step` apart."""
        parts = [f"({constants})[{n * step}]" for n in range(self.rows)]
        if self.store.single:
            raw = f"requantise_single({total} + {', '.join(parts[:3])})"
        elif self.store.shift is None:
            raw = f"vector_twice({total} + {', '.join(parts)})"
        else:
            shift = str(-self.store.shift) if self.store.shift else parts[3]
            raw = f"vector_high({total} + {', '.join(parts[:3])}, {shift})"
        return f"(int8_t)clamp_int8({raw}, {self.store.low}, {self.store.high})"


def vector_constants(rule: Stored, multiple: int) -> np.ndarray:
    """Return a row for each channel: bias, multiplier, offset, and a left shift where it has its
    own.

    Channels of zeros fill it up to a `multiple`.
    """
    columns = [rule.bias, rule.constants[:, 0], rule.constants[:, 1]]
    if not rule.store.shift:
        columns.append(-rule.constants[:, 2])
    table = np.stack(columns, 1)
    missing = -len(table) % multiple
    return np.concatenate([table, np.zeros((missing, table.shape[1]), table.dtype)])


def group_by_four(table: np.ndarray) -> np.ndarray:
    """Four channels at a time: four biases, four multipliers ..."""
    return table.reshape(-1, LANES, table.shape[1]).transpose(0, 2, 1).reshape(-1)
