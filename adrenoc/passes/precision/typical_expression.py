"""What the expression of a body comes to, in numbers, where those that it reads are known.

A tensor is known by an array with an axis for several trials, then its own axes, each of which is
whole or of one element: along the latter all elements are taken to be alike.  An expression is
evaluated over the axes that matter to it, and in the middle of the others, where padding is far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from adrenoc.families.shared.typical import NotKnownError
from adrenoc.ir.body import Body
from adrenoc.tvmapi import IF_THEN_ELSE, tirx, tvm

_MOST_PLACES = 1 << 17
"""At which an expression is evaluated: beyond it, axes are looked at in the middle alone."""

HIDING = 1e4
"""What is below minus that is taken for a mask: a number beside data that hides it."""

Known = Callable[[str], np.ndarray]
"""From a tensor's name to its numbers."""


def evaluate(
    body: Body, shape: Sequence[int], known: Known, more: Mapping[str, np.ndarray]
) -> np.ndarray:
    """The numbers of what a body makes, of this shape; `more` are known, too.

    Raises:
        NotKnownError: it has a part that is not looked into.
    """

    def lookup(name: str) -> np.ndarray:
        return more[name] if name in more else known(name)

    axes = [*zip(body.axes, map(int, shape), strict=True), *body.reduced]
    term, combine = _fold(body) if body.reduced else (body.value, None)
    grid = _Grid(body, term, axes, lookup)
    value = grid.evaluate(term)
    value = np.broadcast_to(value, (value.shape[0], *grid.extents))
    if combine is None:
        return value
    over = tuple(range(1 + len(body.axes), value.ndim))
    unseen = math.prod(e for _, e in body.reduced) / math.prod(value.shape[a] for a in over)
    if combine is tirx.Add:
        return np.asarray(value.sum(axis=over) * unseen)
    return np.asarray((np.max if combine is tirx.Max else np.min)(value, axis=over))


