"""NumPy's products in one thread: those of a command are small, and its threads wait by spinning.

OpenBLAS starts a thread for each core with the first product that might be worth it, and each one
then looks for further work for some hundredths of a second: of MobileNetV2's compilation that is a
fiftieth, on two cores.
"""

import os

_THREADS = "OPENBLAS_NUM_THREADS"


def multiply_in_one_thread() -> None:
    """To be called before numpy is loaded; who sets the variable is heard."""
    os.environ.setdefault(_THREADS, "1")
