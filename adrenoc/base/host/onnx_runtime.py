"""onnxruntime, which nobody here imports but this room.

Its wheels send what they do to their makers unless told otherwise before the first import, and keep
an identifier of the user in the home folder and files in TMPDIR for that.  A model that is compiled
is nobody else's business.
"""

import importlib
import os
from types import ModuleType

_SILENT = "ORT_DISABLE_TELEMETRY"


def import_onnxruntime() -> ModuleType:
    """Return the package, which tells nobody of what it does; who sets the variable is heard.

    Raises:
        ImportError: it is not installed.
    """
    os.environ.setdefault(_SILENT, "1")
    return importlib.import_module("onnxruntime")


def runtime_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of onnxruntime, which share no base but Exception."""
    state = import_onnxruntime().capi.onnxruntime_pybind11_state
    own = [v for v in vars(state).values() if isinstance(v, type) and issubclass(v, Exception)]
    return (*own, RuntimeError, ValueError)
