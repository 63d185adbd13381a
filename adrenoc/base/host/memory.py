"""Tell how much memory this machine has left for us, and give back what nothing uses.

Modules are loaded, and models compiled, with little looking for circles among objects: TVM and what
uses it make some hundred thousand that stay for as long as the process; the collector would go over
them again and again, an eighth of the time of the imports and a twentieth of a compilation's.

NumPy's products are in one thread: those of a command are small.  OpenBLAS starts a thread for each
core with the first product that might be worth it, and each one then looks for further work for
some hundredths of a second: of MobileNetV2's compilation that is a fiftieth, on two cores.
"""

import contextlib
import gc
import os
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
    call, and do not need it."""
    _call_library("mallopt", _M_MMAP_THRESHOLD, _LARGE_BYTES)


def return_memory() -> None:
    """Drop objects that only hold each other, and what the C library keeps of freed blocks. TVM's
    objects hang in such circles, a model's weights among them."""
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
    """Refuse to start what could not load its libraries. Raises HostMemoryError where `ulimit -v`
    is lower than `LEAST_BYTES`."""
    limit = _mapped_at_most()
    if limit is not None and limit < LEAST_BYTES:
        raise HostMemoryError(
            f"this process may map {limit >> 20} MiB (ulimit -v), expected {LEAST_BYTES >> 20} or "
            "more",
            hint="ulimit -v unlimited",
        )


@contextmanager
def collector_paused() -> Iterator[None]:
    """While the block imports, nothing is collected; then all is as it was."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_RARELY = (100_000, 20, 20)
"""New objects before the youngest are looked at, and how many such looks before older ones are."""


@contextmanager
def collect_rarely() -> Iterator[None]:
    """While the block runs, what was there before is left alone, and new objects are many. What a
    caller has frozen stays so: there is no thawing of a part."""
    before, is_ours = gc.get_threshold(), gc.get_freeze_count() == 0
    if is_ours:
        gc.freeze()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if is_ours:
            gc.unfreeze()


def leave_objects() -> None:
    """The process ends: what there is goes with it, and nobody looks for circles once more. Python
    does so twice as it ends, which takes a tenth of a compilation's time."""
    gc.freeze()
    gc.disable()


def multiply_in_one_thread() -> None:
    """Tell numpy, before it is loaded, to use one thread; who sets the variable is heard."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
