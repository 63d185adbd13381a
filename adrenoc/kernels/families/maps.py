"""Kernels for bodies: one expression an element, with or without a fold.

Elementwise operators, broadcasts, reshapes, transposes, concat, slice, pad, resize, gather: all
are maps.  A fold reduces over further axes: whatever TVM lowers to a reduction and no family of
its own handles.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from adrenoc.base.tvmapi import (
    AllocBuffer,
    BufferLoad,
    Expr,
    decl_buffer,
    floordiv,
    floormod,
    iconst,
    store,
    tirx,
    vector_dtype,
)
from adrenoc.ir.graph import Body, Graph, Node
from adrenoc.ir.layout import LANES, Memory, OperandSpec
from adrenoc.kernels.access import Access, PlainAccess
from adrenoc.kernels.body_cost import body_operations
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.expression import Evaluator, Texel, fill_vector, know_position
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.operator import Kind, Numbers, Operator


def _emit_elements(
    builder: KernelBuilder, body: Body, reads: dict[Any, Access | Texel], out: Access
) -> None:
    if not isinstance(out, PlainAccess):
        raise ValueError("a tensor whose axes have no roles is row-major")
    flat, _, _ = builder.threads(math.prod(out.spec.shape))
    index: list[Expr] = []
    rest = flat
    for extent in reversed(out.spec.shape):
        index.insert(0, floormod(rest, extent) if extent > 1 else iconst(0))
        rest = floordiv(rest, extent)
    fold = _Fold(builder, body, reads, 1)
    evaluator = Evaluator(builder, body, reads)
    evaluator.know(flat, math.prod(out.spec.shape))
    value = fold.run(evaluator, lambda more: evaluator.scalar(index, more))
    out.write_element(index, value)


class _Fold:
    """The nested loops over the reduced axes of a body; without such axes, nothing."""

    def __init__(
        self, builder: KernelBuilder, body: Body, reads: dict[Any, Access | Texel], lanes: int
    ) -> None:
        self._builder, self._body, self._lanes = builder, body, lanes
        if not body.reduced or body.init is None:
            return
        dtype = str(body.accumulator.dtype)
        dtype = builder.compute if dtype.startswith("float") else dtype
        vector = vector_dtype(dtype) if lanes == LANES else dtype
        self._memory = decl_buffer((1,), vector, name="folded", scope="local")
        builder.emit(AllocBuffer(self._memory))
        start: tirx.FloatImm = body.init
        self._store(tirx.const(start.value, dtype))
        reads[body.accumulator] = self._load

    def run(
        self, evaluator: Evaluator, value_at: Callable[[list[tuple[Expr, Expr]]], Expr]
    ) -> Expr:
        """Return the folded value; `value_at` evaluates the body with the loop variables bound."""
        if not self._body.reduced:
            return value_at([])
        with ExitStack() as loops:
            bound = []
            for var, extent in self._body.reduced:
                i = loops.enter_context(self._builder.loop(extent, "r"))
                evaluator.know(i, extent)
                bound.append((var, i))
            self._store(value_at(bound))
        return self._load()

    def _load(self) -> Expr:
        return BufferLoad(self._memory, [iconst(0)])

    def _store(self, value: Expr) -> None:
        value = fill_vector(value) if self._lanes == LANES else value
        self._builder.emit(store(self._memory, [iconst(0)], value))


def texel_of_thread(builder: KernelBuilder, spec: OperandSpec) -> tuple[Expr, Expr, Expr, Expr]:
    """Return one thread for each texel of a tensor; returns its (n, block, h, w)."""
    e = spec.extents
    w, h, z = builder.threads(e.w, e.h, e.n * e.blocks)
    if e.n == 1:
        return iconst(0), z, h, w
    return floordiv(z, e.blocks), floormod(z, e.blocks), h, w


def body_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a body: a texel a thread, or an element where there are no channels."""
    if node.body is None:
        raise ValueError(f"{node.name} has no body")
    kernel = context.kernel(node, "_".join(node.fused) if len(node.fused) < 4 else node.op)
    reads: dict[Any, Access | Texel] = {
        buffer: kernel.input(name) for buffer, name in node.body.sources.items()
    }
    out, epilogue = kernel.output()
    floating = out.spec.dtype.startswith("float")
    if out.spec.layout is None or (out.spec.memory is Memory.PLAIN and not floating):
        _emit_elements(kernel.builder, node.body, reads, out)
    else:
        n, block, h, w = texel_of_thread(kernel.builder, out.spec)
        index = out.index(n, block * iconst(LANES), h, w)
        channel = out.spec.roles.axis("C")
        fold = _Fold(kernel.builder, node.body, reads, LANES)
        evaluator = Evaluator(kernel.builder, node.body, reads)
        know_position(evaluator, out.spec, n, block, h, w)
        value = fold.run(evaluator, lambda more: evaluator.texel(index, channel, more))
        epilogue.write(n, block, h, w, fill_vector(value))
    return kernel.call()


def _operations(graph: Graph, node: Node) -> int:
    """Return those of the expression, for each element and each that it folds."""
    if node.body is None:
        raise ValueError(f"{node.name} has no body")
    reduced = math.prod(extent for _, extent in node.body.reduced)
    elements = math.prod(graph.tensors[node.output].shape)
    return body_operations(node.body) * elements * reduced


OPERATORS = tuple(
    Operator(
        name=name, kind=Kind.MAP, numbers=Numbers.COMPUTED, rule=body_rule, operations=_operations
    )
    for name in ("map", "fold")
)
