"""What Python and TVM raise where this machine has no memory left, as one error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from adrenoc.base.errors import HostMemoryError


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
