"""Tensors whose elements lie elsewhere than where a kernel counts them: moved texels, several
places, one long vector.

Before -> after:
    y = matmul(x, w); z[0, m, r, c] = y[0, r, m * 16 + c]   matmul(x, w) writes texel (b, r) of y
                                                            to texel (b % 4, b / 4, r) of z

A result that one kernel writes to several places: ranges of its blocks in other tensors.

Before -> after:
    y = conv2d(x); copy y to blocks 2.. of c        conv2d(x) writes y and blocks 2.. of c
    y = conv2d(x); a = y[0:32]; b = y[32:64]        conv2d(x) writes a and b; y is in no memory
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import (
    Expr,
    const_int,
    dtype_of,
    floordiv,
    floormod,
    iconst,
    select,
    simplify,
    sym,
    tirx,
    tvm,
)
from adrenoc.ir.graph import Placing
from adrenoc.ir.layout import LANES, Extents, OperandSpec
from adrenoc.kernels.access import Access
from adrenoc.kernels.statements import Statements

_BINARY = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
}

_COMPARED = {
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
}
_JOINED = {tirx.And: np.logical_and, tirx.Or: np.logical_or}

Values = Sequence[tuple[Expr, Any]]
"""Variables, and what each stands for."""


class UnknownFormError(Exception):
    """An index is more than sums, products, quotients and remainders."""


def index_value(index: Expr, values: Values) -> Any:
    """Return an index where its variables are int32 expressions, or arrays of numbers.

    Raises:
        UnknownFormError: it is more than arithmetic of these.
    """
    if isinstance(index, tirx.IntImm):
        return int(index.value)
    if isinstance(index, tirx.Cast):
        return index_value(index.value, values)
    for var, value in values:
        if index.same_as(var):
            return value
    if isinstance(index, tirx.Div):
        return tirx.truncdiv(*(index_expr(part, values) for part in (index.a, index.b)))
    compute = _BINARY.get(type(index))
    if compute is None:
        raise UnknownFormError
    return compute(*(index_value(side, values) for side in _sides(index)))


def _sides(binary: Any) -> tuple[Expr, Expr]:
    return binary.a, binary.b


def index_expr(index: Expr, values: Values) -> Expr:
    """Return an index where its variables are int32 expressions.

    Raises:
        UnknownFormError: it is more than arithmetic of these.
    """
    value = index_value(index, values)
    return iconst(value) if isinstance(value, int) else value


def truth_value(condition: Expr, values: Values) -> Any:
    """Return a condition where its variables are arrays of numbers.

    Raises:
        UnknownFormError: it is more than comparisons of arithmetic of these.
    """
    if isinstance(condition, tirx.Not):
        return np.logical_not(truth_value(condition.a, values))
    joined, compared = _JOINED.get(type(condition)), _COMPARED.get(type(condition))
    if joined is not None:
        return joined(*(truth_value(side, values) for side in _sides(condition)))
    if compared is None:
        raise UnknownFormError
    return compared(*(index_value(side, values) for side in _sides(condition)))


class PlacedAccess(Access):
    """Writes of one tensor at the places that its texels go to in another one, `access`."""

    def __init__(self, access: Access, placing: Placing, first: int, statements: Statements):
        super().__init__(access.spec, None, statements)
        self._access, self._placing, self._first = access, placing, first

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Store four channels wherever this texel goes."""
        position = (n, block, h, w)
        with self._statements.when(self._test_within(position)):
            for copy in np.ndindex(self._placing.copies):
                at = list(zip(self._placing.axes, (*position, *map(iconst, copy)), strict=True))
                there = [simplify(index_expr(index, at)) for index in self._placing.to]
                n, block, h, w = (
                    index if const_int(index) is not None else self._statements.share(index, "to")
                    for index in there
                )
                self._access.write(n, block + iconst(self._first), h, w, value)

    def _test_within(self, position: Sequence[Expr]) -> Expr | None:
        """Return whether the texel at a position goes anywhere; None where all do."""
        conditions = []
        for number, first, end in self._placing.within:
            inside = position[number] < iconst(end)
            conditions.append(inside & (position[number] >= iconst(first)) if first else inside)
        return reduce(lambda a, b: a & b, conditions) if conditions else None


@dataclass(frozen=True, kw_only=True)
class Piece:
    """`blocks` of a result, those from `first` on, that lie in a tensor from block `at` on."""

    first: int
    blocks: int
    at: int


class SpreadAccess(Access):
    """Writes of one tensor to the places that it goes to; `spec` is the tensor as a whole.  Each
    place is the access to a tensor, and the pieces that lie in it, none twice."""

    def __init__(
        self,
        spec: OperandSpec,
        places: Sequence[tuple[Access, Sequence[Piece]]],
        statements: Statements,
    ) -> None:
        super().__init__(spec, None, statements)
        self._places = tuple((access, _join_pieces(pieces)) for access, pieces in places)

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


class FlatAccess(Access):
    """Reads of `image`; number k of its blocks is (k / (H * W), k / W % H, k % W)."""

    def __init__(self, image: Access, statements: Statements) -> None:
        super().__init__(image.spec, image.buffer, statements)
        self._image = image

    @property
    def extents(self) -> Extents:
        """Return one pixel of all channels, those that fill up the blocks of four too."""
        e = self._image.extents
        return Extents(1, e.blocks * LANES * e.h * e.w, 1, 1)

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Return four channels of a pixel."""
        e = self._image.extents
        pixels = e.h * e.w
        pixel = self._statements.let(floormod(block, pixels), "pixel")
        row, column = floordiv(pixel, e.w), floormod(pixel, e.w)
        return self._image.texel(iconst(0), floordiv(block, pixels), row, column)


def flat_order(spec: OperandSpec) -> np.ndarray:
    """Element of the flattened tensor for each lane of `FlatAccess`, -1 where there is none."""
    e, roles = spec.extents, spec.roles
    elements = np.arange(e.c * e.h * e.w).reshape(spec.shape)
    present = [roles.axis(role) for role in "CHW"]
    axes = [axis for axis in present if axis is not None]
    rest = [axis for axis in range(len(spec.shape)) if axis not in axes]
    planes = elements.transpose([*rest, *axes]).reshape(e.c, e.h, e.w)
    padded = np.full((e.blocks * LANES, e.h, e.w), -1)
    padded[: e.c] = planes
    blocks = padded.reshape(e.blocks, LANES, e.h, e.w)
    return blocks.transpose(0, 2, 3, 1).reshape(-1)


def bind_extents(variables: Sequence[Expr], extents: Sequence[int]) -> Any:
    """Return an analyzer of indices that knows each variable from zero up to its extent."""
    analyzer = sym.Analyzer()
    for var, extent in zip(variables, extents, strict=True):
        first, end = (tirx.const(number, dtype_of(var)) for number in (0, extent))
        analyzer.bind(var, tvm.ir.Range(first, end))
    return analyzer
