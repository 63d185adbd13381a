"""The Fourier transform, windows of any rank, and operators that came from StableHLO.

Source: TFLite operator reference; StableHLO specification.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.relax.fold import check_grown
from adrenoc.importers.relax.values import make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import Node, Result


def _rfft2d(node: Node) -> Result:
    """Two products with matrices of cosines and sines; the result has pairs on a further axis."""
    *batch, height, width = node.shape()
    rows, columns = node.ints(1)
    x = node.real()
    pads = [(rows, height), (columns, width)]
    ends = [min(wanted, have) for wanted, have in pads]
    axes = [len(batch), len(batch) + 1]
    if ends != [height, width]:
        x = relax.op.strided_slice(x, axes, [0, 0], ends)
    half = columns // 2 + 1
    across = _roots_of_unity(ends[1], half, columns)
    # [.., h, w] x [w, (re, im) * half] -> [.., h, 2 * half]
    matrix = np.concatenate([across.real, across.imag], 1).astype(np.float32)
    first = node.emit(relax.op.matmul(x, make_constant(matrix)))
    order = [*range(len(batch)), len(batch) + 1, len(batch)]
    first = relax.op.permute_dims(first, order)
    down = _roots_of_unity(ends[0], rows, rows)
    parts = [
        node.emit(relax.op.matmul(first, make_constant(m.astype(np.float32))))
        for m in (down.real, down.imag)
    ]
    # (a + bi)(c + di): rows of a come first, then those of b.
    axis = len(batch)

    def rows_of(expr: relax.Expr, begin: int) -> relax.Expr:
        return relax.op.strided_slice(expr, [axis], [begin], [begin + half])

    real = rows_of(parts[0], 0) - rows_of(parts[1], half)
    imaginary = rows_of(parts[1], 0) + rows_of(parts[0], half)
    turned = [
        relax.op.expand_dims(relax.op.permute_dims(p, order), len(batch) + 2)
        for p in (real, imaginary)
    ]
    return relax.op.concat(turned, axis=len(batch) + 2)


def _roots_of_unity(extent: int, outputs: int, length: int) -> np.ndarray:
    check_grown(extent * outputs)
    places = np.arange(extent)[:, None] * np.arange(outputs)[None, :]
    return np.asarray(np.exp(-2j * np.pi * places / length))


def _reduce_window(node: Node) -> Result:
    """Each tap of the window is a strided slice; they are joined one by one."""
    joins: dict[int, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
        1: relax.op.add,
        2: relax.op.multiply,
        3: relax.op.minimum,
        4: relax.op.maximum,
        5: relax.op.logical_and,
        6: relax.op.logical_or,
    }
    join = joins[int(node.option("ReduceFunction"))]
    window, strides, dilations = (node.ints(i) for i in (2, 3, 4))
    if math.prod(window) > 256:
        raise RefusedError(f"a window of {window}, expected at most 256 elements")
    shape = node.shape()
    counts = [
        (d - (w - 1) * r - 1) // s + 1
        for d, w, s, r in zip(shape, window, strides, dilations, strict=True)
    ]
    total = relax.op.broadcast_to(node.data(1), counts)
    for tap in itertools.product(*map(range, window)):
        begins = [t * r for t, r in zip(tap, dilations, strict=True)]
        ends = [b + (c - 1) * s + 1 for b, c, s in zip(begins, counts, strides, strict=True)]
        part = relax.op.strided_slice(
            node.data(), list(range(len(shape))), begins, ends, list(strides)
        )
        total = join(total, node.emit(part))
    return total


def _hlo_binary(op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Convert:
    return lambda node: op(node.real(0), node.real(1))


def _hlo_pad(node: Node) -> Result:
    """Elements apart by `interior`, then padded; negative pads cut."""
    x, shape, fill = node.data(), list(node.shape()), node.data(1)
    fill = relax.op.reshape(fill, [])
    low, high, interior = (
        [int(v) for v in node.option(n)]
        for n in ("EdgePaddingLow", "EdgePaddingHigh", "InteriorPadding")
    )
    for axis in range(len(shape)):
        # Where each result element comes from; -1 for what is filled in.
        check_grown(shape[axis] * (interior[axis] + 1) + max(low[axis], 0) + max(high[axis], 0))
        spread = np.full((shape[axis] - 1) * (interior[axis] + 1) + 1, -1)
        spread[:: interior[axis] + 1] = np.arange(shape[axis])
        places = np.pad(spread, (max(low[axis], 0), max(high[axis], 0)), constant_values=-1)
        places = places[max(-low[axis], 0) : len(places) - max(-high[axis], 0)]
        if np.array_equal(places, np.arange(shape[axis])):
            continue
        taken = make_constant(np.maximum(places, 0).astype(np.int32))
        x = relax.op.take(x, taken, axis=axis, mode="clip")
        along = [-1 if a == axis else 1 for a in range(len(shape))]
        hit = make_constant((places >= 0).reshape(along))
        x = relax.op.where(hit, x, fill)
        shape[axis] = len(places)
    return x


def _hlo_gather(node: Node) -> Result:
    """Whole rows by a column of numbers: what an embedding lookup becomes."""
    option = node.option
    shape, own = node.shape(), node.shape(1)
    sizes = [int(v) for v in option("SliceSizes")]
    whole = [d if a else 1 for a, d in enumerate(shape)]
    rows = (
        list(option("CollapsedSliceDims")) == [0]
        and list(option("StartIndexMap")) == [0]
        and sizes == whole
        and int(option("IndexVectorDim")) == len(own) - 1
        and own[-1] == 1
        and list(option("OffsetDims")) == list(range(len(own) - 1, len(own) + len(shape) - 2))
    )
    if not rows:
        raise RefusedError("a gather that is no lookup of rows, expected whole rows")
    index = relax.op.reshape(node.data(1), own[:-1]).astype("int32")
    return relax.op.take(node.data(), index, axis=0, mode="clip")


TRANSFORM_OPS: dict[str, Convert] = {
    "REDUCE_WINDOW": _reduce_window,
    "RFFT2D": _rfft2d,
    "STABLEHLO_ADD": _hlo_binary(relax.op.add),
    "STABLEHLO_GATHER": _hlo_gather,
    "STABLEHLO_MAXIMUM": _hlo_binary(relax.op.maximum),
    "STABLEHLO_MINIMUM": _hlo_binary(relax.op.minimum),
    "STABLEHLO_MULTIPLY": _hlo_binary(relax.op.multiply),
    "STABLEHLO_PAD": _hlo_pad,
    "STABLEHLO_SHIFT_LEFT": lambda node: relax.op.left_shift(node.data(0), node.data(1)),
}
