"""What an expression does to its operands, found by computing it at some hundred points.

Operators have names without end, and a rule for each name forgets the next one.  What storage in
half precision costs does not hang on names: it is how far a result moves when one operand is
rounded, and how large results become when operands are.  Both are seen when the expression is
computed where it matters: at numbers of all magnitudes, at the constants that it compares with, at
operands that are alike.

    sigmoid(x), x + y, min(max(x, 0), 6)    a rounded operand moves the result as far as itself
    sin(x), exp(x), log(x), floor(x), x > y moves it by more than its own rounding
    x * x, x * y, x * 1e6                   results grow faster than the operands
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_equal, structural_hash

from adrenoc.base.tvmapi import dtype_of, tirx, tvm
from adrenoc.ir.graph import Body
from adrenoc.ir.half import HALF_TINY
from adrenoc.kernels.body_cost import operands_of, parts_of_kind
from adrenoc.kernels.families.shared.operator import NotKnownError
from adrenoc.passes.analyse.scalar_body import COMPARISONS, evaluate, parts_of, unify_reads

LARGE = 256.0
"""How large numbers that a network learned are taken to become now and then."""
USUAL = 64.0
"""How large they often are: what rounding costs is judged up to there."""
_POINTS = 1024
_AMPLIFIED = 4 * 2.0**-11
"""Of the largest result: a rounded operand of that size may move it by four times its rounding."""
_ENDS = 64
"""Points at which operands are at one of their ends, in all combinations of some operands."""
OF_TERMS = 2.0**-10
"""What the roundings of a sum's terms, each of about one, come to."""
OF_A_SUM = 2.0**-12
"""What those come to of which a sum of about one was learned: many small ones."""
_HALVINGS = 6
"""From a 64th of a constant's number down to a half's rounding of it."""
_LEAST = 1e-9
"""The smallest magnitude that points have, beside zero."""


@dataclass(frozen=True, kw_only=True)
class ValueRange:
    """Between which numbers an operand lies, and the size that it usually has."""

    low: float = -LARGE
    high: float = LARGE
    size: float = 1.0

    @property
    def most(self) -> float:
        """Return the largest size that one can have."""
        return max(abs(self.low), abs(self.high))


Operand = Callable[[str], "ValueRange | np.ndarray"]
"""Tensor -> what is known of its numbers, or these numbers where they are constant."""


