"""Convolutions in groups of channels: one for each group, between a move and a concatenation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.network import Tensor, shape4
from adrenoc.firmware.mcu.operators import Convolution, Join, Move, Operator, Requantise

_MOST_GROUPS = 64
"""Each is code and constants of its own."""


def split_groups(
    whole: Convolution, source: Tensor, result: Tensor, add: Callable[[Tensor], int]
) -> list[Operator]:
    """Return the same by convolutions of all channels; the last operator makes the result.

    The weights of `whole` have the channels of one group; `add` makes a tensor.

    Raises:
        RefusedError: there are too many groups.
        ValueError: the channels are no multiple of them.
    """
    _, height, width, depth = shape4(source.shape)
    channels, _, _, part = whole.weights.shape
    groups = depth // part
    if groups * part != depth or channels % groups:
        raise RefusedError(f"{channels} channels of {part} each, of an image of {depth}")
    if groups > _MOST_GROUPS:
        raise RefusedError(f"{groups} groups of channels, at most {_MOST_GROUPS}")
    each = channels // groups
    operators: list[Operator] = []
    made = []
    rows, columns = np.arange(height) * width * depth, np.arange(width) * depth
    for group in range(groups):
        own = slice(group * each, (group + 1) * each)
        taken = np.arange(group * part, (group + 1) * part)
        named = f"{source.name} group {group}"
        read = add(replace(source, name=named, shape=(1, height, width, part)))
        offsets = (np.zeros(1, np.int64), rows, columns, taken)
        operators.append(Move(source=whole.source, result=read, offsets=offsets, fill=0))
        shape = (*result.shape[:-1], each)
        made.append(add(replace(result, name=f"{result.name} group {group}", shape=shape)))
        operators.append(
            replace(
                whole,
                source=read,
                result=made[-1],
                weights=np.ascontiguousarray(whole.weights[own]),
                bias=whole.bias[own],
                requantise=_pick_rule(whole.requantise, own),
            )
        )
    count = int(np.prod(result.shape[:-1]))
    join = Join(sources=tuple(made), result=whole.result, chunks=(each,) * groups, count=count)
    return [*operators, join]


def _pick_rule(rule: Requantise, own: slice) -> Requantise:
    """Return the rule of some channels, of the numbers that it has for each."""
    return replace(
        rule,
        multipliers=rule.multipliers[own] if rule.multipliers.size > 1 else rule.multipliers,
        shifts=rule.shifts[own] if rule.shifts.size > 1 else rule.shifts,
        reals=rule.reals[own] if rule.reals.size > 1 else rule.reals,
    )
