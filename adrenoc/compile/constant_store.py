"""The constants of a bundle, each content once, whichever of its parts reads it.

Parts for two GPUs mostly read the same numbers in another order.  With `moves` the store keeps one
order, and for each other one how it comes of that (`adrenoc.bundle.params`).  Of filters it keeps
the plain ones, also where no part reads them so: Winograd's are two to four times as large.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from adrenoc.base.errors import BundleError
from adrenoc.base.files.spill import forget_pages
from adrenoc.bundle.params import FLOATS, ConstantSource, FilterTransform, Places
from adrenoc.compile.compiler import Compiled
from adrenoc.ir.half import round_constant
from adrenoc.ir.layout import (
    UNBOUNDED,
    Digits,
    find_axis_digits,
    forms_of,
    pack_indices,
    read_places,
)
from adrenoc.ir.program import Matrix, Packing

_MOST_ELEMENTS = 1 << 25
"""Of a larger constant no places are traced: that takes some forty bytes an element."""
_LEAST_BYTES = 4096
"""Smaller constants cost less than telling how they are moved."""
_OWN = "own"
"""The kind of the model's own numbers; others are computed of them."""
_ONE: Digits = ((UNBOUNDED, 0),)
"""The places along an axis of one element."""

Pack = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class _Origin:
    """A constant that is stored, and the places in it of the numbers that it was packed of."""

    name: str
    places: Places
    width: int


class ConstantStore:
    """Constants under names of the whole bundle; with `moves` each order once is told, not kept."""

    def __init__(self, *, moves: bool = False) -> None:
        self.params: dict[str, np.ndarray] = {}
        self.moves: dict[str, ConstantSource] = {}
        self._traces = moves
        self._names: dict[str, str] = {}
        self._origins: dict[str, _Origin] = {}

    def share_constants(self, compiled: Compiled) -> Compiled:
        """Return the same with constants named as all parts name them, each content once.

        How they were packed is left out: it holds the model's own constants, a set for each part.
        """
        packings = compiled.packings
        names = {n: self._name(value, packings.get(n)) for n, value in compiled.params.items()}
        return replace(
            compiled,
            params={name: self.params[name] for name in names.values() if name in self.params},
            packings={},
            param_specs=tuple(replace(s, name=names[s.name]) for s in compiled.param_specs),
        )

    def _name(self, value: np.ndarray, packing: Packing | None) -> str:
        content = _digest(value)
        forget_pages(value)
        if content not in self._names:
            name = f"p{len(self._names)}"
            self._names[content] = name
            traced = self._traces and packing is not None and value.nbytes >= _LEAST_BYTES
            move = self._trace(name, value, packing) if traced and packing is not None else None
            if move is None:
                self.params[name] = value
            else:
                self.moves[name] = move
        return self._names[content]

    def _trace(self, name: str, value: np.ndarray, packing: Packing) -> ConstantSource | None:
        """Return how `value` comes of a stored constant; without one it is an origin for others."""
        if packing.transform is not None:
            derived = self._derive(name, value, packing, packing.transform)
            if derived is not None:
                return derived
        own: dict[str, _Origin] = {}
        for key, counts, origin in _trace_origins(name, value, packing):
            other = self._origins.get(key)
            if other is None or other.width != origin.width:
                own.setdefault(key, origin)
                continue
            move = ConstantSource(
                name=name,
                shape=value.shape,
                dtype=str(value.dtype),
                source=other.name,
                width=origin.width,
                counts=counts,
                places=origin.places,
                source_places=other.places,
            )
            if _brings(move, self.params[other.name], value):
                return move
        self._origins |= own
        return None

    def _derive(
        self, name: str, value: np.ndarray, packing: Packing, transform: Matrix
    ) -> ConstantSource | None:
        """Return how `value` comes of plain filters, which are stored if they are not yet."""
        made = packing.make_rounded()
        found = _find_places(made, packing.move, value)
        axes = _order_axes(packing)
        if found is None or axes is None or found[1] not in FLOATS:
            return None
        places, width = found
        plain = round_constant(packing.prepare(packing.constant), FLOATS[width]).value
        origin = self._origins.get(_key(_OWN, packing.constant, width))
        if origin is None:
            origin = self._store_plain(plain, packing.constant, axes)
        digits = tuple(_ONE if a is None else origin.places.digits[a] for a in axes)
        move = ConstantSource(
            name=name,
            shape=value.shape,
            dtype=str(value.dtype),
            source=origin.name,
            width=width,
            counts=plain.shape,
            places=places,
            source_places=Places(first=origin.places.first, digits=digits),
            transform=FilterTransform.from_matrix(transform),
        )
        return move if _brings(move, self.params[origin.name], value) else None

    def _store_plain(
        self, plain: np.ndarray, constant: np.ndarray, axes: Sequence[int | None]
    ) -> _Origin:
        """Filters that no part reads as they are: in the order of their axes."""
        name = self._name(plain, None)
        digits, stride = [_ONE] * constant.ndim, 1
        for axis, count in reversed(list(zip(axes, plain.shape, strict=True))):
            if axis is not None:
                digits[axis] = ((UNBOUNDED, stride),)
            stride *= count
        places = Places(first=0, digits=tuple(digits))
        origin = _Origin(name=name, places=places, width=plain.dtype.itemsize)
        return self._origins.setdefault(_key(_OWN, constant, origin.width), origin)


