"""Tell how much memory this machine has left for us, and give back what nothing uses.

What Python and TVM raise where this machine has no memory left, as one error.

How much this process may map: libraries that find no room end a process without a word.
"""

import contextlib
import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adrenoc.base.errors import HostMemoryError

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")
_UNKNOWN = 4 << 30
"""What is assumed of a machine that does not say, as one without /proc."""


def available_bytes() -> int:
    """Bytes that can be had without swapping, within the limits of this process and its group."""
    bounds = [_read_machine(), _read_group(), _read_process()]
    return max(0, min((bound for bound in bounds if bound is not None), default=_UNKNOWN))


def _read_machine() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def _read_group() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        most = int((_GROUP / "memory.max").read_text())  # "max" where there is no limit
        return most - int((_GROUP / "memory.current").read_text())
    return None


def _read_process() -> int | None:
    most = _mapped_at_most()
    if most is None:
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return most - pages * resource.getpagesize()
    return most


def _mapped_at_most() -> int | None:
    """Return how many bytes this process may map; None where it has no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


_M_MMAP_THRESHOLD = -3
"""glibc's name of the size from which a block is a mapping of its own (malloc.h)."""
_LARGE_BYTES = 512 << 10


def return_large_blocks() -> None:
    """Have large blocks go back to the system when they are freed, from now on in this process.

    glibc raises the size of what it calls large with each such block that is freed, and keeps the
    smaller ones: a tenth of what compiling a language model takes.  Other C libraries have no such
    call, and do not need it.
    """
    _call_library("mallopt", _M_MMAP_THRESHOLD, _LARGE_BYTES)


def return_memory() -> None:
    """Drop objects that only hold each other, and what the C library keeps of freed blocks.

    TVM's objects hang in such circles, a model's weights among them.
    """
    gc.collect()
    _call_library("malloc_trim", 0)


def _call_library(function: str, *numbers: int) -> None:
    """Call a function of the C library, where it has one of this name."""
    import ctypes

    library = ctypes.CDLL(None)
    if hasattr(library, function):
        getattr(library, function)(*numbers)


@contextmanager
def memory_errors(doing: str) -> Iterator[None]:
    """Raise HostMemoryError where there is no memory left for `doing`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise HostMemoryError(
            f"this machine has no memory left for {doing}",
            hint="compile for a smaller input (--shape NAME:D,D,...), or on a machine with more "
            "memory",
        ) from error


def is_out_of_memory(error: Exception) -> bool:
    """Return whether nothing but memory is missing: TVM passes on what C++ says of that."""
    return isinstance(error, MemoryError) or str(error).strip() == "std::bad_alloc"


LEAST_BYTES = 768 << 20
"""TVM and numpy with their threads take some 600 MiB before there is a model."""


def require_address_space() -> None:
    """Refuse to start what could not load its libraries.

    Raises:
        HostMemoryError: `ulimit -v` is lower than `LEAST_BYTES`.
    """
    limit = _mapped_at_most()
    if limit is not None and limit < LEAST_BYTES:
        raise HostMemoryError(
            f"this process may map {limit >> 20} MiB (ulimit -v), expected {LEAST_BYTES >> 20} or "
            "more",
            hint="ulimit -v unlimited",
        )
