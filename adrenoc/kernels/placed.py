"""A tensor whose texels lie elsewhere than where a kernel counts them: heads, tokens, windows.

Before -> after:
    y = matmul(x, w); z[0, m, r, c] = y[0, r, m * 16 + c]   matmul(x, w) writes texel (b, r) of y
                                                            to texel (b % 4, b / 4, r) of z
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from adrenoc.base.tvmapi import Expr, const_int, iconst, simplify
from adrenoc.ir.graph import Placing
from adrenoc.kernels.access import Access
from adrenoc.kernels.index_value import index_expr
from adrenoc.kernels.statements import Statements


class PlacedAccess(Access):
    """Writes of one tensor at the places that its texels go to in another one, `access`."""

    def __init__(self, access: Access, placing: Placing, first: int, statements: Statements):
        super().__init__(access.spec, None, statements)
        self._access, self._placing, self._first = access, placing, first

    def element(self, index: Sequence[Expr]) -> Expr:
        """Refuse: such a tensor is written alone."""
        raise TypeError("a tensor whose texels are placed one by one is not read")

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Refuse: such a tensor is written alone."""
        raise TypeError("a tensor whose texels are placed one by one is not read")

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Store four channels wherever this texel goes."""
        position = (n, block, h, w)
        with self._statements.when(self._test_within(position)):
            for copy in np.ndindex(self._placing.copies):
                there = self._there((*position, *map(iconst, copy)))
                n, block, h, w = (
                    index if const_int(index) is not None else self._statements.share(index, "to")
                    for index in there
                )
                self._access.write(n, block + iconst(self._first), h, w, value)

    def _there(self, position: Sequence[Expr]) -> list[Expr]:
        at = list(zip(self._placing.axes, position, strict=True))
        return [simplify(index_expr(index, at)) for index in self._placing.to]

    def _test_within(self, position: Sequence[Expr]) -> Expr | None:
        """Return whether the texel at a position goes anywhere; None where all do."""
        conditions = []
        for number, first, end in self._placing.within:
            inside = position[number] < iconst(end)
            conditions.append(inside & (position[number] >= iconst(first)) if first else inside)
        return reduce(lambda a, b: a & b, conditions) if conditions else None
