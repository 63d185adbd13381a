"""How large the numbers of a network become on data of about one: a run of one pixel.

Each tensor is taken to be the same in all places, so that a convolution is one product of its
channels with the sums of its taps.  That costs one look at each weight, and follows what factors
and signs cannot: weights of one sign make sums that grow with their length, weights of both do not,
and a bias takes off what a norm before it was folded from.  What is not known is taken as one.

A tensor is known by an array with an axis for several trials, then its own axes, each of which is
whole or of one element: along the latter all elements are taken to be alike.  An expression is
evaluated over the axes that matter to it, and in the middle of the others, where padding is far.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import tirx, tvm
from adrenoc.ir.graph import PROLOGUE_SHAPE, Body, Graph, Node, Tensor
from adrenoc.kernels.body_cost import parts_of_kind
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.kernels.families.shared.operator import NotKnownError, TypicalRun, one_of
from adrenoc.passes.analyse.scalar_body import COMPARISONS
from adrenoc.passes.analyse.scalar_body import evaluate as evaluate_expression

_MOST_PLACES = 1 << 17
"""At which an expression is evaluated: beyond it, axes are looked at in the middle alone."""

Known = Callable[[str], np.ndarray]
"""From a tensor's name to its numbers."""


def evaluate(
    body: Body, shape: Sequence[int], known: Known, more: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Return the numbers of what a body makes, of this shape; `more` are known, too.

    Raises:
        NotKnownError: it has a part that is not looked into.
    """

    def lookup(name: str) -> np.ndarray:
        return more[name] if name in more else known(name)

    axes = [*zip(body.axes, map(int, shape), strict=True), *body.reduced]
    combine = type(body.value) if body.reduced else None
    if combine not in (None, tirx.Add, tirx.Max, tirx.Min):
        raise NotKnownError
    grid = _Grid(body, body.term, axes, lookup)
    value = grid.evaluate(body.term)
    value = np.broadcast_to(value, (value.shape[0], *grid.extents))
    if combine is None:
        return value
    over = tuple(range(1 + len(body.axes), value.ndim))
    unseen = math.prod(e for _, e in body.reduced) / math.prod(value.shape[a] for a in over)
    if combine is tirx.Add:
        return np.asarray(value.sum(axis=over) * unseen)
    return np.asarray((np.max if combine is tirx.Max else np.min)(value, axis=over))


class _Grid:
    """The places at which an expression is evaluated."""

    def __init__(self, body: Body, value: Any, axes: list[tuple[Any, int]], known: Known) -> None:
        self._axes = axes
        self._arrays = [(buffer, known(name)) for buffer, name in body.sources.items()]
        whole: set[int] = set()
        for wanted in self._sort_groups(self._axes_of_loads(value)):
            if self._places_of(whole | wanted) <= _MOST_PLACES:
                whole |= wanted
            elif any(axis >= len(body.axes) for axis in wanted):
                raise NotKnownError  # a sum is not so many times its middle term
        for wanted in self._sort_groups(map(self._axes_of, parts_of_kind(value, COMPARISONS))):
            if self._places_of(whole | wanted) <= _MOST_PLACES:
                whole |= wanted
        self.extents = [extent if a in whole else 1 for a, (_, extent) in enumerate(axes)]
        self._places = [
            self._spread_along(a, np.arange(extent) if a in whole else np.array([extent // 2]))
            for a, (_, extent) in enumerate(axes)
        ]

    def evaluate(self, value: Any) -> np.ndarray:
        """Return the numbers of a part."""
        made = evaluate_expression(value, self._leaf)
        return made if made.ndim else made.reshape([1] * (1 + len(self._axes)))

    # Steps

    def _spread_along(self, axis: int, places: np.ndarray) -> np.ndarray:
        return places.reshape([1] + [-1 if a == axis else 1 for a in range(len(self._axes))])

    def _places_of(self, axes: Iterable[int]) -> int:
        return math.prod(self._axes[axis][1] for axis in axes)

    def _sort_groups(self, groups: Iterable[set[int]]) -> list[set[int]]:
        """Return the shorter ones first."""
        long = [{axis for axis in group if self._axes[axis][1] > 1} for group in groups]
        return sorted(long, key=self._places_of)

    def _axes_of_loads(self, value: Any) -> Iterator[set[int]]:
        """Yield the axes by which elements differ that are read, an index after the other."""
        for load in parts_of_kind(value, tvm.ir.TensorLoad):
            extents = self._array(load).shape[1:]
            for index, extent in zip(load.indices, extents, strict=True):
                if extent > 1:
                    yield self._axes_of(index)

    def _axes_of(self, index: Any) -> set[int]:
        return {
            a
            for var in parts_of_kind(index, tirx.Var)
            for a, (axis, _) in enumerate(self._axes)
            if axis.same_as(var)
        }

    def _array(self, load: Any) -> np.ndarray:
        found = next((a for buffer, a in self._arrays if buffer.same_as(load.source)), None)
        if found is None or found.ndim != len(load.indices) + 1:
            raise NotKnownError
        return found

    def _leaf(self, part: Any) -> np.ndarray:
        if isinstance(part, tvm.ir.TensorLoad):
            return self._load(part)
        for (axis, _), places in zip(self._axes, self._places, strict=True):
            if axis.same_as(part):
                return places
        raise NotKnownError

    def _load(self, load: Any) -> np.ndarray:
        array = self._array(load)
        trial = np.arange(array.shape[0]).reshape([-1] + [1] * len(self._axes))
        places = []
        for index, extent in zip(load.indices, array.shape[1:], strict=True):
            place = self.evaluate(index) if extent > 1 else np.zeros_like(trial)
            places.append(np.clip(place.astype(np.int64), 0, extent - 1))
        return np.asarray(array[tuple([trial, *places])])


_WHOLE = {
    "uint8": (128.0, 128.0),
    "int8": (64.0, -64.0),
    "uint16": (2.0**15, 2.0**15),
    "int16": (2.0**14, -(2.0**14)),
    "uint32": (2.0**31, 2.0**31),
    "int32": (2.0**30, -(2.0**30)),
}
"""What stands for an input of these types: the half of what it may hold."""
_HIDING = 1e4
"""What is below minus that is taken for a mask: a number beside data that hides it."""
_ROUNDING = 2.0**-12
"""By what a half is off, as a share of it."""
_VAST = 1e300
_MOST_ELEMENTS = 1 << 13
"""Of an array: beyond it, the means along its longest axes are taken."""


@dataclass(frozen=True, kw_only=True)
class Typical:
    """Hold what is found of each tensor that nodes make.  `sizes` are the largest of its numbers;
    `moved` says, of an expression of one tensor, how far one of its numbers moves at most when all
    that it reads is off by a half's rounding, as a share of the largest."""

    sizes: dict[str, float]
    moved: dict[str, float]


def find_typical(graph: Graph) -> Typical:
    """Run a graph on data of about one."""
    run = _Run(graph)
    with np.errstate(all="ignore"):
        sizes = {node.output: run.visit(node) for node in graph.nodes}
    return Typical(sizes=sizes, moved=run.moved)


class _Run:
    """The numbers of tensors, in execution order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[str, np.ndarray] = {}
        self.moved: dict[str, float] = {}

    def visit(self, node: Node) -> float:
        """Find a node's numbers; the largest size of them."""
        shape = self._graph.tensors[node.output].shape
        try:
            found = None
            if node.prologue is not None:
                first = node.attrs.get(PROLOGUE_SHAPE, self._graph.tensors[node.inputs[0]].shape)
                found = _short(evaluate(node.prologue, first, self.tensor, {}))
            operator = OPERATORS.get(node.op)
            if operator is not None and operator.typical is not None:
                data = self.tensor(node.inputs[0]) if found is None else found
                run = TypicalRun(graph=self._graph, numbers=self.tensor)
                found = operator.typical(run, node, data)
            elif node.body is not None:
                found = self._evaluate(node, node.body, {})
            else:
                raise NotKnownError
            if node.epilogue is not None:
                more = {
                    Node.RESULT: _short(np.nan_to_num(found, nan=1.0, posinf=_VAST, neginf=-_VAST))
                }
                found = self._evaluate(node, node.epilogue, more)
            if found.ndim != 1 + len(shape) or np.isnan(found).any():
                raise NotKnownError
        except NotKnownError:
            found = one_of(shape)
        self._known[node.output] = _short(np.clip(found, -_VAST, _VAST))
        return float(np.abs(found).max())

    def tensor(self, name: str) -> np.ndarray:
        """Return the numbers of a tensor."""
        if name not in self._known:
            self._known[name] = _draw_given(self._graph.tensors[name])
        return self._known[name]

    def _evaluate(self, node: Node, body: Body, more: dict[str, np.ndarray]) -> np.ndarray:
        """Compute an expression; of one tensor of floats, find how far it moves with that, too."""
        tensors, shape = self._graph.tensors, self._graph.tensors[node.output].shape
        made = evaluate(body, shape, self.tensor, more)
        names = body.sources.values()
        read = {n for n in names if n in more or (tensors[n].is_float and tensors[n].value is None)}
        if len(read) == 1 and not body.reduced and tensors[node.output].is_float:
            (name,) = read
            numbers = more[name] if name in more else self.tensor(name)
            shaken = evaluate(body, shape, self.tensor, {**more, name: numbers * (1 + _ROUNDING)})
            off = np.abs(shaken - made)
            seen = np.isfinite(off)
            largest = np.abs(made[seen]).max(initial=0.0)
            share = float(off[seen].max(initial=0.0) / largest) if largest else 0.0
            self.moved[node.output] = max(share, self.moved.get(node.output, 0.0))
        return made


def _draw_given(tensor: Tensor) -> np.ndarray:
    """Return the numbers of a constant or an input; what a mask hides by is no number."""
    if tensor.value is not None and tensor.value.dtype.kind in "fiub":
        value = tensor.value[np.newaxis]
        if value.dtype.kind == "f" and value.size and value.min() <= -_HIDING:
            hidden = value <= -_HIDING
            if not np.isfinite(value.min()) or len(np.unique(value[hidden])) == 1:
                value = np.where(hidden, 0.0, value)
        return _short(value)
    if tensor.dtype in _WHOLE:
        return np.reshape(_WHOLE[tensor.dtype], [-1] + [1] * len(tensor.shape))
    return one_of(tensor.shape)


def _short(array: np.ndarray) -> np.ndarray:
    """Return the array with at most so many elements."""
    if array.dtype.kind not in "iub":
        array = array.astype(np.float64)
    while array.size > array.shape[0] * _MOST_ELEMENTS:
        longest = max(range(1, array.ndim), key=lambda axis: array.shape[axis])
        if array.dtype.kind == "f":
            array = array.mean(axis=longest, keepdims=True)
        else:
            array = np.take(array, [array.shape[longest] // 2], axis=longest)
    return array
