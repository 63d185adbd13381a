"""Memory that nothing uses any more goes back to the system."""

from __future__ import annotations

import ctypes
import gc

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
