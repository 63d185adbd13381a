"""Functions for 64-bit Arm as text, and how sums become bytes on NEON, by the rule's own steps, so
that nothing has to be proven: LiteRT's two roundings of convolutions, its one in float64 of dense
layers, onnxruntime's one in float32."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu.fixed_point import INT8, sum_range
from adrenoc.firmware.mcu.operators import Filter

_SAVED = ("d8, d9", "d10, d11", "d12, d13", "d14, d15")


def arm_function(name: str, signature: str, lines: Iterable[str], *, extension: str = "") -> str:
    """Return a function of a `signature`, a format of its name; low halves of v8 to v15 are kept.
    `extension` is what the assembler has to be told of: the code runs where a core has it."""
    save = [f"stp {pair}, [sp, #{16 * n}]" for n, pair in enumerate(_SAVED)]
    load = [f"ldp {pair}, [sp, #{16 * n}]" for n, pair in enumerate(_SAVED)]
    whole = [
        *([f".arch armv8.2-a+{extension}"] if extension else []),
        f".hidden {name}",
        f".globl {name}",
        f".type {name}, %function",
        ".p2align 4",
        f"{name}:",
        "sub sp, sp, #64",
        *save,
        *lines,
        *load,
        "add sp, sp, #64",
        "ret",
        f".size {name}, . - {name}",
    ]
    body = "\n".join(f'    "{line}\\n"' for line in whole)
    declared = f'__attribute__((visibility("hidden"))) extern {signature.format(name)};'
    text = f'__asm__(\n    ".text\\n"\n{body});'
    return f"#if defined(__aarch64__)\n{declared}\n{text}\n#endif\n"


def stores(register: str, pointer: str, count: int, step: str) -> list[str]:
    """Instructions that store the first `count` bytes of sixteen, and move on by `step` bytes."""
    if count == 16:
        return [f"st1 {{{register}.16b}}, [{pointer}], {step}"]
    lines, at = [], 0
    for size, letter in ((8, "d"), (4, "s"), (2, "h"), (1, "b")):
        if count - at >= size:
            place = pointer
            if at:
                place = "x8"
                lines.append(f"add x8, {pointer}, #{at}")
            lines.append(f"st1 {{{register}.{letter}}}[{at // size}], [{place}]")
            at += size
    return [*lines, f"add {pointer}, {pointer}, {step}"]


KINDS = ("twice", "signed", "double", "single")
"""The ways from sums to bytes, as c/neon_store.c numbers them.

