"""A result that one kernel writes to several places: ranges of its blocks in other tensors.

Before -> after:
    y = conv2d(x); copy y to blocks 2.. of c        conv2d(x) writes y and blocks 2.. of c
    y = conv2d(x); a = y[0:32]; b = y[32:64]        conv2d(x) writes a and b; y is in no memory
"""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.kernels.access import Access
from adrenoc.kernels.statements import Statements
from adrenoc.operand import OperandSpec
from adrenoc.tvmapi import Expr, const_int, iconst


class SpreadAccess(Access):
    """Writes of one tensor to the places that it goes to; `spec` is the tensor as a whole.

    Each place is the first of the tensor's blocks that goes there, and the access to it.
    """

    def __init__(
        self, spec: OperandSpec, places: Sequence[tuple[int, Access]], statements: Statements
    ) -> None:
        super().__init__(spec, None, statements)
        self._places = tuple(places)

    def element(self, index: Sequence[Expr]) -> Expr:
        """Not for what is written."""
        raise TypeError("a tensor that is spread over several places is not read")

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Not for what is written."""
        raise TypeError("a tensor that is spread over several places is not read")

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Store four channels at each place that their block goes to."""
        value = self._statements.let(value)
        for first, access in self._places:
            inside = self._inside(block, first, access.extents.blocks)
            if inside is False:
                continue
            with self._statements.when(None if inside is True else inside):
                there = block - iconst(first) if first else block
                access.write(n, there, h, w, value)

    def _inside(self, block: Expr, first: int, count: int) -> Expr | bool:
        """Whether a block of the tensor is one of `count` from `first` on."""
        known, end = const_int(block), first + count
        if known is not None:
            return first <= known < end
        conditions = []
        if first > 0:
            conditions.append(block >= iconst(first))
        if end < self.extents.blocks:
            conditions.append(block < iconst(end))
        if not conditions:
            return True
        return conditions[0] if len(conditions) == 1 else conditions[0] & conditions[1]
