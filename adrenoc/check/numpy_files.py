"""NumPy's files as others wrote them: numbers, or one sentence about what they are instead."""

from __future__ import annotations

import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from adrenoc.base.errors import InputError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import open_plain
from adrenoc.base.text.spelling import quote_word

MOST_INPUT_BYTES = 4 << 30
T = TypeVar("T")
# What numpy, zipfile and Python's parser, which reads the headers, make of damage.
_DAMAGED = (
    *(ValueError, TypeError, KeyError, EOFError, SyntaxError, RecursionError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def load_array(path: Path) -> np.ndarray:
    """Return the array of a .npy file.

    Raises:
        InputError: the file is missing, damaged, or holds something else.
    """
    return _load_plain(path, _array)


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a .npz file, by name.

    Raises:
        InputError: the file is missing, damaged, too long, or holds something else.
    """
    return _load_plain(path, _arrays)


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a .npz file, whatever the arrays are called (`np.savez` takes no `file`).

    Raises:
        OutputError: it cannot be written.
    """
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    write_atomically(path, buffer.getvalue())


def _load_plain(path: Path, load: Callable[[BinaryIO], T]) -> T:
    try:
        with open_plain(path) as stream:
            return load(stream)
    except FileNotFoundError as error:
        raise InputError(
            f"input file {path} does not exist", hint=f"ls {quote_word(path.parent)}"
        ) from error
    except OSError as error:
        raise InputError(
            f"input file {path} cannot be read: {error.strerror or error}",
            hint=f"ls {quote_word(path.parent)}",
        ) from error
    except _DAMAGED as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        # numpy takes whatever it does not know for objects, and says how to run them.
        told = reason[0]
        if told.startswith("Object arrays"):
            told = "it holds objects of Python, which are not loaded"
        elif "pickle" in told:
            told = "it begins as none does"
        raise InputError(
            f"{path} is not a NumPy file of numbers: {told}", hint="save it with np.save"
        ) from error


def _array(stream: BinaryIO) -> np.ndarray:
    _check_length(stream)
    found: Any = np.load(stream, allow_pickle=False)
    if not isinstance(found, np.ndarray):
        raise ValueError("it is an archive; expected one array (.npz is how archives end)")
    return found


def _check_length(stream: BinaryIO) -> None:
    """Refuse a header that promises more than the file holds, before room is made for it."""
    if not stream.read(1).startswith(b"\x93"):
        stream.seek(0)
        return
    stream.seek(0)
    read = _HEADERS.get(np.lib.format.read_magic(stream))
    if read is not None:
        try:
            shape, _, dtype = read(stream)
        except MemoryError as error:  # Python's parser, of what is nested too deeply
            raise ValueError("its header is nested too deeply") from error
        promised = dtype.itemsize
        for extent in shape:  # numpy's product would overflow
            promised *= int(extent)
        left = os.fstat(stream.fileno()).st_size - stream.tell()
        if promised > left and not dtype.hasobject:
            raise ValueError(f"its header promises {promised} bytes, and {left} follow")
    stream.seek(0)


def _arrays(stream: BinaryIO) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(stream) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
        if size > MOST_INPUT_BYTES:
            raise ValueError(f"it unpacks to {size} bytes, expected up to {MOST_INPUT_BYTES}")
    stream.seek(0)
    with np.load(stream, allow_pickle=False) as loaded:
        found = {name: loaded[name] for name in loaded.files}
    other = [name for name, value in found.items() if not isinstance(value, np.ndarray)]
    if other:
        raise ValueError(f"{other[0]!r} in it is no array")
    return found
