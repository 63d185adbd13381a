"""Modules are loaded, and models compiled, with little looking for circles among objects.

TVM and what uses it make some hundred thousand objects that stay for as long as the process; the
collector would go over them again and again, an eighth of the time of the imports and a twentieth
of a compilation's.

NumPy's products are in one thread: those of a command are small.  OpenBLAS starts a thread for each
core with the first product that might be worth it, and each one then looks for further work for
some hundredths of a second: of MobileNetV2's compilation that is a fiftieth, on two cores.
"""

import gc
import os
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


_RARELY = (100_000, 20, 20)
"""New objects before the youngest are looked at, and how many such looks before older ones are."""


@contextmanager
def collect_rarely() -> Iterator[None]:
    """While the block runs, what was there before is left alone, and new objects are many.

    What a caller has frozen stays so: there is no thawing of a part.
    """
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
    """The process ends: what there is goes with it, and nobody looks for circles once more.

    Python does so twice as it ends, which takes a tenth of a compilation's time.
    """
    gc.freeze()
    gc.disable()


def multiply_in_one_thread() -> None:
    """To be called before numpy is loaded; who sets the variable is heard."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
