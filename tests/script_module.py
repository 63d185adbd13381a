"""A script without a suffix as a module, for tests of its functions."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

_ROOT = Path(__file__).resolve().parents[1]


def load_script(name: str, folder: str = "scripts") -> ModuleType:
    """Return `scripts/NAME`, or one of another folder, as a module."""
    own = f"script_{Path(name).stem}"
    loader = SourceFileLoader(own, str(_ROOT / folder / name))
    spec = spec_from_loader(own, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[own] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module
