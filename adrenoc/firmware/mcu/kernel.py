"""What one operator becomes in C (constants, snippets, the call), and its schedules: those there
are, what each is estimated to take, which one is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, inf
from statistics import median
from typing import Any, TypeAlias

import numpy as np

from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Convolution, Filter
from adrenoc.ir.tuning_log import Actions, actions_key, kernel_digest


@dataclass(frozen=True, kw_only=True, eq=False)
class Array:
    """A constant in flash; its name begins with that of the layer."""

    suffix: str
    ctype: str
    values: np.ndarray

    @property
    def size_bytes(self) -> int:
        """Return what it takes of flash."""
        return int(self.values.size * WIDTHS[self.ctype])


WIDTHS = {"int8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4, "int64_t": 8}


@dataclass(frozen=True, kw_only=True, eq=False)
class FirmwareKernel:
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
    fields: Fields = ()
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


Fields: TypeAlias = tuple[tuple[str, str], ...]
"""Of a layer's struct: names, and texts with {layer} to fill in."""


def fields_of(*parts: Mapping[str, object] | Sequence[Array]) -> Fields:
    """Return fields of a layer's struct: numbers and texts by name, and names of constants."""
    found: list[tuple[str, str]] = []
    for part in parts:
        if isinstance(part, Mapping):
            found += ((key, str(value)) for key, value in part.items())
        else:
            found += ((array.suffix, "{layer}_" + array.suffix) for array in part)
    return tuple(found)


def layer_kernel(
    function: str,
    struct: str,
    numbers: Mapping[str, object],
    arrays: Sequence[Array] = (),
    *,
    more: str = "",
    how: str = "plain C",
    **others: Any,
) -> FirmwareKernel:
    """Return a kernel that calls a function with its struct, which has numbers and constants.
    `more` are arguments behind its source and its result."""
    return FirmwareKernel(
        call=f"{function}(&{{layer}}, {{in0}}, {{out}}{more});",
        how=how,
        arrays=tuple(arrays),
        struct=struct,
        fields=fields_of(numbers, arrays),
        **others,
    )


def table_text(
    names: Mapping[tuple[int, int], str], rows: Iterable[int], columns: Sequence[int]
) -> str:
    """Return a table of functions as C initialises it, null where there is none."""
    lines = [", ".join(names.get((row, column), "0") for column in columns) for row in rows]
    return "{{{{" + "}}, {{".join(lines) + "}}}}"


def pair_text(pair: tuple[int, int]) -> str:
    """Return two numbers as C initialises a struct, in a text to fill in."""
    return "{{" + f"{pair[0]}, {pair[1]}" + "}}"


_SURE = 0.95
"""Of a measured time: what is estimated below that is faster, for all that the model errs."""
_FEW = 8
"""Groups of pixels up to which each number of them is a strip of its own."""
_FINER = 1.3
"""By which larger strips differ."""
_NEAR = 1.01
"""Of the fewest instructions: what takes no more, and less scratch, is taken."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """One schedule: `actions` name it, `instructions` is what the cost model says of it.
    `spare_bytes` is what it takes of flash beyond the schedule that takes least."""

    actions: Actions
    instructions: float
    scratch_bytes: int
    make: Callable[[], FirmwareKernel]
    spare_bytes: int = 0

    @property
    def key(self) -> str:
        """Return the actions of the schedule as a tuning log names them."""
        return actions_key(self.actions)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a tuning log says of one device: microseconds by kernel and schedule, and failures."""

    times_us: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    failed: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Room:
    """What an operator may take: scratch, where it is to be had, and flash for faster weights."""

    scratch_bytes: int
    spare_bytes: int = 0