def _brings(move: ConstantSource, source: np.ndarray, value: np.ndarray) -> bool:
    """Return whether a move makes this very constant: no bit may differ."""
    try:
        made = move.bring(source, "")
    except BundleError:
        return False
    return made.tobytes() == np.ascontiguousarray(value).tobytes()


def _trace_origins(
    name: str, value: np.ndarray, packing: Packing
) -> Iterator[tuple[str, tuple[int, ...], _Origin]]:
    """Yield what a constant was packed of: the model's own numbers, or what was computed of them.

    Gives a key of their content, their counts along each axis, and where they lie.
    """
    rounded = packing.make_rounded()
    for kind, numbers, pack in (
        (_OWN, packing.constant, packing.pack),
        ("rounded", rounded, packing.move),
    ):
        found = None if pack is None else _find_places(numbers, pack, value)
        if found is not None:
            places, width = found
            key = _key(kind, numbers, width)
            yield key, numbers.shape, _Origin(name=name, places=places, width=width)


def _key(kind: str, numbers: np.ndarray, width: int) -> str:
    """Return the key of numbers that are stored in so many bytes each."""
    return f"{kind} {width} {_digest(numbers)}"


def _find_places(numbers: np.ndarray, pack: Pack, value: np.ndarray) -> tuple[Places, int] | None:
    """Return where `pack` puts numbers in `value`, and each one's bytes; None where it computes."""
    if numbers.size > _MOST_ELEMENTS or numbers.size == 0 or numbers.ndim == 0:
        return None
    packed = pack_indices(numbers, pack, value.nbytes)
    for form in forms_of(str(value.dtype)) if packed else ():
        places = read_places(packed, numbers.size, form)
        digits = None if places is None else find_axis_digits(places.reshape(numbers.shape))
        if places is not None and digits is not None:
            return Places(first=int(places[0]), digits=digits), np.dtype(form).itemsize
    return None


def _order_axes(packing: Packing) -> tuple[int | None, ...] | None:
    """Return which axis of the constant each axis of the prepared one is; None of one element.

    Nothing at all where preparing does more than order them.
    """
    constant = packing.constant
    steps = [math.prod(constant.shape[axis + 1 :]) for axis in range(constant.ndim)]
    prepared = packing.prepare(np.arange(constant.size).reshape(constant.shape))
    if prepared.size != constant.size or prepared.size == 0:
        return None
    axes: list[int | None] = []
    for axis, count in enumerate(prepared.shape):
        line = np.moveaxis(prepared, axis, 0).reshape(count, -1)[:, 0]
        step = int(line[1] - line[0]) if count > 1 else None
        own = [a for a, s in enumerate(steps) if s == step and constant.shape[a] == count]
        if step is not None and not own:
            return None
        axes.append(own[0] if own else None)
    return tuple(axes)


def _digest(value: np.ndarray) -> str:
    content = hashlib.sha256(f"{value.shape} {value.dtype} ".encode())
    content.update(np.ascontiguousarray(value).data)
    return content.hexdigest()