class ExprProbe:
    """One expression at many points, the same whenever it is asked again."""

    def __init__(self, body: Body, extents: Sequence[int], operand: Operand) -> None:
        """Look at a body whose result has these extents along its axes."""
        self._body, self._operand = body, operand
        self._value = replace(body, value=unify_reads(body)).term
        self._extents = [
            *zip(body.axes, map(int, extents), strict=False),
            *((variable, int(extent)) for variable, extent in body.reduced),
        ]
        found: dict[int, list[Any]] = {}
        loads = (
            part
            for part in parts_of(self._value, operands_of)
            if isinstance(part, tvm.ir.TensorLoad)
        )
        for load in loads:
            alike = found.setdefault(structural_hash(load), [])
            if not any(structural_equal(load, other) for other in alike):
                alike.append(load)
        self._loads = [load for alike in found.values() for load in alike]

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the tensors whose elements the value is computed of."""
        return frozenset(self._body.sources.get(load.source, "") for load in self._loads)

    def results(self, limit: float) -> np.ndarray:
        """Return what it comes to where operands are as large as they may be, but `limit` at most.

        Raises:
            NotKnownError: it has a part that is not looked into.
        """
        return self._compute(self._draw(limit))

    def usual_size(self) -> float:
        """Return how large results usually are where operands have their usual sizes."""
        points = {at: self._draw_load(at, 2.0, usual=True) for at in range(len(self._loads))}
        found = np.abs(self._compute(points))
        found = found[np.isfinite(found)]
        return float(np.quantile(found, 0.9)) if found.size else 1.0

    def is_affine(self) -> bool:
        """Return whether results lie on straight lines: moves, offsets and factors."""
        one, other = self._draw(LARGE), self._draw(LARGE, seed=1)
        middle = {
            at: value if self._is_constant(at) else (value + other[at]) / 2
            for at, value in one.items()
        }
        other = {at: one[at] if self._is_constant(at) else value for at, value in other.items()}
        with np.errstate(invalid="ignore"):
            return _are_same(self._compute(one) + self._compute(other), 2 * self._compute(middle))

    def is_even(self, of: Callable[[str], bool]) -> bool:
        """Return whether the signs of some operands may change together, as in sizes of them."""
        one = self._draw(LARGE)
        turned = dict(one)
        for at, load in enumerate(self._loads):
            if of(self._body.sources.get(load.source, "")):
                turned[at] = -one[at]
        return _are_same(self._compute(one), self._compute(turned))

    def find_amplified(
        self, stored: Callable[[str], bool], least: float, absolute: Callable[[str], float]
    ) -> frozenset[str]:
        """Find the tensors of those `stored` in half whose rounding moves the result much further.

        Halves below `least` are zero on the device.  A sum is off by what its terms were rounded
        by, too, which near zero is more than its own rounding: `absolute` says how much.
        Operands may be of one as well as of tens: a step of one is little of hundreds, and all of
        what is left of numbers below one.
        """
        moves = partial(self._find_moving, stored=stored, least=least)
        try:
            return moves(USUAL, absolute=absolute) | moves(1.0, absolute=lambda name: 0.0)
        except NotKnownError:
            return frozenset(name for name in self.names if stored(name))

    def _find_moving(
        self,
        limit: float,
        *,
        stored: Callable[[str], bool],
        least: float,
        absolute: Callable[[str], float],
    ) -> frozenset[str]:
        """Find them where operands are of `limit` at most."""
        points = self._draw(limit)
        exact = self._compute(points)
        finite = np.isfinite(exact)
        bar = _AMPLIFIED * np.abs(exact[finite]).max(initial=0.0)
        found = set()
        for at, load in enumerate(self._loads):
            name = self._body.sources.get(load.source, "")
            if not stored(name):
                continue
            if self._is_constant(at):
                base, moved = self._find_steep(points, at)
            else:
                off = round_to_half(points[at], least) + absolute(name)
                base, moved = exact, self._compute({**points, at: off})
            with np.errstate(invalid="ignore"):
                distance = np.abs(moved - base)[finite]
            if not np.isfinite(moved[finite]).all() or distance.max(initial=0.0) > bar:
                found.add(name)
        return frozenset(found)

    def _find_steep(
        self, points: Mapping[int, np.ndarray], at: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the results at two numbers near a constant's own, a rounding apart, between which
        they differ most: none of the few points may lie a rounding before a step."""
        low, high = points[at], points[at] * (1 + 2.0**-_HALVINGS)
        below, above = (self._compute({**points, at: value}) for value in (low, high))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            half = self._compute({**points, at: middle})
            with np.errstate(invalid="ignore"):
                is_first = np.abs(half - below) >= np.abs(above - half)
            low, high = np.where(is_first, low, middle), np.where(is_first, middle, high)
            below, above = np.where(is_first, below, half), np.where(is_first, half, above)
        return below, above

    # Points

    def _is_constant(self, at: int) -> bool:
        name = self._body.sources.get(self._loads[at].source, "")
        return isinstance(self._operand(name), np.ndarray)

    def _draw(self, limit: float, seed: int = 0) -> dict[int, np.ndarray]:
        return {at: self._draw_load(at, limit, seed=seed) for at in range(len(self._loads))}

    def _draw_load(
        self, at: int, limit: float, *, usual: bool = False, seed: int = 0
    ) -> np.ndarray:
        load = self._loads[at]
        known = self._operand(self._body.sources.get(load.source, ""))
        if isinstance(known, np.ndarray):
            random = np.random.default_rng((seed, at))
            flat = known.reshape(-1)
            return flat[random.integers(0, max(flat.size, 1), _POINTS)].astype(np.float64)
        limit *= known.size if usual else max(known.size, 1.0)
        low, high = known.low, known.high
        if low < limit and high > -limit:
            low, high = max(low, -limit), min(high, limit)
        low, high = low + 0.0, high + 0.0  # no zero with a sign, which would be found as the other
        if usual:
            drawn = _draw_evenly(seed, at, low, high)
        else:
            drawn = _spread(seed, at, low, high, self._thresholds)
        return drawn if dtype_of(load).startswith("float") else np.rint(drawn)

    @cached_property
    def _thresholds(self) -> tuple[float, ...]:
        """Return the numbers that the expression compares with or holds: where it may jump."""
        kinds = (*COMPARISONS, tirx.Max, tirx.Min)
        sides = (side for part in parts_of_kind(self._value, kinds) for side in (part.a, part.b))
        return tuple(float(side.value) for side in sides if isinstance(side, tirx.FloatImm))

    @cached_property
    def _places(self) -> list[tuple[Any, np.ndarray]]:
        """Return where points lie along each axis."""
        random = np.random.default_rng(3)
        return [(axis, random.integers(0, max(n, 1), _POINTS)) for axis, n in self._extents]

    def _compute(self, points: Mapping[int, np.ndarray]) -> np.ndarray:
        def leaf(part: Any) -> np.ndarray:
            if isinstance(part, tvm.ir.TensorLoad):
                return points[self._find_load(part)]
            found = next((value for axis, value in self._places if axis.same_as(part)), None)
            if found is None:
                raise NotKnownError
            return found

        with np.errstate(all="ignore"):
            value = evaluate(self._value, leaf)
        return np.broadcast_to(np.asarray(value, np.float64), (_POINTS,))

    def _find_load(self, load: Any) -> int:
        for at, known in enumerate(self._loads):
            if known.same_as(load) or structural_equal(known, load):
                return at
        raise NotKnownError


