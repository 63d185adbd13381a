"""What a legalised TIR function computes, block by block, as scalar expressions.

Squares and other powers leave the range of half on both sides: it holds the square
of 256 no more, and has of the square of 0.001 four bits left.

An expression is evaluated in numpy, part by part, in float64.  Whoever asks says what the leaves
are: loads of tensors and variables of axes.  Shared parts are computed once, and deep expressions
take no deep stack.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_equal, structural_map

from adrenoc.base.tvmapi import IF_THEN_ELSE, Call, Expr, dtype_of, tirx, tvm
from adrenoc.ir.graph import Body, find_loaded_buffers
from adrenoc.kernels.body_cost import operands_of
from adrenoc.kernels.families.shared.operator import NotKnownError
from adrenoc.kernels.views import bind_extents


class NotScalarError(Exception):
    """The function is not a sequence of blocks that each write one element at a plain index."""


@dataclass(frozen=True, eq=False)
class ScalarBlock:
    """`target[axes] = value`, folded over `reduced` from `init` where there are such axes."""

    target: Any
    axes: tuple[Expr, ...]
    value: Expr
    reads: tuple[Any, ...]
    reduced: tuple[tuple[Expr, int], ...]
    init: Expr | None


def blocks_of(func: Any) -> Iterator[ScalarBlock]:
    """Yield the blocks of a function made by TVM's legalisation, in execution order.

    Raises:
        NotScalarError: a block does more than store one element at its own axes.
    """
    root = func.body
    if not isinstance(root, tvm.s_tir.SBlockRealize):
        raise NotScalarError(f"its body is of type {type(root).__name__}")
    yield from _walk(root.block.body)


def _walk(stmt: Any) -> Iterator[ScalarBlock]:
    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _walk(part)
    elif isinstance(stmt, tirx.For):
        yield from _walk(stmt.body)
    elif isinstance(stmt, tvm.s_tir.SBlockRealize):
        yield _read(stmt.block)
    else:
        raise NotScalarError(f"it holds a statement of type {type(stmt).__name__}")


def _read(block: Any) -> ScalarBlock:
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
    value = simplify_indices(value, axes, [*map(int, store.buffer.shape)])
    init = block.init.value if block.init is not None else None
    return ScalarBlock(
        target=store.buffer,
        axes=tuple(axes),
        value=value,
        reads=tuple(
            b for b in find_loaded_buffers(value) if not (reduced and b.same_as(store.buffer))
        ),
        reduced=tuple((v, extents[v]) for v in reduced),
        init=init,
    )


def simplify_indices(value: Expr, axes: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """Return the expression with its load indices simplified, its axes running over this shape.  A
    reshape that only adds or drops axes of extent one is then seen to keep every index."""
    analyzer = bind_extents(axes, shape)

    def simplify(load: Any) -> Any:
        return tirx.BufferLoad(load.source, [analyzer.simplify(i) for i in load.indices])

    return structural_map(value, (tvm.ir.TensorLoad, simplify))


def parts_of(value: Expr, sides: Callable[[Any], tuple[Expr, ...]]) -> list[Expr]:
    """Return the parts of an expression once each, behind what they are made of, by `sides`."""
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


EXPONENTIALS = ("tirx.exp", "tirx.exp2", "tirx.exp10")
_POW = "tirx.pow"


def unify_reads(body: Body) -> Any:
    """Return the expression with each tensor read by one buffer: `x * x` reads x by two."""
    buffers = {name: buffer for buffer, name in body.sources.items()}

    def one_name(load: Any) -> Any:
        name = body.source_of(load.source)
        return load if name is None else tirx.BufferLoad(buffers[name], list(load.indices))

    return structural_map(body.value, (tvm.ir.TensorLoad, one_name))


def is_power(part: Any) -> bool:
    """Return whether a part of such an expression multiplies data by itself or raises it more."""
    if isinstance(part, tirx.Mul):
        return structural_equal(part.a, part.b) and bool(find_loaded_buffers(part.a))
    if not isinstance(part, Call) or part.op.name != _POW:
        return False
    base, exponent = part.args
    if not find_loaded_buffers(base):
        return bool(find_loaded_buffers(exponent))
    return not isinstance(exponent, tirx.FloatImm) or abs(exponent.value) > 1


Leaf = Callable[[Any], np.ndarray]
"""A load or a variable -> its numbers; raises NotKnownError where there are none."""


def evaluate(value: Expr, leaf: Leaf) -> np.ndarray:
    """Compute an expression; all arrays broadcast against each other.

    Raises:
        NotKnownError: it has a part that is not looked into.
    """
    found: dict[Expr, np.ndarray] = {}
    for part in parts_of(value, operands_of):
        found[part] = _evaluate_part(part, found, leaf)
    return found[value]


def _evaluate_part(part: Any, found: dict[Expr, np.ndarray], leaf: Leaf) -> np.ndarray:
    if isinstance(part, tvm.ir.TensorLoad | tirx.Var):
        return leaf(part)
    if isinstance(part, tirx.FloatImm | tirx.IntImm):
        return np.asarray(part.value)
    sides = [found[side] for side in operands_of(part)]
    if isinstance(part, tirx.Cast):
        return _cast(dtype_of(part), *sides)
    name = part.op.name if isinstance(part, tvm.ir.Call) else type(part)
    if name not in FUNCTIONS:
        raise NotKnownError
    with np.errstate(all="ignore"):  # infinities and NaN are values like others
        return np.asarray(FUNCTIONS[name](*sides))


def _cast(dtype: str, value: np.ndarray) -> np.ndarray:
    if dtype.startswith("float"):
        return value.astype(np.float64)
    return np.trunc(value) if value.dtype.kind == "f" else value


def _erf(x: np.ndarray) -> np.ndarray:
    """Approximate the error function to a thousandth."""
    return np.asarray(np.tanh(1.1283791670955126 * x * (1 + 0.0893 * x * x)))


COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)

FUNCTIONS: dict[Any, Callable[..., Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Div: np.divide,
    tirx.Mod: np.fmod,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
    tirx.Not: lambda x: ~x.astype(bool),
    tirx.Select: np.where,
    IF_THEN_ELSE: np.where,
    "tirx.exp": np.exp,
    "tirx.exp2": np.exp2,
    "tirx.exp10": lambda x: np.power(10.0, x),
    "tirx.log": np.log,
    "tirx.log2": np.log2,
    "tirx.log10": np.log10,
    "tirx.log1p": np.log1p,
    "tirx.expm1": np.expm1,
    "tirx.sqrt": np.sqrt,
    "tirx.rsqrt": lambda x: 1 / np.sqrt(x),
    "tirx.pow": np.power,
    "tirx.fabs": np.abs,
    "tirx.abs": np.abs,
    "tirx.floor": np.floor,
    "prim.ceil": np.ceil,
    "tirx.trunc": np.trunc,
    "tirx.round": np.round,
    "tirx.nearbyint": np.round,
    "tirx.fmod": np.fmod,
    "tirx.tanh": np.tanh,
    "tirx.sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tirx.erf": _erf,
    "tirx.sin": np.sin,
    "tirx.cos": np.cos,
    "tirx.tan": np.tan,
    "tirx.atan": np.arctan,
    "tirx.asin": np.arcsin,
    "tirx.acos": np.arccos,
    "tirx.atan2": np.arctan2,
    "tirx.sinh": np.sinh,
    "tirx.cosh": np.cosh,
    "tirx.asinh": np.arcsinh,
    "tirx.acosh": np.arccosh,
    "tirx.atanh": np.arctanh,
    "tirx.isnan": np.isnan,
    "tirx.isinf": np.isinf,
    "tirx.likely": lambda x: x,
}
"""What a kind of expression, or the function that it calls, computes of its sides."""
