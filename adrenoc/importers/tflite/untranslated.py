"""Why TFLite operators have no place in a program that computes numbers, and what to do.

Custom operators that other packages bring the meaning of, by entry points.

    [project.entry-points."adrenoc.tflite_operators"]
    HardShrink = "my_operators:hard_shrink"             # the operator's name in the file

    def hard_shrink(node):                      # an `adrenoc.importers.tflite.node.TfliteNode`
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


COUNT_OF_DATA = (
    "how much it gives depends on data, and shapes are fixed: give its input as an output, and do "
    "it on the CPU, or multiply by a mask"
)

_VARIABLE = (
    "it keeps a variable from run to run: convert the model with that as an input and an output, "
    "and compile it with --state"
)
_WEIGHTS = (
    "the file has no values of its variables, which nothing sets: convert the model by "
    "tf.lite.TFLiteConverter.from_keras_model or from_saved_model, which put weights into the file"
)
WHY_NOT: Mapping[str, str] = {
    **dict.fromkeys(("ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE"), _VARIABLE),
    **dict.fromkeys(
        ("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"),
        "it looks up keys in a table: look them up before, and feed the indices",
    ),
    **dict.fromkeys(
        ("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"),
        "it draws random numbers: make them an input",
    ),
}
"""Operator -> the reason, and the nearest rewrite."""


def why_not(kind: str, others: Iterable[str]) -> str:
    """Return the reason, and the nearest rewrite, of an operator in a graph with these others."""
    reason = WHY_NOT.get(kind, "not supported, expected an operator that adrenoc translates")
    if reason == _VARIABLE and not {"ASSIGN_VARIABLE", "CALL_ONCE"} & set(others):
        return _WEIGHTS
    return reason


_BUILTINS = "convert the model with TFLITE_BUILTINS alone as supported_ops"
_FLEX = "Flex"
_SUPPRESSES = "Suppression"


def hint_at_custom(kinds: Iterable[str]) -> str:
    """Return what to do about operators that are no part of TFLite."""
    kinds = list(kinds)
    if any(kind.startswith(_FLEX) and _SUPPRESSES in kind for kind in kinds):
        return (
            "give boxes and scores as outputs and select on the CPU, or write it by "
            "tf.image.non_max_suppression, which TFLite has an operator for"
        )
    if all(kind.startswith(_FLEX) for kind in kinds):
        return f"{_BUILTINS}; what it then names is TensorFlow's own: write it by other operators"
    own = next(kind for kind in kinds if not kind.startswith(_FLEX))
    return (
        f"tell what {own} computes by an entry point of {_GROUP} (docs/how-to/operators.md), "
        "or cut the model before it"
    )


_GROUP = "adrenoc.tflite_operators"
"""The group of entry points, each called like the operator that it translates."""


@cache
def _found() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=_GROUP)}


def extension_names() -> frozenset[str]:
    """Return the custom operators that installed packages translate; none of them is imported."""
    return frozenset(_found())


def extension_versions() -> dict[str, str]:
    """Return the modules that bring operators, each with its package's version and a digest of its
    file. What they say is part of what is compiled."""
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
    """Return the translations of those of these operators that packages bring. Raises
    DependencyError where a package cannot be imported, or has no such function."""
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
            hint=f'name a function of one node in the entry points "{_GROUP}"',
        )
    return found
