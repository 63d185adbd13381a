"""Where an axis of an operand lies in a node's results, or whether its elements meet there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx

from adrenoc.importers.onnx.graph import attributes


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A node that reads a tensor as its input number `at`, of whose axes one is followed.

    `rank_of` tells how many axes a tensor has, `ints_of` the whole numbers of a constant.
    """

    node: onnx.NodeProto
    at: int
    axis: int
    rank_of: Callable[[str], int | None]
    ints_of: Callable[[str], list[int] | None]
    opset: int

    @property
    def rank(self) -> int:
        """Return how many axes the operand has, 0 where nobody knows."""
        return self.rank_of(self.node.input[self.at]) or 0

    @property
    def attrs(self) -> dict[str, Any]:
        """Return the node's attributes."""
        return attributes(self.node)

    def stay(self) -> Moved:
        """Return the axis lies in the results as it does here."""
        return Moved(axis=self.axis, rank=self.rank)

    def leave_out(self, gone: list[int]) -> Moved:
        """Return where the axis is once others are left out."""
        return Moved(axis=self.axis - sum(a < self.axis for a in gone), rank=self.rank - len(gone))

    def axes(self, at: int, *, rank: int) -> list[int] | None:
        """Return axes as an attribute or input number `at` has them; None where nobody knows."""
        axes = self.attrs.get("axes")
        if axes is None and len(self.node.input) > at and self.node.input[at]:
            axes = self.ints_of(self.node.input[at])
            if axes is None:
                return None
        return [int(axis) % rank for axis in axes or ()]


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What a node says of an axis (`batch`), and where the axis lies in its results."""

    batch: bool | None = None
    axis: int | None = None
    rank: int = 0


LOST = Moved()
MET = Moved(batch=False)
"""Elements along a batch know nothing of each other."""


def _transpose(visit: Visit) -> Moved:
    perm = visit.attrs.get("perm") or list(reversed(range(visit.rank)))
    return Moved(axis=perm.index(visit.axis), rank=visit.rank) if visit.axis in perm else LOST


def _squeeze(visit: Visit) -> Moved:
    axes = visit.axes(1, rank=visit.rank)
    return LOST if not axes or visit.axis in axes else visit.leave_out(axes)


def _unsqueeze(visit: Visit) -> Moved:
    given = visit.axes(1, rank=visit.rank + 1)
    rank = visit.rank + len(given or ())
    added = visit.axes(1, rank=rank)
    if not added:
        return LOST
    return Moved(axis=[a for a in range(rank) if a not in added][visit.axis], rank=rank)


def _flatten(visit: Visit) -> Moved:
    is_kept = visit.axis == 0 and visit.attrs.get("axis", 1) % visit.rank == 1
    return Moved(axis=0, rank=2) if is_kept else LOST


def _gather(visit: Visit) -> Moved:
    table, picked = (visit.rank_of(name) for name in visit.node.input[:2])
    if table is None or picked is None:
        return LOST
    along = visit.attrs.get("axis", 0) % max(table, 1)
    if visit.at == 0 and visit.axis == along:
        return MET
    is_behind = visit.at == 0 and visit.axis > along
    axis = visit.axis + (along if visit.at else picked - 1 if is_behind else 0)
    return Moved(axis=axis, rank=table + picked - 1)


def _product(visit: Visit) -> Moved:
    """Follow rows of the first operand, columns of the second, and batches of either."""
    ranks = [visit.rank_of(name) for name in visit.node.input[:2]]
    known = [rank for rank in ranks if rank is not None and rank > 1]
    from_end = visit.rank - visit.axis
    if from_end == (2 if visit.at else 1):
        return MET
    if len(known) < 2:
        return visit.stay() if visit.at == 0 else LOST
    return Moved(axis=max(known) - from_end, rank=max(known))


def _gemm(visit: Visit) -> Moved:
    if visit.at:
        return LOST
    is_row = visit.axis == (1 if visit.attrs.get("transA", 0) else 0)
    return Moved(axis=0, rank=2) if is_row else MET


def meet_along(visit: Visit) -> Moved:
    """Meet, or part, along the axis that an attribute names."""
    axis = visit.attrs.get("axis", 0 if visit.node.op_type == "Split" else -1)
    return MET if axis % visit.rank == visit.axis else visit.stay()


def _within(visit: Visit) -> Moved:
    """Meet along all axes from one on."""
    first = visit.attrs.get("axis", 1 if "Softmax" in visit.node.op_type else -1)
    return MET if visit.axis >= first % visit.rank else visit.stay()


def _softmax(visit: Visit) -> Moved:
    return _within(visit) if visit.opset < 13 else meet_along(visit)


def _reduce(visit: Visit) -> Moved:
    axes = visit.axes(1, rank=visit.rank)
    if visit.at or axes is None:
        return LOST
    along = axes or list(range(visit.rank))
    if visit.axis in along:
        return MET
    return visit.stay() if visit.attrs.get("keepdims", 1) else visit.leave_out(along)


_OPERATORS: dict[str, Callable[[Visit], Moved]] = {
    "Concat": meet_along,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "LogSoftmax": _softmax,
    "MatMul": _product,
    "Softmax": _softmax,
    "Split": meet_along,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}


def find_rule(kind: str) -> Callable[[Visit], Moved] | None:
    """Return what follows an axis through an operator, if anything here does."""
    if kind.endswith("LayerNormalization"):
        return _within
    return _reduce if kind.startswith("Reduce") else _OPERATORS.get(kind)
