"""Modules are loaded without looking for circles among their objects.

TVM and what uses it make some hundred thousand objects that stay for as long as the process; the
collector would go over them again and again, an eighth of the time of the imports.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
