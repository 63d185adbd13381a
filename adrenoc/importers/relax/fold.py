"""Relax calls on constants, computed with NumPy.

TVM's FoldConstant builds a kernel with LLVM for each call; for what models hold (weights that are
transposed, biases that are reshaped, factors that are multiplied) NumPy is many times faster.
"""

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from adrenoc.importers import imported
from adrenoc.importers.relax.values import (
    constant_value,
    dtype_of,
    emit_named,
    make_constant,
    op_name,
    static_shape,
)

_SAME_NAMES = (
    "abs add ceil cos equal exp floor greater greater_equal less less_equal log logical_and "
    "logical_not logical_or logical_xor maximum minimum multiply negative not_equal power round "
    "sin sqrt subtract tanh trunc where"
)
"""Of operators that are called in Relax as they are in NumPy."""
_ELEMENTWISE: dict[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in _SAME_NAMES.split()},
    "divide": np.true_divide,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}

_OF_INTEGERS: dict[str, Callable[..., np.ndarray]] = {
    "divide": lambda a, b: (np.abs(a) // np.abs(b)) * np.sign(a) * np.sign(b),
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "mod": np.fmod,
    "sign": np.sign,
}
"""What exporters compute shapes by, where no divisor is 0; of floats kernels round in their way."""

_REDUCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
    "sum": np.sum,
}
_ROUNDED = frozenset({"prod", "sum"})
"""Those that round in floats, each kernel in an order of its own: here only integers are folded,
of which exporters compute shapes."""

_RESHAPES = frozenset({"reshape", "squeeze", "expand_dims", "flatten"})


def fold_call(call: relax.Call, result: relax.Expr) -> np.ndarray | None:
    """Return the value of `call`, or None where it is not constant or not of a known operator.

    `result` is the variable that the call is bound to: it carries the shape and dtype.
    """
    name = op_name(call).removeprefix("relax.")
    shape = static_shape(result)
    if shape is None:
        return None
    operands = [] if name in ("zeros", "ones") else _operands(call)
    if operands is None or _grows(shape, operands):
        return None
    if not operands:
        return np.full(shape, name == "ones", dtype_of(result))
    if name in _OF_INTEGERS and operands[0].dtype.kind in "iu":
        if len(operands) > 1 and not operands[1].all():
            return None
        value = _OF_INTEGERS[name](*operands)
    elif name in _ELEMENTWISE:
        with np.errstate(all="ignore"):
            value = _ELEMENTWISE[name](*operands)
    elif name in _RESHAPES:
        value = operands[0].reshape(shape)
    else:
        moved = _move(name, call, operands, shape)
        if moved is None:
            return None
        value = moved
    return np.asarray(value, dtype=dtype_of(result)).reshape(shape)


def _grows(shape: tuple[int, ...], operands: list[np.ndarray]) -> bool:
    """Return whether little becomes so much that the device had better make it anew each time."""
    count = math.prod(shape)
    sizes = {operand.__array_interface__["data"][0]: operand.size for operand in operands}
    return count > imported.MOST_GROWN and count > sum(sizes.values())


def _operands(call: relax.Call) -> list[np.ndarray] | None:
    """Return the constant tensors among the arguments; None if one is not constant."""
    found = []
    for arg in call.args:
        fields = list(arg.fields) if isinstance(arg, relax.Tuple) else [arg]
        for field in fields:
            value = constant_value(field)
            if value is not None:
                found.append(value)
            elif isinstance(field, relax.Var | relax.Call | relax.TupleGetItem):
                return None
    return found or None