`twice`: a rounded high product, and a shift that rounds halves up: of sums above zero, which are
the only ones that matter where the clamp begins at the zero point.  `signed`: the same with
halves away from zero.  `double`, `single`: a product in floats.
"""
_MOST_SHIFT = 31
_LEAST, _MOST, _ZERO = "v7", "v6", "v5"


@dataclass(frozen=True, kw_only=True)
class NeonStore:
    """The way of a layer's sums to bytes; `low` and `high` clamp."""

    kind: str
    zero: int
    low: int
    high: int

    @property
    def name(self) -> str:
        """Return the store as a part of a function's name."""
        numbers = (self.zero, self.low, self.high)
        return "_".join([self.kind, *(str(number + 128) for number in numbers)])

    @property
    def how(self) -> str:
        """Return how sums become bytes, in words for reports."""
        return {"double": ", scaled in float64", "single": ", scaled in float32"}.get(self.kind, "")

    def prepare(self) -> list[str]:
        """Instructions that fill v5 to v7, for what follows."""
        lines = [f"movi {_ZERO}.8h, #{abs(self.zero)}"]
        if self.zero < 0:
            lines.append(f"neg {_ZERO}.8h, {_ZERO}.8h")
        if self.low > INT8[0]:
            lines.append(f"movi {_LEAST}.16b, #{self.low & 255}")
        if self.high < INT8[1]:
            lines.append(f"movi {_MOST}.16b, #{self.high & 255}")
        return lines

    def scale_sums(self, register: str, first: str, second: str) -> list[str]:
        """Instructions on four sums of 32 bits, with two registers of constants; v4 is lost."""
        r, a, b = (f"{name}.4s" for name in (register, first, second))
        if self.kind == "double":
            return [
                f"sxtl2 v4.2d, {r}",
                f"sxtl {register}.2d, {register}.2s",
                "scvtf v4.2d, v4.2d",
                f"scvtf {register}.2d, {register}.2d",
                f"fmul v4.2d, v4.2d, {second}.2d",
                f"fmul {register}.2d, {register}.2d, {first}.2d",
                "fcvtas v4.2d, v4.2d",
                f"fcvtas {register}.2d, {register}.2d",
                f"sqxtn {register}.2s, {register}.2d",
                f"sqxtn2 {r}, v4.2d",
            ]
        if self.kind == "single":
            return [f"scvtf {r}, {r}", f"fmul {r}, {r}, {a}", f"fcvtns {r}, {r}"]
        away = [f"ssra {r}, {r}, #31"] if self.kind == "signed" else []
        return [f"sqrdmulh {r}, {r}, {a}", *away, f"srshl {r}, {r}, {b}"]

    def narrow(self, low: str, high: str) -> list[str]:
        """Instructions that make `low` of eight numbers of 16 bits, of two registers."""
        lines = [f"sqxtn {low}.4h, {low}.4s", f"sqxtn2 {low}.8h, {high}.4s"]
        return [*lines, f"sqadd {low}.8h, {low}.8h, {_ZERO}.8h"] if self.zero else lines

    def clamp(self, register: str) -> list[str]:
        """Instructions on sixteen bytes."""
        lines = []
        if self.low > INT8[0]:
            lines.append(f"smax {register}.16b, {register}.16b, {_LEAST}.16b")
        if self.high < INT8[1]:
            lines.append(f"smin {register}.16b, {register}.16b, {_MOST}.16b")
        return lines

    @property
    def fields(self) -> dict[str, int]:
        """Return the fields of a layer's struct, for the portable code."""
        numbers = {"kind": KINDS.index(self.kind), "zero": self.zero}
        return {**numbers, "low": self.low, "high": self.high}


@dataclass(frozen=True, kw_only=True, eq=False)
class NeonConstants:
    """`bias` holds the input's zero point. Of four channels there are eight words of `constants`:
    four factors and four left shifts, or the four factors in float64, or in float32 and nothing."""

    store: NeonStore
    bias: np.ndarray
    constants: np.ndarray

    def pad_channels(self, multiple: int) -> tuple[np.ndarray, np.ndarray]:
        """Bias and constants for whole groups of so many channels, of four words' rows each."""
        missing = -len(self.bias) % multiple
        bias = np.concatenate([self.bias, np.zeros(missing, np.int64)])
        rows = np.concatenate([self.constants, np.zeros((missing, 2), np.int64)]).reshape(-1, 4, 2)
        if self.store.kind == "double":
            return bias, rows.reshape(-1, 8)
        return bias, rows.transpose(0, 2, 1).reshape(-1, 8)


@lru_cache(maxsize=1024)
def pack_constants(operator: Filter) -> NeonConstants:
    """Return the constants of a filter. Raises RefusedError where its factors are not covered."""
    rule = operator.requantise
    sum_range(operator)
    if rule.reals.dtype == np.float32 and rule.reals.size:
        kind = "single"
        bits = rule.reals.astype("<f4").view("<i4").astype(np.int64)
        constants = np.stack([bits, np.zeros_like(bits)], 1)
    elif rule.reals.size:
        kind = "double"
        constants = rule.reals.astype("<f8").view("<i4").astype(np.int64).reshape(-1, 2)
    else:
        # A multiplier of zero gives the zero point with any shift.
        shifts = np.where(rule.multipliers == 0, -1, rule.shifts)
        if (shifts > -1).any() or (shifts < -_MOST_SHIFT).any():
            raise RefusedError(f"shifts of {-shifts.max()} to {-shifts.min()} bits")
        kind = "twice" if rule.low >= rule.zero else "signed"
        constants = np.stack([rule.multipliers, shifts], 1)
    return NeonConstants(
        store=NeonStore(kind=kind, zero=rule.zero, low=rule.low, high=rule.high),
        bias=operator.moved_bias,
        constants=constants,
    )
