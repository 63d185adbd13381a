"""When operators that read bytes multiply them as integers, four a word."""

from __future__ import annotations

import numpy as np

from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import WORDS, Memory
from adrenoc.kernels.families.shared.context import RuleContext
from adrenoc.kernels.families.shared.conv_geometry import Oihw

SIXTEEN = WORDS * LANES
"""Channels that one read of bytes gives."""


def pack_rest(weight: np.ndarray, low: int) -> np.ndarray:
    """Return what `low` adds to the sums of each output channel, int32, padded to blocks of
    four."""
    sums = weight.astype(np.int64).sum(axis=(1, 2, 3)) * low
    padded = np.zeros(-(-len(sums) // LANES) * LANES, np.int32)
    padded[: len(sums)] = sums
    return padded


def fits_bytes(weight: np.ndarray) -> bool:
    """Return whether weights are whole numbers that a signed byte holds."""
    low, high = np.iinfo(np.int8).min, np.iinfo(np.int8).max
    whole = np.array_equal(weight, np.rint(weight))
    return bool(whole and weight.min(initial=0) >= low and weight.max(initial=0) <= high)


WORD_BYTES = 4

MOST_PRODUCTS = 65536
"""The most products of bytes in one sum: so many stay below 2^31."""


def suits_dot(context: RuleContext, node: Node, oihw: Oihw, refused: str = "") -> bool:
    """Return whether an operator reads bytes, and its weights are such that integers do.

    `refused` says why its kernel would not do all the same.
    """
    x, weight = (context.graph.tensors[name] for name in node.inputs[:2])
    if context.graph.operand(x.name).memory is not Memory.BYTES or weight.value is None:
        return False
    if refused:
        reason = refused
    elif not fits_bytes(weight.value):
        reason = f"its weights {weight.name} are not whole numbers of eight bits"
    elif oihw(weight.value)[0].size > MOST_PRODUCTS:
        reason = f"sums of {oihw(weight.value)[0].size} products, at most {MOST_PRODUCTS}"
    else:
        return True
    context.log.add(node.name, "integers computed as floats", reason)
    return False