def _are_same(sides: np.ndarray, others: np.ndarray) -> bool:
    """Return whether what is finite of two results differs by a millionth of the largest alone."""
    with np.errstate(invalid="ignore"):
        bent = np.abs(sides - others)
    bent, sides = bent[np.isfinite(bent)], np.abs(sides[np.isfinite(sides)])
    return bool(bent.max(initial=0.0) <= 1e-6 * sides.max(initial=0.0))


@lru_cache(maxsize=512)
def _draw_evenly(seed: int, at: int, low: float, high: float) -> np.ndarray:
    """Draw points between two numbers; nobody writes to what is remembered."""
    drawn = np.random.default_rng((seed, at)).uniform(low, high, _POINTS)
    drawn.flags.writeable = False
    return drawn


@lru_cache(maxsize=512)
def _spread(
    seed: int, at: int, low: float, high: float, thresholds: tuple[float, ...]
) -> np.ndarray:
    """Draw points between two numbers: at both, evenly, by magnitude, at thresholds, alike.  Layers
    of a network are alike, and ask for the same points again."""
    random, quarter = np.random.default_rng((seed, at)), _POINTS // 4
    even = random.uniform(low, high, quarter)
    even[:_ENDS] = random.choice([low, high], _ENDS)
    even[:2] = low, high
    largest = max(abs(low), abs(high), 2 * _LEAST)
    sizes = np.exp(random.uniform(np.log(_LEAST), np.log(largest), quarter))
    sizes *= random.choice([-1.0, 1.0], quarter)
    # Thresholds and what lies a rounding beside them; last, points that operands share.
    near = random.choice(thresholds or (0.0,), quarter)
    near *= 1 + random.uniform(-1, 1, quarter) * 2.0**-12
    shared = np.random.default_rng(7).uniform(low, high, _POINTS - 3 * quarter)
    alike = shared * (1 + random.choice([-1.0, 0.0, 1.0], shared.size) * 2.0**-12)
    drawn: np.ndarray = np.clip(np.concatenate([even, sizes, near, alike]), low, high)
    drawn.flags.writeable = False
    return drawn


def round_to_half(value: np.ndarray, least: float) -> np.ndarray:
    """Round numbers to half and back; what is below `least` becomes zero."""
    with np.errstate(over="ignore"):
        rounded = value.astype(np.float16).astype(np.float64)
    if least > HALF_TINY:
        rounded = np.where(np.abs(rounded) < least, 0.0, rounded)
    return rounded
