"""The constants of a bundle, each content once, whichever of its parts reads it.

Parts for two GPUs mostly read the same numbers in another order.  With `moves` the store keeps one
order, and for each other one how it comes of that (`adrenoc.bundle.moves`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from adrenoc.bundle.moves import Move, Places
from adrenoc.compile.compiler import Compiled
from adrenoc.errors import BundleError
from adrenoc.files.spill import forget_pages
from adrenoc.ir.places import find_axis_digits, forms_of, pack_indices, read_places
from adrenoc.ir.program import Packing

_MOST_ELEMENTS = 1 << 25
"""Of a larger constant no places are traced: that takes some forty bytes an element."""
_LEAST_BYTES = 4096
"""Smaller constants cost less than telling how they are moved."""


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
        self.moves: dict[str, Move] = {}
        self._traces = moves
        self._names: dict[str, str] = {}
        self._origins: dict[str, _Origin] = {}

    def share_constants(self, compiled: Compiled) -> Compiled:
        """The same with constants named as all parts name them, each content once.

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

    def _trace(self, name: str, value: np.ndarray, packing: Packing) -> Move | None:
        """How `value` comes of a stored constant; without one it becomes an origin for others."""
        own: dict[str, _Origin] = {}
        for key, counts, origin in _trace_origins(name, value, packing):
            other = self._origins.get(key)
            if other is None or other.width != origin.width:
                own.setdefault(key, origin)
                continue
            move = Move(
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


def _brings(move: Move, source: np.ndarray, value: np.ndarray) -> bool:
    """Whether a move makes this very constant: no bit may differ."""
    try:
        made = move.bring(source, "")
    except BundleError:
        return False
    return made.tobytes() == np.ascontiguousarray(value).tobytes()


def _trace_origins(
    name: str, value: np.ndarray, packing: Packing
) -> Iterator[tuple[str, tuple[int, ...], _Origin]]:
    """What a constant was packed of: the model's own numbers, or what was computed of them.

    Gives a key of their content, their counts along each axis, and where they lie.
    """
    rounded = packing.make_rounded()
    for kind, numbers, pack in (
        ("own", packing.constant, packing.pack),
        ("rounded", rounded, packing.move),
    ):
        if pack is None or numbers.size > _MOST_ELEMENTS or numbers.size == 0 or numbers.ndim == 0:
            continue
        packed = pack_indices(numbers, pack, value.nbytes)
        for form in forms_of(str(value.dtype)) if packed else ():
            places = read_places(packed, numbers.size, form)
            digits = None if places is None else find_axis_digits(places.reshape(numbers.shape))
            if places is None or digits is None:
                continue
            found = Places(first=int(places[0]), digits=digits)
            width = np.dtype(form).itemsize
            key = f"{kind} {width} {_digest(numbers)}"
            yield key, numbers.shape, _Origin(name=name, places=found, width=width)
            break


def _digest(value: np.ndarray) -> str:
    content = hashlib.sha256(f"{value.shape} {value.dtype} ".encode())
    content.update(np.ascontiguousarray(value).data)
    return content.hexdigest()
