"""Folds over axes in several kernels, where few results are of many elements.

Before -> after:
    max(x[r])               of a long axis: max(part[p]), part[p] = max(x[r * parts + p]), and of a
                            vocabulary in parts of these
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from adrenoc.base.tvmapi import Expr

Element = Callable[..., Expr]
"""Gives an element for the index of a result and the places along the axes that are walked."""

LONG_FOLD = 2048
"""Elements that one thread folds alone; more are folded in parts, where few threads would run."""
FEW_RESULTS = 256
"""Results that leave most of a GPU idle, a thread each."""
LONG_PART = 128
"""Elements that one thread folds one after the other before a further kernel is quicker."""


def make_loops(extents: Sequence[int]) -> list[Any]:
    """Return the loops of a fold over axes of these extents."""
    return [te.reduce_axis((0, extent), f"r{i}") for i, extent in enumerate(extents)]


def fold_over(
    kept: Sequence[int],
    extents: Sequence[int],
    reducer: Callable[..., Expr],
    element: Element,
    name: str,
) -> Any:
    """Fold `element(index, walked)` over axes, in parts where few threads would."""
    parts = _count_parts(math.prod(kept), extents)
    if not parts:
        loops = make_loops(extents)
        return te.compute(
            kept, lambda *i: reducer(element(i, [v.var for v in loops]), axis=loops), name=name
        )
    folded = _fold_in_parts(kept, reducer, element, extents[0], parts[0], f"{name}_parts")
    for number, count in enumerate(parts[1:], start=1):
        named = f"{name}_parts{number}"
        folded = _fold_in_parts(kept, reducer, _element_of(folded), parts[number - 1], count, named)
    (over,) = make_loops([parts[-1]])
    return te.compute(kept, lambda *i: reducer(folded(*i, over.var), axis=[over]), name=name)


def _count_parts(results: int, extents: Sequence[int]) -> list[int]:
    """Return how many threads a result begin a fold over one axis, how many go on, each of as
    many."""
    if len(extents) != 1 or results > FEW_RESULTS or extents[0] <= LONG_FOLD:
        return []
    kernels = 2
    while extents[0] > LONG_PART**kernels:
        kernels += 1
    each = 1
    while each**kernels < extents[0]:
        each += 1
    return [each**left for left in range(kernels - 1, 0, -1)]


def _fold_in_parts(
    kept: Sequence[int],
    reducer: Callable[..., Expr],
    element: Element,
    extent: int,
    parts: int,
    name: str,
) -> Any:
    """Fold each `parts`-th of `extent` elements, from each of the first ones on."""
    (steps,) = make_loops([-(-extent // parts)])

    def fold_part(*i: Expr) -> Expr:
        walked = tirx.min(steps.var * parts + i[-1], tirx.const(extent - 1, "int32"))
        return reducer(element(i[:-1], [walked]), axis=[steps])

    return te.compute([*kept, parts], fold_part, name=name)


def _element_of(tensor: Any) -> Element:
    return lambda index, walked: tensor(*index, *walked)
