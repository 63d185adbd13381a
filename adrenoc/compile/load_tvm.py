"""TVM without the parts that no compilation asks for: less than half of the time that it takes.

`import tvm` loads hooks of every GPU.  Those of CUDA and Trainium ask for operators that this build
lacks, as does TVM's distributed runtime for its types: the first such question takes 0.2 s, for the
error that says so carries a backtrace through the debug information of all libraries.

It also loads its tuner, its schedules of GPUs and gradients.  These are there, but are read when
somebody first asks for something in them.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from adrenoc.base.host.memory import collector_paused
from adrenoc.base.host.time_trace import section

_NEEDED = ("opencl", "adreno")
_DISTRIBUTED = "tvm.runtime.disco"
_LATER = (
    "tvm.relax.op._op_gradient",
    "tvm.relax.training",
    "tvm.s_tir.dlight",
    "tvm.s_tir.meta_schedule",
)
_AUTOLOAD = "TVM_DEVICE_BACKEND_AUTOLOAD"


def load_tvm() -> None:
    """Import TVM with the hooks of OpenCL and Adreno, unless it is there or a user chose hooks."""
    if "tvm" in sys.modules or _AUTOLOAD in os.environ:
        return
    os.environ[_AUTOLOAD] = "0"
    # What stands for a module that is not there; TVM does without it.
    sys.modules[_DISTRIBUTED] = None  # type: ignore[assignment]
    try:
        with _loaded_on_use(_LATER):
            import tvm  # noqa: F401
        from tvm.backend import _autoload_backends as hooks
    finally:
        del os.environ[_AUTOLOAD], sys.modules[_DISTRIBUTED]
    hooks._BUILTIN_BACKENDS = _NEEDED
    hooks._AUTO_LOAD_DONE = False
    # These, TVM's library of functions for the CPU, and what other packages bring.
    hooks._autoload_backends()


@contextmanager
def quick_loading() -> Iterator[None]:
    """TVM is loaded, and what the block imports, as quickly as that goes."""
    with section("load TVM", "start"), collector_paused():
        load_tvm()
        yield


class _LaterFinder:
    """Finds modules of these names as Python does, and puts off what is in them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return none, which leaves it to others, for a module that is loaded at once."""
        if name not in self._names:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


@contextmanager
def _loaded_on_use(names: Sequence[str]) -> Iterator[None]:
    """While the block imports, these modules are loaded by whoever first asks for what is in them.
    Names that a release of TVM lacks, or asks for at once, change nothing."""
    finder = _LaterFinder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
