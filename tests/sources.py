"""The package's texts, for tests about its structure."""

import re
import sys
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import adrenoc

PACKAGE = Path(adrenoc.__file__).parent


@cache
def texts() -> dict[Path, str]:
    """File of adrenoc, as a path within it -> its text, in order of the paths."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in paths}


@cache
def attributes() -> dict[Path, frozenset[str]]:
    """File -> the names of all attributes that it reads or sets."""
    return {path: frozenset(re.findall(r"\.(\w+)", text)) for path, text in texts().items()}


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
