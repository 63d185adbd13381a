"""The functions that the counting OpenCL library (`stub_*.c`) has beside OpenCL's."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

OUT_OF_RESOURCES = -5


class Stub:
    """The library's own functions."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        library.stub_calls.restype = ctypes.c_long
        library.stub_live.restype = ctypes.c_long
        library.stub_log.restype = ctypes.c_char_p
        library.stub_properties.restype = ctypes.c_char_p
        self._library = library

    def calls(self, name: str) -> int:
        return int(self._library.stub_calls(name.encode()))

    def live(self) -> int:
        return int(self._library.stub_live())

    def slow(self, microseconds: int) -> None:
        self._library.stub_slow(microseconds)

    def properties(self) -> str:
        return str(self._library.stub_properties().decode())

    def log(self) -> str:
        return str(self._library.stub_log(1).decode())

    @contextmanager
    def failing(self, name: str, code: int = OUT_OF_RESOURCES) -> Iterator[None]:
        self._library.stub_fail(name.encode(), code)
        try:
            yield
        finally:
            self._library.stub_fail(name.encode(), 0)
