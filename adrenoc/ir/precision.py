"""How exactly one tensor is computed and stored, beside what the options say of all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Precision:
    """What one tensor asks for; each kernel asks about what it makes, and about what it reads."""

    float32: bool = False
    """Computed and stored in float32."""
    rounded: bool = False
    """Whole numbers that are rounded to: computed in float32, stored as the options say."""
    wide_sums: bool = False
    """Computed in float32 and stored as the options say, for later layers hand on its errors."""
    low: int | None = None
    """The number that a byte of zero stands for where the tensor is to be stored as bytes; None
    where it is not."""

    @property
    def is_special(self) -> bool:
        """Whether another kernel than the usual one would compute other numbers."""
        return self.float32 or self.rounded

    @property
    def computes_in_float32(self) -> bool:
        """Whether it is computed in float32, however it is stored."""
        return self.float32 or self.rounded or self.wide_sums

    def __str__(self) -> str:
        said = {
            "float32": self.float32,
            "rounded to integers": self.rounded,
            "sums in float32": self.wide_sums,
            f"bytes from {self.low} on": self.low is not None,
        }
        return ", ".join(words for words, holds in said.items() if holds) or "as the options say"


AS_OPTIONS = Precision()
"""The precision of a tensor that asks for nothing."""
