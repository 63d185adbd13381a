"""A script without a suffix as a module, for tests of its functions."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

_SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def load_script(name: str) -> ModuleType:
    """Return `scripts/NAME` as a module."""
    own = f"script_{Path(name).name}"
    loader = SourceFileLoader(own, str(_SCRIPTS / name))
    spec = spec_from_loader(own, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[own] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module
