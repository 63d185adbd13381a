"""What a legalised TIR function computes, block by block, as scalar expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import Call, Expr, sym, tirx, tvm
from adrenoc.ir.body import find_loaded_buffers


class NotScalarError(Exception):
    """The function is not a sequence of blocks that each write one element at a plain index."""


@dataclass(frozen=True, eq=False)
class Block:
    """`target[axes] = value`, folded over `reduced` from `init` where there are such axes."""

    target: Any
    axes: tuple[Expr, ...]
    value: Expr
    reads: tuple[Any, ...]
    reduced: tuple[tuple[Expr, int], ...]
    init: Expr | None


def blocks_of(func: Any) -> Iterator[Block]:
    """Yield the blocks of a function made by TVM's legalisation, in execution order.

    Raises:
        NotScalarError: a block does more than store one element at its own axes.
    """
    root = func.body
    if not isinstance(root, tvm.s_tir.SBlockRealize):
        raise NotScalarError(f"its body is of type {type(root).__name__}")
    yield from _walk(root.block.body)


def _walk(stmt: Any) -> Iterator[Block]:
    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _walk(part)
    elif isinstance(stmt, tirx.For):
        yield from _walk(stmt.body)
    elif isinstance(stmt, tvm.s_tir.SBlockRealize):
        yield _read(stmt.block)
    else:
        raise NotScalarError(f"it holds a statement of type {type(stmt).__name__}")


def _read(block: Any) -> Block:
    store = block.body
    if not isinstance(store, tirx.BufferStore):
        kind = type(store).__name__
        raise NotScalarError(f"block {block.name_hint} holds a statement of type {kind}")
    extents = {iv.var: int(iv.dom.extent) for iv in block.iter_vars}
    reduced = [iv.var for iv in block.iter_vars if iv.iter_type == tirx.IterVar.CommReduce]
    axes = []
    for position, index in enumerate(store.indices):
        if isinstance(index, tirx.Var) and index in extents:
            axes.append(index)
        elif isinstance(index, tirx.IntImm) and int(store.buffer.shape[position]) == 1:
            axes.append(tirx.Var(f"unit{position}", "int64"))
        else:
            raise NotScalarError(f"block {block.name_hint} stores at {index}")
    free = [v for v in extents if v not in reduced and not any(v.same_as(a) for a in axes)]
    value = store.value
    if free:
        if any(extents[v] != 1 for v in free):
            raise NotScalarError(f"block {block.name_hint} stores one element many times")
        value = substitute(value, {v: tirx.const(0, "int64") for v in free})
    value = _simplify_indices(value, [*zip(axes, map(int, store.buffer.shape), strict=True)])
    init = block.init.value if block.init is not None else None
    return Block(
        target=store.buffer,
        axes=tuple(axes),
        value=value,
        reads=tuple(
            b for b in find_loaded_buffers(value) if not (reduced and b.same_as(store.buffer))
        ),
        reduced=tuple((v, extents[v]) for v in reduced),
        init=init,
    )


def _simplify_indices(value: Expr, axes: list[tuple[Expr, int]]) -> Expr:
    """Return the expression with its load indices simplified, knowing how far each axis runs.

    A reshape that only adds or drops axes of extent one is then seen to keep every index.
    """
    analyzer = sym.Analyzer()
    for axis, extent in axes:
        analyzer.bind(axis, tvm.ir.Range(tirx.const(0, "int64"), tirx.const(extent, "int64")))

    def simplify(load: Any) -> Any:
        return tirx.BufferLoad(load.source, [analyzer.simplify(i) for i in load.indices])

    return structural_map(value, (tvm.ir.TensorLoad, simplify))


def parts_of_kind(value: Expr, kind: Any) -> list[Any]:
    """Return the parts of an expression that are of a kind, or of one of several."""
    found: list[Any] = []

    def note(part: Any) -> Any:
        found.append(part)
        return part

    structural_map(value, (kind, note))
    return found


def values_of(part: Any) -> tuple[Expr, ...]:
    """Return what the number of a part comes of: not where a load reads it."""
    if isinstance(part, tvm.ir.TensorLoad):
        return ()
    if isinstance(part, Call):
        return tuple(part.args)
    if isinstance(part, tirx.Select):
        return (part.condition, part.true_value, part.false_value)
    if isinstance(part, tirx.Cast):
        return (part.value,)
    return tuple(getattr(part, name) for name in ("a", "b") if hasattr(part, name))


def parts_of(value: Expr, sides: Callable[[Any], tuple[Expr, ...]]) -> list[Expr]:
    """Return the parts of an expression, each once, and before it what it is made of, by
    `sides`."""
    found: dict[Expr, None] = {}
    waiting = [(value, False)]
    while waiting:
        part, entered = waiting.pop()
        if part in found:
            continue
        if entered:
            found[part] = None
        else:
            waiting.append((part, True))
            waiting += [(side, False) for side in reversed(sides(part))]
    return list(found)


def substitute(expr: Expr, values: dict[Any, Expr]) -> Expr:
    """Return the expression with variables replaced."""
    return structural_map(
        expr, (tirx.Var, lambda var: next((v for k, v in values.items() if k.same_as(var)), var))
    )
