"""Custom operators that other packages bring the meaning of, by entry points.

    [project.entry-points."adrenoc.tflite_operators"]
    HardShrink = "my_operators:hard_shrink"             # the operator's name in the file

    def hard_shrink(node):                              # an `adrenoc.importers.tflite.node.Node`
        x = node.real(0)                                # an input, as a Relax expression in float
        far = relax.op.abs(x) > relax.const(0.5)
        return relax.op.where(far, x, relax.const(0.0))

What it returns takes the place of the operator, and is compiled, fused and placed as all else is:
one expression, or a list of one for each result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.base.errors import DependencyError
from adrenoc.base.files.read import sha256_file

if TYPE_CHECKING:
    from adrenoc.importers.tflite.elementwise import Convert

GROUP = "adrenoc.tflite_operators"
"""The group of entry points, each called like the operator that it translates."""


@cache
def _found() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def extension_names() -> frozenset[str]:
    """Return the custom operators that installed packages translate; none of them is imported."""
    return frozenset(_found())


def extension_versions() -> dict[str, str]:
    """Return the modules that bring operators, each with its package's version and a digest of its
    file.

    What they say is part of what is compiled.
    """
    return {point.module: _version_of(point) for point in _found().values()}


def _version_of(point: EntryPoint) -> str:
    version = "" if point.dist is None else point.dist.version
    try:
        spec = find_spec(point.module)
    except (ImportError, ValueError):
        return version  # it is told where a model needs it
    origin = "" if spec is None else spec.origin or ""
    digest = sha256_file(Path(origin))[:12] if Path(origin).is_file() else ""
    return "+".join(part for part in (version, digest) if part)


def load_extensions(kinds: Iterable[str]) -> dict[str, Convert]:
    """Return the translations of those of these operators that packages bring.

    Raises:
        DependencyError: a package cannot be imported, or has no such function.
    """
    return {kind: _load(_found()[kind]) for kind in set(kinds) & extension_names()}


def _load(point: EntryPoint) -> Convert:
    try:
        found: Convert = point.load()
    except (ImportError, AttributeError) as error:
        raise DependencyError(
            f"the operator {point.name} is translated by {point.value}, which cannot be imported: "
            f"{error}",
            hint="install the package that brings it again, or remove it",
        ) from error
    if not callable(found):
        raise DependencyError(
            f"the operator {point.name} is translated by {point.value}, which is no function",
            hint=f'name a function of one node in the entry points "{GROUP}"',
        )
    return found
