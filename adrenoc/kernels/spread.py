"""A result that one kernel writes to several places: ranges of its blocks in other tensors.

Before -> after:
    y = conv2d(x); copy y to blocks 2.. of c        conv2d(x) writes y and blocks 2.. of c
    y = conv2d(x); a = y[0:32]; b = y[32:64]        conv2d(x) writes a and b; y is in no memory
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from adrenoc.base.tvmapi import Expr, const_int, iconst, select
from adrenoc.ir.operand import OperandSpec
from adrenoc.kernels.access import Access
from adrenoc.kernels.statements import Statements


@dataclass(frozen=True, kw_only=True)
class Piece:
    """`blocks` of a result, those from `first` on, that lie in a tensor from block `at` on."""

    first: int
    blocks: int
    at: int


class SpreadAccess(Access):
    """Writes of one tensor to the places that it goes to; `spec` is the tensor as a whole.

    Each place is the access to a tensor, and the pieces that lie in it, none twice.
    """

    def __init__(
        self,
        spec: OperandSpec,
        places: Sequence[tuple[Access, Sequence[Piece]]],
        statements: Statements,
    ) -> None:
        super().__init__(spec, None, statements)
        self._places = tuple((access, _join_pieces(pieces)) for access, pieces in places)

    def element(self, index: Sequence[Expr]) -> Expr:
        """Refuse: such a tensor is written alone."""
        raise TypeError("a tensor that is spread over several places is not read")

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Refuse: such a tensor is written alone."""
        raise TypeError("a tensor that is spread over several places is not read")

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Store four channels at each place that their block goes to."""
        value = self._statements.let(value)
        known = const_int(block)
        for access, pieces in self._places:
            if known is not None:
                for piece in pieces:
                    if piece.first <= known < piece.first + piece.blocks:
                        access.write(n, iconst(known - piece.first + piece.at), h, w, value)
                continue
            there = self._statements.share(self._map_block(block, pieces), "there")
            with self._statements.when(self._test_inside(block, pieces)):
                access.write(n, there, h, w, value)

    def _map_block(self, block: Expr, pieces: Sequence[Piece]) -> Expr:
        """Return where a block of one of the pieces lies."""
        chosen = block + iconst(pieces[-1].at - pieces[-1].first)
        for piece in reversed(pieces[:-1]):
            before = block < iconst(piece.first + piece.blocks)
            chosen = select(before, block + iconst(piece.at - piece.first), chosen)
        return chosen

    def _test_inside(self, block: Expr, pieces: Sequence[Piece]) -> Expr | None:
        """Return whether a block is one of the pieces; None where all are."""
        conditions = []
        begin = 0
        for first, end in _find_covered_ranges(pieces):
            if first > begin or end < self.extents.blocks:
                inside = block < iconst(end)
                conditions.append(inside & (block >= iconst(first)) if first else inside)
            begin = end
        return reduce(lambda a, b: a | b, conditions) if conditions else None


def _join_pieces(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return the pieces in order; those that follow each other in both places are one."""
    found: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: piece.first):
        last = found[-1] if found else None
        if last and (last.first, last.at) == (piece.first - last.blocks, piece.at - last.blocks):
            found[-1] = Piece(first=last.first, blocks=last.blocks + piece.blocks, at=last.at)
        else:
            found.append(piece)
    return tuple(found)


def _find_covered_ranges(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """Return the ranges of blocks that pieces in order are, wherever they lie."""
    found: list[tuple[int, int]] = []
    for piece in pieces:
        end = piece.first + piece.blocks
        if found and found[-1][1] == piece.first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((piece.first, end))
    return found