def _move(
    name: str, call: relax.Call, operands: list[np.ndarray], shape: tuple[int, ...]
) -> np.ndarray | None:
    """Compute operators that move or copy elements, and the product of matrices."""
    x, value = operands[0], None
    if name == "permute_dims":
        axes = call.attrs.axes
        value = x.transpose(None if axes is None else [int(a) for a in axes])
    elif name in ("broadcast_to", "full"):
        value = np.broadcast_to(x, shape)
    elif name == "astype":
        value = x.astype(str(call.attrs.dtype))
    elif name in ("concat", "stack"):
        join = np.concatenate if name == "concat" else np.stack
        value = join(operands, axis=int(call.attrs.axis))
    elif name == "tile":
        value = np.tile(x, [int(n) for n in call.attrs.repeats])
    elif name == "flip":
        value = np.flip(x, int(call.attrs.axis))
    elif name == "matmul":
        value = np.matmul(operands[0], operands[1])
    elif name == "strided_slice":
        window = [slice(None)] * x.ndim
        for axis, begin, end, step in zip(*slice_bounds(call), strict=True):
            window[axis] = slice(begin, None if end < -x.shape[axis] else end, step)
        value = x[tuple(window)]
    elif name == "take" and len(operands) == 2 and call.attrs.axis is not None:
        value = _take(x, operands[1], call)
    elif name == "gather_nd" and int(call.attrs.batch_dims) == 0:
        value = _gather_nd(x, operands[1])
    elif name in _REDUCTIONS and not (name in _ROUNDED and x.dtype.kind == "f"):
        axes = call.attrs.axis
        along = None if axes is None else tuple(int(a) for a in axes)
        value = _REDUCTIONS[name](x, axis=along, keepdims=bool(call.attrs.keepdims))
    return value


def _take(x: np.ndarray, places: np.ndarray, call: relax.Call) -> np.ndarray | None:
    """Return what lies at places along an axis; None where one is outside and no mode clips."""
    axis, mode = int(call.attrs.axis), str(call.attrs.mode)
    last = x.shape[axis] - 1
    if mode == "clip" and last >= 0:
        places = np.clip(places, 0, last)
    if (places < 0).any() or (places > last).any():
        return None
    return np.take(x, places, axis=axis)


def _gather_nd(x: np.ndarray, places: np.ndarray) -> np.ndarray | None:
    """Return what lies at places, each a row of indices; None where one lies outside."""
    known = x.shape[: places.shape[-1]]
    if (places < 0).any() or (places >= np.asarray(known)).any():
        return None
    return np.asarray(x[tuple(np.moveaxis(places, -1, 0))])


def slice_bounds(call: relax.Call) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return axes, begins, ends and steps of a `strided_slice`."""
    parts = [[int(v.value) for v in arg.fields] for arg in call.args[1:]]
    if len(parts) == 3:
        parts.append([1] * len(parts[0]))
    return parts[0], parts[1], parts[2], parts[3]


class Emitter:
    """Binds expressions; what has only constants is computed at once."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder
        self._bound: dict[relax.Expr, relax.Expr] = {}
        self.decisions: dict[tuple[str, str], list[str]] = {}
        """(taken, reason) -> the tensors concerned."""

    def __call__(self, expr: relax.Expr, name: str = "") -> relax.Expr:
        """Return a variable or a constant for `expr`, whose operands are bound before it."""
        if not isinstance(expr, relax.Call | relax.TupleGetItem):
            return expr
        if expr in self._bound:
            return self._bound[expr]
        call = self.builder.normalize(self._bind_operands(expr))
        if isinstance(call, relax.Call) and isinstance(call.ty, relax.TensorType):
            folded = fold_call(call, call)
            if folded is not None:
                return make_constant(folded)
        bound = emit_named(self.builder, call, name) if name else self.builder.emit(call)
        self._bound[expr] = bound
        return bound

    def _bind_operands(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(self(expr.tuple_value), expr.index)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._bind_operand(part) for part in expr.fields])
        args = [self._bind_operand(part) for part in expr.args]
        return relax.Call(expr.op, args, expr.attrs, expr.ty_args)

    def _bind_operand(self, expr: relax.Expr) -> relax.Expr:
        return self._bind_operands(expr) if isinstance(expr, relax.Tuple) else self(expr)
