"""Where packed constants have their elements: places along each axis, as digits of its index.

Packing only moves elements.  Where each of them lies is a sum of places, one for each axis of what
was packed, and a place is a sum over digits of the index: a few numbers tell it of all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

MOST_DIGITS = 6
UNBOUNDED = 2**31 - 1
_BASE = 100
"""Indices are told by packing their digits, plus one, in place of the elements: they fit any
dtype."""
_FORMS = {"int8": ("int8",), "uint32": ("int8", "float16")}
"""How to look at the elements of a packed constant of a dtype, if not as what they are."""

Digits = tuple[tuple[int, int], ...]
"""Radix and stride of each digit of an index, the lowest first."""


def forms_of(dtype: str) -> tuple[str, ...]:
    """Return the dtypes that elements of a packed constant of `dtype` may be of."""
    return _FORMS.get(dtype, (dtype,))


def pack_indices(
    constant: np.ndarray, pack: Callable[[np.ndarray], np.ndarray], packed_bytes: int
) -> list[np.ndarray]:
    """Return the digits of each element's index, plus one, packed as it is: the lowest first.

    Nothing where what is packed so has another size than the constant.
    """
    numbers = np.arange(constant.size, dtype=np.int64).reshape(constant.shape)
    found, power = [], 1
    while power <= constant.size:
        packed = pack((numbers // power % _BASE + 1).astype(constant.dtype))
        if packed.nbytes != packed_bytes:
            return []
        found.append(np.ascontiguousarray(packed).reshape(-1))
        power *= _BASE
    return found


def read_places(packed: list[np.ndarray], count: int, form: str) -> np.ndarray | None:
    """Return where each of `count` elements lies among those of what `pack_indices` gave.

    None where packing did more than move them, or left one out.
    """
    views = [one.view(form) for one in packed]
    for digits in views:
        if not ((digits >= 0) & (digits <= _BASE)).all() or (digits != np.rint(digits)).any():
            return None
    filled, held = views[0] > 0, np.zeros(views[0].size, np.int64)
    for place, digits in enumerate(views):
        held += (digits.astype(np.int64) - 1) * _BASE**place
    places = np.full(count, -1, np.int64)
    if not filled.any() or held[filled].max() >= count or held[filled].min() < 0:
        return None
    places[held[filled]] = np.flatnonzero(filled)
    return places if (places >= 0).all() else None


def find_axis_digits(places: np.ndarray) -> tuple[Digits, ...] | None:
    """Return the digits along each axis of places, counted from the first; None where they are not
    so."""
    first = places.flat[0]
    lines = [
        places[tuple(slice(None) if a == axis else 0 for a in range(places.ndim))] - first
        for axis in range(places.ndim)
    ]
    digits = tuple(d for line in lines if (d := find_digits(line)) is not None)
    if len(digits) < len(lines) or not np.array_equal(places, _join_axes(lines) + first):
        return None
    return digits


def _join_axes(lines: list[np.ndarray]) -> np.ndarray:
    whole = lines[0]
    for line in lines[1:]:
        whole = whole[..., None] + line
    return whole


def find_digits(line: np.ndarray) -> Digits | None:
    """Radices and strides that give these places; None where there are too many."""
    found: list[tuple[int, int]] = []
    while len(line) > 1:
        stride = int(line[1])
        apart = np.flatnonzero(line != np.arange(len(line)) * stride)
        radix = int(apart[0]) if len(apart) else len(line)
        whole = line[::radix]
        again = (whole[:, None] + np.arange(radix) * stride).reshape(-1)
        if not np.array_equal(line, again[: len(line)]):
            return None
        found.append((radix if len(whole) > 1 else UNBOUNDED, stride))
        line = whole
    return tuple(found or [(UNBOUNDED, 0)]) if len(found) <= MOST_DIGITS else None
