"""TVM without the parts that no compilation asks for: a third of the time that it takes to load.

`import tvm` loads hooks of every GPU.  Those of CUDA and Trainium ask for operators that this build
lacks, as does TVM's distributed runtime for its types: the first such question takes 0.2 s, for the
error that says so carries a backtrace through the debug information of all libraries.
"""

from __future__ import annotations

import os
import sys

_NEEDED = ("opencl", "adreno")
_DISTRIBUTED = "tvm.runtime.disco"
_AUTOLOAD = "TVM_DEVICE_BACKEND_AUTOLOAD"


def load_tvm() -> None:
    """Import TVM with the hooks of OpenCL and Adreno, unless it is there or a user chose hooks."""
    if "tvm" in sys.modules or _AUTOLOAD in os.environ:
        return
    os.environ[_AUTOLOAD] = "0"
    # What stands for a module that is not there; TVM does without it.
    sys.modules[_DISTRIBUTED] = None  # type: ignore[assignment]
    try:
        import tvm  # noqa: F401
        from tvm.backend import _autoload_backends as hooks
    finally:
        del os.environ[_AUTOLOAD], sys.modules[_DISTRIBUTED]
    hooks._BUILTIN_BACKENDS = _NEEDED
    hooks._AUTO_LOAD_DONE = False
    # These, TVM's library of functions for the CPU, and what other packages bring.
    hooks._autoload_backends()
