"""What compilations leave out for a driver's sake: the words that a quirk's `avoid` holds.

    avoid = ["winograd", "operator:softmax"]

A word is a feature, or with a colon one operator or one form of fused kernel.  Each is honoured in
one place: options (`OVERRIDES`), limits (`without`), or the pass that would make what is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adrenoc.target.gpu import Quirk

NATIVE_FUNCTIONS = "native-functions"
"""The GPU's own exponential and reciprocal, of kernels that store halves
(`adrenoc/kernels/coarse.py`)."""
OVERRIDES: Mapping[str, Mapping[str, Any]] = {
    "textures": {"textures": False},
    "half-storage": {"storage_dtype": "float32", "compute_dtype": "float32"},
    "half-arithmetic": {"compute_dtype": "float32"},
    "winograd": {"winograd": False},
    NATIVE_FUNCTIONS: {"native_functions": False},
}
"""Feature -> the options that do without it."""
OPERATOR, FUSION = "operator", "fusion"
HALF_DENORMALS = "half-denormals"
"""Halves below 6.1e-5, which a device may take for zero."""
DOT_PRODUCTS = "dot-products"
"""Products of four bytes at once."""
FUSIONS = ("flattened", "image", "prologue", "shuffle")
FEATURES = (*OVERRIDES, HALF_DENORMALS, DOT_PRODUCTS, *(f"{FUSION}:{name}" for name in FUSIONS))


def is_word(word: object) -> bool:
    """Return whether it is one of `FEATURES`, or an operator by a name such as it may have."""
    if not isinstance(word, str):
        return False
    kind, colon, name = word.partition(":")
    return word in FEATURES or (kind == OPERATOR and bool(colon) and name.isidentifier())


def collect_avoided(quirks: tuple[Quirk, ...]) -> dict[str, str]:
    """Word -> why, of all quirks; the first one that has it says why."""
    found: dict[str, str] = {}
    for quirk in quirks:
        for word in quirk.avoid:
            found.setdefault(word, describe_quirk(quirk))
    return found


def describe_quirk(quirk: Quirk) -> str:
    """Return a quirk as a reason."""
    return f"quirk {quirk.name}: {quirk.source}"
