"""The package's texts, for tests about its structure."""

import re
from functools import cache
from pathlib import Path

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
