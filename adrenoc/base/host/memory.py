"""Tell how much memory this machine has left for us, and give back what nothing uses."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
from pathlib import Path

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
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return most - pages * resource.getpagesize()
    return most


_M_MMAP_THRESHOLD = -3
"""glibc's name of the size from which a block is a mapping of its own (malloc.h)."""
_LARGE_BYTES = 512 << 10


def return_large_blocks() -> None:
    """Have large blocks go back to the system when they are freed, from now on in this process.

    glibc raises the size of what it calls large with each such block that is freed, and keeps the
    smaller ones: a tenth of what compiling a language model takes.  Other C libraries have no such
    call, and do not need it.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def return_memory() -> None:
    """Drop objects that only hold each other, and what the C library keeps of freed blocks.

    TVM's objects hang in such circles, a model's weights among them.
    """
    gc.collect()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
