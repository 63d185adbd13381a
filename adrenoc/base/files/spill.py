"""Large arrays: read where TVM can take them, and kept in files without a name.

A model's weights are held twice while it is compiled: as its file has them, which is the memory of
TVM's constants too, and packed.  What waits to be written lies in a file in the meantime, where it
is the system's cache and no process's memory, and comes back page by page where it is read.
"""

import mmap
import os
import tempfile
from typing import BinaryIO

import numpy as np

LEAST_BYTES = 1 << 16
"""Smaller arrays stay where they are."""
TVM_ALIGNMENT_BYTES = 64
"""What begins at a multiple of that TVM takes as a tensor without a copy."""
_FILE_BYTES = 256 << 20
"""One file holds many arrays: each that is open counts among the few that a process may have."""


def read_aligned(file: BinaryIO, size: int) -> np.ndarray:
    """Return a file's next `size` bytes, fewer at its end, as a read-only array TVM can take."""
    memory = np.empty(size + TVM_ALIGNMENT_BYTES, np.uint8)
    begin = -memory.ctypes.data % TVM_ALIGNMENT_BYTES
    data = memory[begin : begin + size]
    data = data[: file.readinto(data.data)]  # type: ignore[attr-defined]
    data.flags.writeable = False
    return data


class _File:
    """A file that is gone when the last array in it is; it takes no room before it is written."""

    def __init__(self, size: int) -> None:
        # It is closed with the last array.
        self._file = tempfile.TemporaryFile(prefix="adrenoc-")  # noqa: SIM115
        os.ftruncate(self._file.fileno(), size)
        self._map = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)
        self._end = 0

    def has_room(self, size: int) -> bool:
        return self._end + size <= len(self._map)

    def put(self, value: np.ndarray) -> np.ndarray:
        begin = self._end
        # Written and not mapped for writing: a full disk is an error here, and no signal later.
        self._file.seek(begin)
        self._file.write(np.ascontiguousarray(value).view(np.uint8).reshape(-1).data)
        self._file.flush()
        self._end = _to_page(begin + value.nbytes)
        numbers = np.frombuffer(self._map, np.uint8, value.nbytes, begin)
        return numbers.view(value.dtype).reshape(value.shape)


_files: list[_File] = []
"""The file that takes the next array, where there is one."""


def spill(value: np.ndarray) -> np.ndarray:
    """Return the numbers, read-only, in a file without a name; where it has no room, `value`."""
    if value.nbytes < LEAST_BYTES or value.dtype.hasobject or _map_of(value) is not None:
        return value
    try:
        if not _files or not _files[0].has_room(value.nbytes):
            _files[:] = [_File(max(_FILE_BYTES, _to_page(value.nbytes)))]
        return _files[0].put(value)
    except OSError:
        _files.clear()  # it may end in the middle of an array
        return value


def forget_pages(value: np.ndarray) -> None:
    """Let the system take back what was read of a spilled array; nothing of others."""
    found = _map_of(value)
    if found is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = np.frombuffer(found, np.uint8, 1).__array_interface__["data"][0]
    begin = value.__array_interface__["data"][0] - first
    begin -= begin % mmap.PAGESIZE
    found.madvise(mmap.MADV_DONTNEED, begin, min(_to_page(value.nbytes), len(found) - begin))


def _map_of(value: np.ndarray) -> mmap.mmap | None:
    base: object = value
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None


def _to_page(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