def work_of(operator: Filter, network: Network, core: Core) -> dict[str, Any]:
    """Return all that the time of an operator depends on: not the values of its weights."""
    window = operator.window
    rule = operator.requantise
    return {
        "operator": type(operator).__name__,
        "arithmetic": core.facts.arithmetic,
        "source": list(network.tensors[operator.source].shape),
        "result": list(network.tensors[operator.result].shape),
        "kernel": list(window.kernel),
        "strides": list(window.strides),
        "dilations": list(window.dilations),
        "before": [window.top, window.left],
        "adds": isinstance(operator, Convolution) and operator.joined is not None,
        "bounds": [rule.low, rule.high],
    }


def family_of(operator: Filter) -> str:
    """Return what a log calls the kernels of such operators."""
    return f"firmware-{type(operator).__name__.lower()}"


def digest_of(operator: Filter, network: Network, core: Core) -> str:
    """Return the name of an operator's work in a log."""
    return kernel_digest(family_of(operator), work_of(operator, network, core))


def strips_of(pixels: int, group: int) -> tuple[int, ...]:
    """Return how many pixels may be made ready at once: some groups, then all pixels, a half, a
    third."""
    few = [group * n for n in range(1, _FEW + 1) if group * (n - 1) < pixels]
    found, parts = dict.fromkeys(few), 1.0
    while (strip := ceil(ceil(pixels / int(parts)) / group) * group) > few[-1]:
        found[strip] = None
        parts = parts + 1 if parts < _FEW else parts * _FINER
    return tuple(sorted(found))


def usable(choices: Sequence[Choice], digest: str, measured: Measured) -> Sequence[Choice]:
    """Return the schedules not known to fail; all where each failed, which says nothing."""
    return [c for c in choices if (digest, c.key) not in measured.failed] or choices


class Grounds(Enum):
    """What speaks for a schedule: a time, the rate of measured ones, or the cost model alone."""

    MEASURED = 1
    ESTIMATED = 2
    MODELLED = 3


def pick(
    ways: Sequence[Sequence[Choice]], room: Room, times_us: Mapping[str, float]
) -> tuple[Choice, Grounds]:
    """Return the fastest that fits, or nearly, and what speaks for it; else the least scratch.

    What was measured comes before what the cost model says, unless another schedule of the same
    way, at the rate that those measured there have, is faster by more than the model errs: the
    best that was measured may need more room than there is now.  The model compares schedules of
    one way alone; the first way is the faster arithmetic.
    """

    def lean(choices: Sequence[Choice]) -> list[Choice]:
        return [c for c in choices if c.spare_bytes <= room.spare_bytes]

    def fitting(choices: Sequence[Choice]) -> list[Choice]:
        return [c for c in lean(choices) if c.scratch_bytes <= room.scratch_bytes]

    known = [c for way in ways for c in fitting(way) if c.key in times_us]
    if known:
        best = min(known, key=lambda c: times_us[c.key])
        guesses = [guess for way in ways for guess in _guesses(way, fitting(way), times_us)]
        time_us, guessed = min(guesses, key=lambda g: g[0], default=(inf, best))
        if time_us < _SURE * times_us[best.key]:
            return guessed, Grounds.ESTIMATED
        return best, Grounds.MEASURED
    fits = fitting(ways[0])
    if fits:
        bound = _NEAR * min(c.instructions for c in fits)
        near = [c for c in fits if c.instructions <= bound]
        return min(near, key=lambda c: (c.scratch_bytes, c.instructions)), Grounds.MODELLED
    least = min(lean(ways[0]), key=lambda c: (c.scratch_bytes, c.instructions))
    return least, Grounds.MODELLED


def _guesses(
    way: Sequence[Choice], fits: Sequence[Choice], times_us: Mapping[str, float]
) -> list[tuple[float, Choice]]:
    """Times of those that were not measured, by the rate of those of their way that were."""
    rates = [times_us[c.key] / c.instructions for c in way if c.key in times_us and c.instructions]
    if not rates:
        return []
    rate = median(rates)
    return [(c.instructions * rate, c) for c in fits if c.key not in times_us]
