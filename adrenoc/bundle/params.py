"""The packed constants of a bundle as a file of safetensors."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.base.errors import BundleError
from adrenoc.bundle.manifest import ParamSpec
from adrenoc.bundle.moves import Move

if TYPE_CHECKING:
    import numpy as np

_HINT = "compile the model again: adrenoc compile MODEL --device DEVICE"
_LENGTH_BYTES = 8
DTYPES = {
    "U64": "uint64", "I64": "int64", "F64": "float64", "F32": "float32", "U32": "uint32",
    "I32": "int32", "F16": "float16", "U16": "uint16", "I16": "int16", "I8": "int8",
    "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
"""What safetensors calls them, in the order in which it writes them."""


def read_params(
    path: Path, specs: Sequence[ParamSpec], *, where: str, moves: Mapping[str, Move] | None = None
) -> dict[str, np.ndarray]:
    """Return the constants that `specs` say, by name; `where` names the file in messages.

    Raises:
        BundleError: the file is damaged, or holds others.
    """
    found = walk_params(path, specs, where=where, moves=moves)
    return {spec.name: array.copy() for spec, array in zip(specs, found, strict=True)}


def walk_params(
    path: Path, specs: Sequence[ParamSpec], *, where: str, moves: Mapping[str, Move] | None = None
) -> Iterator[np.ndarray]:
    """Yield the constants that `specs` say, each read when it is asked for; `where` names the file.

    So whoever hands them on holds one at a time: a language model's are as large as all of its
    memory on the device.  Those that `moves` make come of others of the file.

    Raises:
        BundleError: the file is damaged, or holds others.
    """
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
                hint=_HINT,
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
            raise BundleError(f"{where} holds no constants: {error}", hint=_HINT) from error

    def read(self, name: str) -> np.ndarray | None:
        """Return an array; None where the file has none of that name.

        Raises:
            BundleError: nothing takes its dtype.
        """
        import numpy as np

        if name not in self._arrays:
            return None
        stored, shape, at, size = self._arrays[name]
        if stored not in DTYPES:
            raise BundleError(
                f"{self._where} holds {stored} at `{name}`, expected one of {', '.join(DTYPES)}",
                hint=_HINT,
            )
        numbers = np.frombuffer(self._map, np.uint8, size, at)
        return numbers.view(DTYPES[stored]).reshape(shape)

    def forget(self, name: str) -> None:
        """Give back the pages of an array, which count as this process's memory once read."""
        if name in self._arrays and hasattr(mmap, "MADV_DONTNEED"):
            _, _, at, size = self._arrays[name]
            begin = at - at % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, begin, at + size - begin)


def write_params(path: Path, params: Mapping[str, np.ndarray]) -> None:
    """Write packed constants, by name, as safetensors.

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
    with path.open("wb") as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        for name in names:
            file.write(np.ascontiguousarray(params[name]).view(np.uint8).reshape(-1).data)
            forget_pages(params[name])
