"""All cases, in the order in which they stand in the suite."""

from __future__ import annotations

from adrenoc.lab.prove.case import Case
from adrenoc.lab.prove.cases import conv, folds, maps, products, quanta

CASES: tuple[Case, ...] = (*maps.CASES, *conv.CASES, *products.CASES, *folds.CASES, *quanta.CASES)

NOT_IN_MODELS = {
    "adaptive_avg_pool2d": "importers make means or pools of windows of it",
    "cumprod": "onnxruntime knows no running product; its kernel is that of `cumsum`",
}
"""Operators that no case can have, and why."""
