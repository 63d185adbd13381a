"""Constants that a bundle does not hold, because it holds what they are made of in another order.

Kernels for two GPUs read the same weights from other places.  `moves.json` says of such a constant
which one of `params.safetensors` has its elements, and where each lies in both; they are brought
into its order as the bundle is loaded.  A place is a sum over axes of sums over digits of the
index, as `adrenoc.ir.places` finds them; what no element lies at is zero.  Filters that one GPU
reads as they are and another as Winograd's algorithm wants them are transformed on the way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.base.errors import BundleError
from adrenoc.base.files.read import read_plain
from adrenoc.base.text import names
from adrenoc.base.text.decode import mark_name
from adrenoc.base.text.json_text import read_json
from adrenoc.bundle.filter_transform import FilterTransform
from adrenoc.bundle.manifest import from_plain, to_plain
from adrenoc.bundle.tar import REBUILD_HINT

if TYPE_CHECKING:
    import numpy as np

MOVES = "moves.json"

Digits = tuple[tuple[int, ...], ...]
"""Radix and stride of each digit of an index, the lowest first."""

_MOST_AXES = 8
_MOST_DIGITS = 8
_MOST = 2**31 - 1
_MOST_SIDE = 8
"""Rows and columns of a transformed filter."""
_MOST_FACTOR = 1 << 16
"""A coefficient or a divisor of a transform."""
_FILTERS_AT_ONCE = 1 << 14
"""So many in double precision stay in a cache."""
FLOATS = {2: "float16", 4: "float32"}
"""What elements of filters are, by their bytes."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where elements lie: the `first`, and `digits` along each axis."""

    first: int
    digits: tuple[Digits, ...]


