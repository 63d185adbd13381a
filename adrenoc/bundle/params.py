"""Keep the packed constants of a bundle in a file of safetensors, each of them once.

Kernels for two GPUs read the same weights from other places.  `moves.json` says of such a constant
which one of `params.safetensors` has its elements, and where each lies in both; they are brought
into its order as the bundle is loaded.  A place is a sum over axes of sums over digits of the
index, as `adrenoc.ir.places` finds them; what no element lies at is zero.  Filters that one GPU
reads as they are and another as Winograd's algorithm wants them are transformed on the way.

Winograd's filters are made in the same bits by all who make them: a compiler for kernels, and
whoever loads a bundle for several GPUs, of the plain filters that it holds (in the runtime
`bundle/moves.h`).  Sums are whole multiples of the filters, added in one order in
double precision, and one division ends them: coefficients are powers of two, so that no product is
rounded and nothing is left to a compiler that joins products and sums.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.base.errors import BundleError
from adrenoc.base.text import names
from adrenoc.base.text.json_text import mark_name
from adrenoc.bundle.manifest import REBUILD_HINT, FileEntry, ParamSpec, read_record, to_plain

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class FilterTransform:
    """`G w G^T` of filters `w`: row i of G is `rows[i]` over `divisors[i]`."""

    rows: tuple[tuple[int, ...], ...]
    divisors: tuple[int, ...]

    @classmethod
    def from_matrix(cls, matrix: Sequence[Sequence[Fraction]]) -> FilterTransform:
        """Return the same as whole numbers."""
        divisors = tuple(math.lcm(*(c.denominator for c in row)) for row in matrix)
        rows = (
            tuple(int(c * divisor) for c in row)
            for row, divisor in zip(matrix, divisors, strict=True)
        )
        return cls(rows=tuple(rows), divisors=divisors)

    @property
    def taps(self) -> int:
        """Rows and columns of a filter."""
        return len(self.rows[0])

    @property
    def side(self) -> int:
        """Rows and columns of what becomes of it."""
        return len(self.rows)

    def apply(self, filters: np.ndarray) -> np.ndarray:
        """Filters along the last two axes, in double precision."""
        import numpy as np

        # [row, column, filter]: NumPy goes along filters, of which there are many.
        wide = np.moveaxis(filters, (-2, -1), (0, 1)).astype(np.float64, order="C")
        with np.errstate(invalid="ignore"):  # what is infinite is no number then
            down = np.stack([_add(row, wide) for row in self.rows], axis=1)
            across = np.stack([_add(row, down) for row in self.rows], axis=1)
        for row, column in np.ndindex(across.shape[:2]):
            across[row, column] /= self.divisors[row] * self.divisors[column]
        return np.moveaxis(across, (0, 1), (-2, -1))


def _add(factors: Sequence[int], lines: np.ndarray) -> np.ndarray:
    """Return the sum over the first axis, the first products first."""
    whole: np.ndarray = lines[0] * float(factors[0])
    for factor, line in zip(factors[1:], lines[1:], strict=True):
        whole += line * float(factor)
    return whole


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
class ConstantSource:
    """The constant `name` out of the elements of `source`, in so many `counts` along each axis.  An
    element is of `width` bytes; places are counted in elements.  With a `transform` the last two
    axes are those of filters, of floats or halves; `places` are of what becomes of them."""

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
        """Return the constant, of the one that holds its elements."""
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


def moves_to_json(moves: Mapping[str, ConstantSource]) -> str:
    """Return the text of `moves.json`: a line for each constant."""
    lines = (json.dumps(to_plain(move), ensure_ascii=False) for move in moves.values())
    return '{"moves": [\n' + ",\n".join(lines) + "\n]}\n"


def read_moves(path: Path, where: str) -> dict[str, ConstantSource]:
    """Return the moves in a file, by the constant that each makes; none where there is no file."""
    if not path.is_file():
        return {}
    listed = read_record(_Moves, path, where)
    for move in listed.moves:
        _check(move, where)
    return {move.name: move for move in listed.moves}


@dataclass(frozen=True, kw_only=True)
class _Moves:
    moves: tuple[ConstantSource, ...]


def _wrong(where: str, name: str, what: str) -> BundleError:
    return BundleError(f"{where}: the move of `{name}` {what}", hint=REBUILD_HINT)


def _check(move: ConstantSource, where: str) -> None:
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


def _check_transform(move: ConstantSource, transform: FilterTransform, where: str) -> None:
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
    """Return all places, the last axis the fastest."""
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


_LENGTH_BYTES = 8
DTYPES = {
    "U64": "uint64", "I64": "int64", "F64": "float64", "F32": "float32", "U32": "uint32",
    "I32": "int32", "F16": "float16", "U16": "uint16", "I16": "int16", "I8": "int8",
    "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
"""What safetensors calls them, in the order in which it writes them."""


def read_params(
    path: Path,
    specs: Sequence[ParamSpec],
    *,
    where: str,
    moves: Mapping[str, ConstantSource] | None = None,
) -> dict[str, np.ndarray]:
    """Return the constants that `specs` say, by name; `where` names the file in messages."""
    found = walk_params(path, specs, where=where, moves=moves)
    return {spec.name: array.copy() for spec, array in zip(specs, found, strict=True)}


def walk_params(
    path: Path,
    specs: Sequence[ParamSpec],
    *,
    where: str,
    moves: Mapping[str, ConstantSource] | None = None,
) -> Iterator[np.ndarray]:
    """Yield the constants that `specs` say, each read when it is asked for; `where` names the file.
    So whoever hands them on holds one at a time: a language model's are as large as all of its
    memory on the device.  Those that `moves` make come of others of the file."""
    moved = moves or {}
    stored = _Stored(path, where)
    for spec in specs:
        move = moved.get(spec.name)
        source = spec.name if move is None else move.source
        seen = stored.read(source)
        if move is not None and seen is not None:
            seen = move.bring(seen, where)
        if seen is None or (seen.shape, str(seen.dtype)) != (spec.shape, spec.dtype):
            found = "nothing" if seen is None else f"{seen.dtype} {list(seen.shape)}"
            raise BundleError(
                f"{where} holds {found} at `{spec.name}`, expected {spec.dtype} {list(spec.shape)}",
                hint=REBUILD_HINT,
            )
        yield seen
        del seen
        stored.forget(source)


class _Stored:
    """The arrays of a file as views of it; of those that were read, no page stays in memory."""

    def __init__(self, path: Path, where: str) -> None:
        from safetensors import SafetensorError, safe_open

        self._where = where
        self._arrays: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        try:
            with safe_open(path, framework="numpy"):
                pass  # it checks that all in the header fits together
            with path.open("rb") as file:
                length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
                header = json.loads(file.read(length))
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            for name, entry in header.items():
                if name != "__metadata__":
                    begin, end = entry["data_offsets"]
                    at = _LENGTH_BYTES + length + begin
                    self._arrays[name] = (entry["dtype"], tuple(entry["shape"]), at, end - begin)
        except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
            raise BundleError(f"{where} holds no constants: {error}", hint=REBUILD_HINT) from error

    def read(self, name: str) -> np.ndarray | None:
        """Return an array; None where the file has none of that name."""
        import numpy as np

        if name not in self._arrays:
            return None
        stored, shape, at, size = self._arrays[name]
        if stored not in DTYPES:
            raise BundleError(
                f"{self._where} holds {stored} at `{name}`, expected one of {', '.join(DTYPES)}",
                hint=REBUILD_HINT,
            )
        numbers = np.frombuffer(self._map, np.uint8, size, at)
        return numbers.view(DTYPES[stored]).reshape(shape)

    def forget(self, name: str) -> None:
        """Give back the pages of an array, which count as this process's memory once read."""
        if name in self._arrays and hasattr(mmap, "MADV_DONTNEED"):
            _, _, at, size = self._arrays[name]
            begin = at - at % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, begin, at + size - begin)


def write_params(path: Path, params: Mapping[str, np.ndarray]) -> FileEntry:
    """Write packed constants, by name, as safetensors; return what a manifest says of the file.

    Raises:
        OSError: it cannot be written.
    """
    import numpy as np

    from adrenoc.base.files.spill import forget_pages

    codes = {dtype: code for code, dtype in DTYPES.items()}
    order = {dtype: place for place, dtype in enumerate(codes)}
    names = sorted(params, key=lambda name: (order[str(params[name].dtype)], name))
    header, end = {}, 0
    for name in names:
        array, begin = params[name], end
        end = begin + array.nbytes
        header[name] = {
            "dtype": codes[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    # Not by safetensors, which reads all arrays at once: spilled ones would become memory.
    head = len(text).to_bytes(_LENGTH_BYTES, "little") + text
    digest = hashlib.sha256(head)
    with path.open("wb") as file:
        file.write(head)
        for name in names:
            data = np.ascontiguousarray(params[name]).view(np.uint8).reshape(-1).data
            digest.update(data)
            file.write(data)
            forget_pages(params[name])
    return FileEntry(path=path.name, bytes=len(head) + end, sha256=digest.hexdigest())
