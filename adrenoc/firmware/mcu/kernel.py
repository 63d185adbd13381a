"""What one operator becomes in C: constants, the snippets that it calls, and the call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Operator


@dataclass(frozen=True, kw_only=True, eq=False)
class Array:
    """A constant in flash; its name begins with that of the layer."""

    suffix: str
    ctype: str
    values: np.ndarray

    @property
    def size_bytes(self) -> int:
        """What it takes of flash."""
        return int(self.values.size * WIDTHS[self.ctype])


WIDTHS = {"int8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4, "int64_t": 8}


@dataclass(frozen=True, kw_only=True, eq=False)
class Kernel:
    """One operator in C.

    `snippets` are files of `c/` and `texts` further code, in the order in which they are needed;
    each goes into the model once.  `fields` are the layer's struct of type `struct`, if it has
    one.  `call` is a statement with {layer}, {in0}, {in1}, {out}, {scratch} and {state} to fill in:
    {layer} is the prefix of the constants' names, {state} has what is kept between calls.
    `gap_bytes`: the result may lie over a source where it begins at least that many bytes before
    it; `in_place`: exactly where that begins.
    """

    call: str
    how: str
    snippets: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    arrays: tuple[Array, ...] = ()
    struct: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    scratch_bytes: int = 0
    state_bytes: int = 0
    state_end: tuple[int, int] = (0, 0)
    """How many bytes at the end of a state begin as what; those before it begin as zeros."""
    gap_bytes: int | None = None
    in_place: bool = False
    gap_source: int | None = None
    """The only source that `gap_bytes` is about, by its place; None: all."""
    schedule: str = ""
    """Which of the operator's schedules this is, as a tuning log names them."""


Rule: TypeAlias = Callable[[Network, Operator], Kernel]
"""From an operator to its kernel.

Raises:
    RefusedError: this rule does not cover it, with the reason.
"""


def pair_text(pair: tuple[int, int]) -> str:
    """Two numbers as C initialises a struct of them, its braces doubled as texts of kernels are."""
    return "{{" + f"{pair[0]}, {pair[1]}" + "}}"
