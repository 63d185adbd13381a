"""Reading Relax expressions: constants as arrays, shapes and dtypes as Python values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from adrenoc.base.refused import RefusedError

NUMPY_DTYPES = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""Dtypes that NumPy has itself and shares memory in; others are guests in it."""


def array_view(tensor: Any) -> np.ndarray:
    """Return the memory of a tensor of the CPU as an array that cannot be written."""
    if str(tensor.dtype) not in NUMPY_DTYPES:
        return np.asarray(tensor.numpy())
    value = np.from_dlpack(tensor)
    value.flags.writeable = False
    return value


def constant_value(expr: object) -> np.ndarray | None:
    """Return the array that `expr` holds, or None where it is not a constant tensor.

    It is the constant's own memory, so that asking costs nothing, and cannot be written.
    """
    if isinstance(expr, GenericConst) and isinstance(expr.ty, relax.TensorType):
        return array_view(expr.value)
    return None


def make_constant(value: np.ndarray) -> relax.Expr:
    """Return a constant of the dtype of `value`; `relax.const` narrows wide ones and copies
    twice."""
    value = np.asarray(value)
    if str(value.dtype) not in NUMPY_DTYPES:
        return relax.const(tvm.runtime.tensor(value))
    held = tvm.runtime.empty(value.shape, str(value.dtype))
    np.copyto(np.from_dlpack(held), value)  # whatever its strides, without a dense copy between
    return relax.const(held)


def static_shape(expr: relax.Expr) -> tuple[int, ...] | None:
    """Return the shape of a tensor expression, or None where a part of it is not known.

    Raises:
        TypeError: it is a call that no builder has bound, whose type nothing has derived yet.
    """
    ty = expr.ty
    if type(ty) is tvm.ir.Type:
        raise TypeError(f"the shape is asked of a call that is not bound: {op_name(expr)}")
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return None
    dims = list(ty.shape)
    if not all(hasattr(d, "value") for d in dims):
        return None
    return tuple(int(d.value) for d in dims)


def dtype_of(expr: relax.Expr) -> str:
    """Return the element type of a tensor expression, as NumPy writes it."""
    return str(expr.ty.dtype)


def op_name(expr: object) -> str:
    """`relax.nn.conv2d` for a call of that operator, an empty string for anything else."""
    return str(getattr(expr.op, "name", "")) if isinstance(expr, relax.Call) else ""


def pick(x: relax.Expr, indices: np.ndarray, axis: int) -> relax.Expr:
    """Elements of `x` along `axis` at constant places: a slice where they follow each other.

    Raises:
        RefusedError: there is no such place.
    """
    extent = (static_shape(x) or ())[axis]
    if indices.size and (indices.min() < 0 or indices.max() >= extent):
        raise RefusedError(f"an index lies outside of the extent {extent} of axis {axis}")
    flat = indices.reshape(-1)
    if flat.size and indices.ndim == 1 and np.array_equal(flat, flat[0] + np.arange(flat.size)):
        return relax.op.strided_slice(x, [axis], [int(flat[0])], [int(flat[-1]) + 1])
    return relax.op.take(x, make_constant(indices.astype(np.int32)), axis=axis, mode="clip")


class UniqueNames:
    """Hands out names of variables, each once.

    They are the model's own where they can be, so that whatever speaks of a tensor later calls it
    what the model calls it; TVM's printer makes identifiers of them.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def take(self, wanted: str) -> str:
        """`wanted`, or a name like it, that was not handed out before."""
        base = name = wanted or "t"
        while name in self._taken:
            self._next[base] = self._next.get(base, 0) + 1
            name = f"{base}_{self._next[base]}"
        self._taken.add(name)
        return name


def emit_named(
    builder: relax.BlockBuilder, expr: relax.Expr, name: str, *, output: bool = False
) -> relax.Var:
    """Bind `expr` to a variable that is called just `name`; TVM's own `emit` would change it.

    `output` keeps the variable in sight after the dataflow block.
    """
    value = builder.normalize(expr)
    inner = builder.current_block_is_dataflow() and not output
    var = (relax.DataflowVar if inner else relax.Var)(name, value.ty)
    builder.emit_normalized(relax.VarBinding(var, value))
    return var
