"""Why TFLite operators have no place in a program that computes numbers, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adrenoc.importers.tflite.extensions import GROUP

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
_TABLE = "it looks up keys in a table: look them up before, and feed the indices"
_RANDOM = "it draws random numbers: make them an input"

WHY_NOT: Mapping[str, str] = {
    "ASSIGN_VARIABLE": _VARIABLE,
    "CALL_ONCE": _VARIABLE,
    "HASHTABLE": _TABLE,
    "HASHTABLE_FIND": _TABLE,
    "HASHTABLE_IMPORT": _TABLE,
    "HASHTABLE_SIZE": _TABLE,
    "MULTINOMIAL": _RANDOM,
    "RANDOM_STANDARD_NORMAL": _RANDOM,
    "RANDOM_UNIFORM": _RANDOM,
    "READ_VARIABLE": _VARIABLE,
    "VAR_HANDLE": _VARIABLE,
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
        f"tell what {own} computes by an entry point of {GROUP} (docs/how-to/operators.md), "
        "or cut the model before it"
    )
