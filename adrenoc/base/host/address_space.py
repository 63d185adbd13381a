"""How much this process may map: libraries that find no room end a process without a word."""

from __future__ import annotations

import resource

from adrenoc.base.errors import HostMemoryError

LEAST_BYTES = 768 << 20
"""TVM and numpy with their threads take some 600 MiB before there is a model."""


def require_address_space() -> None:
    """Refuse to start what could not load its libraries.

    Raises:
        HostMemoryError: `ulimit -v` is lower than `LEAST_BYTES`.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_BYTES:
        raise HostMemoryError(
            f"this process may map {limit >> 20} MiB (ulimit -v), expected {LEAST_BYTES >> 20} or "
            "more",
            hint="ulimit -v unlimited",
        )
