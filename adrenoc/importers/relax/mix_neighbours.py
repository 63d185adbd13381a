"""Linear resizes element by element: each result is a mix of two rows and two columns.

Which they are and what share each has lies in a table of integers, which no preset rounds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te

from adrenoc.base.refused import RefusedError
from adrenoc.importers.relax.values import make_constant, static_shape


@dataclass(frozen=True, kw_only=True, eq=False)
class ResizeNeighbours:
    """Two elements for each result along an axis, with shares, as int32 or as bits of floats."""

    first: np.ndarray
    second: np.ndarray
    of_first: np.ndarray
    of_second: np.ndarray

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """Elements, then shares, in order."""
        return self.first, self.second, self.of_first, self.of_second


def neighbours_in_fixed_point(
    first: np.ndarray, second: np.ndarray, of_second: np.ndarray, bits: int
) -> ResizeNeighbours:
    """Return shares as integers with so many bits behind the point; they add up to one."""
    whole = np.asarray(of_second, np.int32)
    return ResizeNeighbours(
        first=np.asarray(first, np.int32),
        second=np.asarray(second, np.int32),
        of_first=np.asarray((1 << bits) - whole, np.int32),
        of_second=whole,
    )


def mix_neighbours(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    rows: ResizeNeighbours,
    columns: ResizeNeighbours,
    *,
    first_axis: int,
    term: Callable[[Any, Any, Any], Any],
    finish: Callable[[Any], Any],
) -> relax.Expr:
    """Mix along an axis and the next one.

    `term` is of the share of a column, that of a row and the element; the four terms are summed row
    by row, and `finish` makes the result of the sum.
    """
    shape = static_shape(x)
    if shape is None:
        raise RefusedError("it has no static shape")
    kinds = (*rows.columns, *columns.columns)
    starts = np.cumsum([0, *(len(kind) for kind in kinds)]).tolist()
    size = [*shape]
    size[first_axis : first_axis + 2] = len(rows.first), len(columns.first)

    def mix(x: te.Tensor, table: te.Tensor) -> te.Tensor:
        def look_up(kind: int, place: Any) -> Any:
            return table[starts[kind] + place]

        def element(*at: Any) -> Any:
            outer, inner = at[:first_axis], at[first_axis + 2 :]
            i, j = at[first_axis], at[first_axis + 1]
            total: Any = None
            for a in (0, 1):
                for b in (0, 1):
                    read = x(*outer, look_up(a, i), look_up(4 + b, j), *inner)
                    made = term(look_up(6 + b, j), look_up(2 + a, i), read)
                    total = made if total is None else total + made
            return finish(total)

        return te.compute(size, element, name="mix_neighbours")

    table = make_constant(np.concatenate(kinds))
    return builder.call_te(mix, x, table, primfunc_name_hint="mix_neighbours")
