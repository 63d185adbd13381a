"""The package as parsed Python, for tests about its structure: parsed once a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import adrenoc

PACKAGE = Path(adrenoc.__file__).parent


@cache
def trees() -> dict[Path, ast.Module]:
    """File of adrenoc, as a path within it -> its tree, in order of the paths."""
    return {
        path.relative_to(PACKAGE): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def attributes() -> dict[Path, frozenset[str]]:
    """File -> the names of all attributes that it reads or sets."""
    return {
        path: frozenset(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        for path, tree in trees().items()
    }