@dataclass(frozen=True, kw_only=True)
class Move:
    """The constant `name` out of the elements of `source`, in so many `counts` along each axis.

    An element is of `width` bytes; places are counted in elements.  With a `transform` the last two
    axes are those of filters, of floats or halves; `places` are of what becomes of them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = field(metadata=mark_name(names.WORD))
    source: str
    width: int
    counts: tuple[int, ...]
    places: Places
    source_places: Places
    transform: FilterTransform | None = None

    @property
    def made_counts(self) -> tuple[int, ...]:
        """Elements of the constant itself along each axis."""
        if self.transform is None:
            return self.counts
        return (*self.counts[:-2], self.transform.side, self.transform.side)

    def bring(self, source: np.ndarray, where: str) -> np.ndarray:
        """Return the constant, of the one that holds its elements.

        Raises:
            BundleError: a place lies outside of one of the two.
        """
        import numpy as np

        size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        if self.width not in (1, 2, 4, 8) or size % self.width or source.nbytes % self.width:
            raise _wrong(where, self.name, f"moves elements of {self.width} bytes")
        kind = np.dtype(f"u{self.width}")
        made = np.zeros(size // self.width, kind)
        taken = np.ascontiguousarray(source).reshape(-1).view(kind)
        to = _find_all(self.places, self.made_counts, len(made), f"{where}: {self.name}")
        at = _find_all(self.source_places, self.counts, len(taken), f"{where}: {self.name}")
        made[to] = taken[at] if self.transform is None else self._transform(taken[at])
        return made.view(self.dtype).reshape(self.shape)

    def _transform(self, elements: np.ndarray) -> np.ndarray:
        """Return the bits of filters, transformed, of the bits of plain ones."""
        import numpy as np

        if self.transform is None or not elements.size:
            return elements
        filters = elements.view(FLOATS[self.width]).reshape(-1, *self.counts[-2:])
        side = self.transform.side
        made = np.empty((len(filters), side, side), filters.dtype)
        for begin in range(0, len(filters), _FILTERS_AT_ONCE):
            some = slice(begin, begin + _FILTERS_AT_ONCE)
            with np.errstate(over="ignore"):
                made[some] = self.transform.apply(filters[some])
        return made.reshape(-1).view(elements.dtype)


def moves_to_json(moves: Mapping[str, Move]) -> str:
    """Return the text of `moves.json`: a line for each constant."""
    lines = (json.dumps(to_plain(move), ensure_ascii=False) for move in moves.values())
    return '{"moves": [\n' + ",\n".join(lines) + "\n]}\n"


def read_moves(path: Path, where: str) -> dict[str, Move]:
    """Return the moves in a file, by the constant that each makes; none where there is no file.

    Raises:
        BundleError: it is damaged; the sentence begins with `where`.
    """
    if not path.is_file():
        return {}
    try:
        plain = read_json(read_plain(path))
    except (OSError, ValueError) as error:
        raise BundleError(f"{where} is not JSON: {error}", hint=REBUILD_HINT) from error
    listed = from_plain(_Moves, plain, where)
    for move in listed.moves:
        _check(move, where)
    return {move.name: move for move in listed.moves}


@dataclass(frozen=True, kw_only=True)
class _Moves:
    moves: tuple[Move, ...]


def _wrong(where: str, name: str, what: str) -> BundleError:
    return BundleError(f"{where}: the move of `{name}` {what}", hint=REBUILD_HINT)


def _check(move: Move, where: str) -> None:
    """Refuse what no compiler writes, before anything is counted or allocated by it."""
    import numpy as np

    axes = len(move.counts)
    try:
        np.dtype(move.dtype)
    except TypeError:
        raise _wrong(where, move.name, f"has the unknown dtype {move.dtype}") from None
    numbers = [*move.counts, *move.shape]
    for places in (move.places, move.source_places):
        if len(places.digits) != axes:
            raise _wrong(where, move.name, f"has digits of {len(places.digits)} of {axes} axes")
        for digits in places.digits:
            if not 0 < len(digits) <= _MOST_DIGITS or any(len(d) != 2 or d[0] < 1 for d in digits):
                raise _wrong(where, move.name, "has digits that are no radix and stride")
            numbers += [abs(number) for digit in digits for number in digit]
    if move.transform is not None:
        _check_transform(move, move.transform, where)
    if not 0 < axes <= _MOST_AXES or any(not 0 <= n <= _MOST for n in numbers):
        raise _wrong(where, move.name, "has a number beyond what memory holds")
    if math.prod(move.made_counts) > _MOST or math.prod(move.shape) > _MOST:
        raise _wrong(where, move.name, "moves more elements than memory holds")


def _check_transform(move: Move, transform: FilterTransform, where: str) -> None:
    """Refuse a transform that is of no filters, or whose sums could be rounded."""
    taps = {len(row) for row in transform.rows}
    if move.width not in FLOATS or len(move.counts) < 2 or taps != set(move.counts[-2:]):
        raise _wrong(where, move.name, "transforms what is no filter")
    if not 0 < transform.side <= _MOST_SIDE or max(taps) > _MOST_SIDE:
        raise _wrong(where, move.name, "transforms filters to sides beyond what is made")
    if len(transform.divisors) != transform.side or any(d < 1 for d in transform.divisors):
        raise _wrong(where, move.name, "has divisors that are none of its rows")
    numbers = [*transform.divisors, *(abs(c) for row in transform.rows for c in row)]
    if any(number > _MOST_FACTOR for number in numbers):
        raise _wrong(where, move.name, "has a number beyond what memory holds")


def _find_all(places: Places, counts: tuple[int, ...], most: int, where: str) -> np.ndarray:
    """All places, the last axis the fastest."""
    import numpy as np

    whole = np.array([places.first], np.int64)
    if math.prod(counts) > most:
        raise BundleError(f"{where} moves more elements than there are", hint=REBUILD_HINT)
    for count, digits in zip(counts, places.digits, strict=True):
        left, line = np.arange(count), np.zeros(count, np.int64)
        for radix, stride in digits:
            line += left % radix * stride
            left //= radix
        whole = (whole[:, None] + line).reshape(-1)
    if whole.size and (whole.min() < 0 or whole.max() >= most):
        raise BundleError(f"{where} lies outside of its constant", hint=REBUILD_HINT)
    return whole
