"""Arrays of numbers as the file of tables holds them."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 8
Step: TypeAlias = dict[str, Any]
"""What the file's object says of one thing."""


class Arrays:
    """Arrays as bytes, one behind the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, array: NDArray[Any] | bytes) -> dict[str, int]:
        """Return where an array lies, of how many elements of how many bytes it is."""
        stored = array if isinstance(array, bytes) else array.astype(array.dtype.newbyteorder("<"))
        content = stored if isinstance(stored, bytes) else stored.tobytes()
        width = 1 if isinstance(stored, bytes) else stored.itemsize
        place = {"at": self._size, "count": len(content) // width, "bytes": width}
        padded = content + bytes(-len(content) % ALIGNMENT)
        self._parts.append(padded)
        self._size += len(padded)
        return place

    def add_all(self, record: object) -> dict[str, dict[str, int]]:
        """Return where the arrays of a record lie, by name."""
        return {name: self.add(array) for name, array in vars(record).items()}

    def add_texts(self, texts: Iterable[bytes]) -> dict[str, dict[str, int]]:
        """Return where texts lie, one behind the other, and where each begins."""
        held = list(texts)
        starts = np.cumsum([0, *map(len, held)], dtype=np.uint32)
        return {"starts": self.add(starts), "bytes": self.add(b"".join(held))}

    @property
    def content(self) -> bytes:
        """Return all of them."""
        return b"".join(self._parts)