def _fold(body: Body) -> tuple[Any, Any]:
    """The term that is folded, and how."""
    value: Any = body.value
    if type(value) not in (tirx.Add, tirx.Max, tirx.Min):
        raise NotKnownError
    for accumulated, term in ((value.a, value.b), (value.b, value.a)):
        if isinstance(accumulated, tvm.ir.TensorLoad) and accumulated.source.same_as(
            body.accumulator
        ):
            return term, type(value)
    raise NotKnownError


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
        for wanted in self._sort_groups(map(self._axes_of, _parts(value, _COMPARED))):
            if self._places_of(whole | wanted) <= _MOST_PLACES:
                whole |= wanted
        self.extents = [extent if a in whole else 1 for a, (_, extent) in enumerate(axes)]
        self._places = [
            self._spread_along(a, np.arange(extent) if a in whole else np.array([extent // 2]))
            for a, (_, extent) in enumerate(axes)
        ]

    def evaluate(self, value: Any) -> np.ndarray:
        """The numbers of a part."""
        for kind, rule in _RULES:
            if isinstance(value, kind):
                return rule(self, value)
        raise NotKnownError

    # Steps

    def _spread_along(self, axis: int, places: np.ndarray) -> np.ndarray:
        return places.reshape([1] + [-1 if a == axis else 1 for a in range(len(self._axes))])

    def _places_of(self, axes: Iterable[int]) -> int:
        return math.prod(self._axes[axis][1] for axis in axes)

    def _sort_groups(self, groups: Iterable[set[int]]) -> list[set[int]]:
        """The shorter ones first."""
        long = [{axis for axis in group if self._axes[axis][1] > 1} for group in groups]
        return sorted(long, key=self._places_of)

    def _axes_of_loads(self, value: Any) -> Iterator[set[int]]:
        """The axes by which elements differ that are read, an index after the other."""
        for load in _parts(value, tvm.ir.TensorLoad):
            extents = self._array(load).shape[1:]
            for index, extent in zip(load.indices, extents, strict=True):
                if extent > 1:
                    yield self._axes_of(index)

    def _axes_of(self, index: Any) -> set[int]:
        return {
            a
            for var in _parts(index, tirx.Var)
            for a, (axis, _) in enumerate(self._axes)
            if axis.same_as(var)
        }

    def _array(self, load: Any) -> np.ndarray:
        found = next((a for buffer, a in self._arrays if buffer.same_as(load.source)), None)
        if found is None or found.ndim != len(load.indices) + 1:
            raise NotKnownError
        return found

    # Rules

    def _load(self, load: Any) -> np.ndarray:
        array = self._array(load)
        trial = np.arange(array.shape[0]).reshape([-1] + [1] * len(self._axes))
        places = []
        for index, extent in zip(load.indices, array.shape[1:], strict=True):
            place = self.evaluate(index) if extent > 1 else np.zeros_like(trial)
            places.append(np.clip(place.astype(np.int64), 0, extent - 1))
        return np.asarray(array[tuple([trial, *places])])

    def _variable(self, var: Any) -> np.ndarray:
        for (axis, _), places in zip(self._axes, self._places, strict=True):
            if axis.same_as(var):
                return places
        raise NotKnownError

    def _number(self, value: Any) -> np.ndarray:
        return np.full([1] * (1 + len(self._axes)), value.value)

    def _binary(self, value: Any) -> np.ndarray:
        return np.asarray(_BINARY[type(value)](self.evaluate(value.a), self.evaluate(value.b)))

    def _negate(self, value: Any) -> np.ndarray:
        return ~self.evaluate(value.a).astype(bool)

    def _cast(self, value: Any) -> np.ndarray:
        inner = self.evaluate(value.value)
        if str(value.ty).startswith("float"):
            return inner.astype(np.float64)
        return np.trunc(inner) if inner.dtype.kind == "f" else inner

    def _choose(self, value: Any) -> np.ndarray:
        return self._either(value.condition, value.true_value, value.false_value)

    def _either(self, condition: Any, *branches: Any) -> np.ndarray:
        shown = [b for b in branches if not _hides(b)]
        if len(shown) == 1:
            return self.evaluate(shown[0])
        return np.where(self.evaluate(condition), *(self.evaluate(b) for b in branches))

    def _call(self, call: Any) -> np.ndarray:
        name = call.op.name
        if name == IF_THEN_ELSE:
            return self._either(*call.args)
        if name not in _CALLS:
            raise NotKnownError
        return np.asarray(_CALLS[name](*(self.evaluate(part) for part in call.args)))


def _hides(value: Any) -> bool:
    return isinstance(value, tirx.FloatImm) and abs(value.value) >= HIDING


def _parts(value: Any, kind: Any) -> list[Any]:
    """The parts of a kind, in order."""
    found: list[Any] = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, kind):
            found.append(part)
        if isinstance(part, tvm.ir.TensorLoad):
            waiting += list(part.indices)
        elif isinstance(part, tvm.ir.Call):
            waiting += list(part.args)
        elif isinstance(part, tirx.Select):
            waiting += [part.condition, part.true_value, part.false_value]
        elif isinstance(part, tirx.Cast):
            waiting.append(part.value)
        elif isinstance(part, tirx.Not):
            waiting.append(part.a)
        elif type(part) in _BINARY:
            waiting += [part.a, part.b]
    return found


def _error_function(x: np.ndarray) -> np.ndarray:
    """erf, near enough."""
    return np.tanh(1.1283791670955126 * x * (1 + 0.0893 * x * x))


_BINARY: dict[Any, Callable[[np.ndarray, np.ndarray], Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Div: np.divide,
    tirx.Mod: np.fmod,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}
_COMPARED = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)

_RULES: tuple[tuple[Any, Callable[[_Grid, Any], np.ndarray]], ...] = (
    (tvm.ir.TensorLoad, _Grid._load),
    (tirx.Var, _Grid._variable),
    (tirx.FloatImm | tirx.IntImm, _Grid._number),
    (tuple(_BINARY), _Grid._binary),
    (tirx.Not, _Grid._negate),
    (tirx.Cast, _Grid._cast),
    (tirx.Select, _Grid._choose),
    (tvm.ir.Call, _Grid._call),
)

_CALLS: dict[str, Callable[..., Any]] = {
    "tirx.exp": np.exp,
    "tirx.exp2": np.exp2,
    "tirx.exp10": lambda x: np.power(10.0, x),
    "tirx.log": np.log,
    "tirx.log2": np.log2,
    "tirx.log10": np.log10,
    "tirx.log1p": np.log1p,
    "tirx.sqrt": np.sqrt,
    "tirx.rsqrt": lambda x: 1 / np.sqrt(x),
    "tirx.pow": np.power,
    "tirx.fabs": np.abs,
    "tirx.abs": np.abs,
    "tirx.floor": np.floor,
    "tirx.ceil": np.ceil,
    "tirx.trunc": np.trunc,
    "tirx.round": np.round,
    "tirx.nearbyint": np.round,
    "tirx.fmod": np.fmod,
    "tirx.tanh": np.tanh,
    "tirx.sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tirx.erf": _error_function,
    "tirx.sin": np.sin,
    "tirx.cos": np.cos,
    "tirx.tan": np.tan,
    "tirx.atan": np.arctan,
    "tirx.sinh": np.sinh,
    "tirx.cosh": np.cosh,
    "tirx.likely": lambda x: x,
}
