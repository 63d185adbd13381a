"""Inverses of small matrices, and their rule: a thread holds one of them in registers."""

from collections.abc import Mapping

import numpy as np

from adrenoc.base.tvmapi import construct, fconst, iconst, lane, splat, tirx
from adrenoc.importers.relax.own import INVERSE
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import LANES, channels_last
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.operator import (
    Along,
    Batch,
    Kind,
    Numbers,
    Operator,
    TypicalRun,
    channel_of_result,
    channels_last_at,
)
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.walk import ACCUMULATOR, widen


def inverse_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of Gauss-Jordan elimination, with the largest element of a column as its
    pivot: a thread for each matrix.

    Shapes:
        x: [N, H, rows, rows], rows along W and columns in texels
        out: as x
    """
    kernel = context.kernel(node, node.op)
    x, builder = kernel.input_or_prologue(), kernel.builder
    _, epilogue = kernel.output()
    e = x.extents
    n, h, _ = builder.threads(e.n, e.h)
    held = builder.registers(e.w * 2 * e.blocks, dtype=ACCUMULATOR)
    wide = 2 * e.blocks  # a row, and behind it that of the identity
    for row in range(e.w):
        for block in range(e.blocks):
            held[row * wide + block] = widen(x.texel(n, iconst(block), h, iconst(row)))
            ones = (float(row == block * LANES + i) for i in range(LANES))
            identity = construct([fconst(one, ACCUMULATOR) for one in ones])
            held[row * wide + e.blocks + block] = identity
    for column in range(e.w):
        _eliminate(builder, held, column, e.w, wide)
    for row in range(e.w):
        for block in range(e.blocks):
            result = builder.let(held[row * wide + e.blocks + block], "result")
            epilogue.write(n, iconst(block), h, iconst(row), result)
    return kernel.call()


def _eliminate(builder: KernelBuilder, held: Registers, column: int, rows: int, wide: int) -> None:
    """Make a column that of the identity: one in its own row, zero in all others."""
    first, component = column // LANES, column % LANES
    parts = range(first, wide)
    own = column * wide
    for row in range(column + 1, rows):
        here = tirx.abs(lane(held[own + first], component))
        there = tirx.abs(lane(held[row * wide + first], component))
        with builder.when(here < there):
            for part in parts:
                kept = builder.let(held[own + part], "kept")
                held[own + part] = held[row * wide + part]
                held[row * wide + part] = kept
    pivot = builder.let(lane(held[own + first], component), "pivot")
    for part in parts:
        held[own + part] = held[own + part] / splat(pivot)
    for row in range(rows):
        if row == column:
            continue
        factor = builder.let(lane(held[row * wide + first], component), "factor")
        for part in parts:
            less = splat(factor) * held[own + part]
            held[row * wide + part] = held[row * wide + part] - less


_MOST_ROWS = 2 * LANES
"""Of a matrix that a thread holds in registers: beside the identity 32 vectors of four."""


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    shape = tensors[node.output].shape
    if shape[-1] > _MOST_ROWS:
        return f"{shape[-1]} rows, expected {_MOST_ROWS} at most"
    return None if channels_last(len(shape)) is not None else f"{len(shape)} axes, expected 4"


def _follows_batch(batch: Batch, node: Node) -> Along | None:
    along = batch.along[node.inputs[0]]
    return along if along.axis < len(batch.shape(node.inputs[0])) - 2 else None


def _operations(graph: Graph, node: Node) -> int:
    """Count two operations for each element, of it and the identity, a column."""
    shape = graph.tensors[node.output].shape
    return 2 * 2 * int(np.prod(shape)) * shape[-1]


def _typical(_run: TypicalRun, _node: Node, data: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.pinv(data))


OPERATORS = (
    Operator(
        name="inverse",
        kind=Kind.REDUCTION,
        numbers=Numbers.CARRIED,
        rule=inverse_rule,
        relax=INVERSE,
        refuses=_refuses,
        wants_layout=channels_last_at(0),
        makes_layout=channel_of_result,
        follows_batch=_follows_batch,
        operations=_operations,
        typical=_typical,
    ),
)
