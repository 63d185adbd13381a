"""onnxruntime, which nobody here imports but this room.

Its wheels send what they do to their makers unless told otherwise before the first import, and keep
an identifier of the user in the home folder and files in TMPDIR for that.  A model that is compiled
is nobody else's business.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

_SILENT = "ORT_DISABLE_TELEMETRY"
_TABLES = "onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs"


def import_onnxruntime() -> ModuleType:
    """Return the package, which tells nobody of what it does; who sets the variable is heard.

    Raises:
        ImportError: it is not installed.
    """
    os.environ.setdefault(_SILENT, "1")
    return importlib.import_module("onnxruntime")


def import_format_table(name: str) -> ModuleType:
    """Return the class of one table of onnxruntime's own format (.ort), in a module of this name.

    Raises:
        ImportError: it is not installed.
    """
    import_onnxruntime()
    return importlib.import_module(f"{_TABLES}.{name}")
