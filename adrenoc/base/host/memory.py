"""How much memory this machine has left for us."""

from __future__ import annotations

import contextlib
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
