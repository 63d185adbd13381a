"""Relax expressions as Python values, functions as flat lists of bindings, calls on constants
folded.

TVM's FoldConstant builds a kernel with LLVM for each call; for what models hold (weights that are
transposed, biases that are reshaped, factors that are multiplied) NumPy is many times faster.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import RefusedError, UnsupportedOperatorError
from adrenoc.base.files.spill import TVM_ALIGNMENT_BYTES
from adrenoc.importers import imported

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
    """Return the array that `expr` holds, or None where it is not a constant tensor. It is the
    constant's own memory, so that asking costs nothing, and cannot be written."""
    if isinstance(expr, GenericConst) and isinstance(expr.ty, relax.TensorType):
        return array_view(expr.value)
    return None


def make_constant(value: np.ndarray) -> relax.Expr:
    """Return a constant of `value`'s dtype; `relax.const` narrows wide ones and copies twice."""
    value = np.asarray(value)
    if str(value.dtype) not in NUMPY_DTYPES:
        return relax.const(tvm.runtime.tensor(value))
    held = tvm.runtime.empty(value.shape, str(value.dtype))
    np.copyto(np.from_dlpack(held), value)  # whatever its strides, without a dense copy between
    return relax.const(held)


def take_constant(value: np.ndarray) -> relax.Expr:
    """Return a constant in the memory of `value`, which nobody writes to from then on; a copy of
    what TVM cannot hold as it is."""
    is_aligned = value.flags.c_contiguous and value.ctypes.data % TVM_ALIGNMENT_BYTES == 0
    if not (is_aligned and value.size and str(value.dtype) in NUMPY_DTYPES):
        return make_constant(value)
    try:
        own = value.view()
        own.flags.writeable = True  # NumPy gives away no memory that is not
    except ValueError:
        return make_constant(value)
    return relax.const(tvm.runtime.from_dlpack(own))


def static_shape(expr: relax.Expr) -> tuple[int, ...] | None:
    """Return the shape of a tensor expression, or None where a part of it is not known. Raises
    TypeError where it is a call that no builder has bound, whose type nothing has derived yet."""
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
    """Return `relax.nn.conv2d` for a call of that operator, an empty string for anything else."""
    return str(getattr(expr.op, "name", "")) if isinstance(expr, relax.Call) else ""


def pick(x: relax.Expr, indices: np.ndarray, axis: int) -> relax.Expr:
    """Return elements at constant places along `axis`: a slice where they follow each other."""
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
    what the model calls it; TVM's printer makes identifiers of them."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def take(self, wanted: str) -> str:
        """Return `wanted`, or a name like it, that was not handed out before."""
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
    `output` keeps the variable in sight after the dataflow block."""
    value = builder.normalize(expr)
    inner = builder.current_block_is_dataflow() and not output
    var = (relax.DataflowVar if inner else relax.Var)(name, value.ty)
    builder.emit_normalized(relax.VarBinding(var, value))
    return var


_ROUNDING = ("relax.ceil", "relax.floor", "relax.round", "relax.trunc")


@dataclass(frozen=True, kw_only=True)
class Binding:
    """`var` = `value`; the variable's type is known, the value may be a fresh call without one."""

    var: relax.Var
    value: relax.Expr


@dataclass
class FlatFunction:
    """Parameters, bindings in order, and what the function returns. `aliases` holds better names
    for variables that have no name of their own, `log` what those decided that rewrote it."""

    params: list[relax.Var]
    bindings: list[Binding]
    result: relax.Expr
    names: UniqueNames = field(default_factory=UniqueNames)
    aliases: dict[relax.Var, str] = field(default_factory=dict)
    log: DecisionLog = field(default_factory=DecisionLog)

    def name(self, var: relax.Var) -> str:
        """Return what `var` will be called in the end, names that are taken aside."""
        return self.aliases.get(var, str(var.name))

    def find_rounded(self) -> set[relax.Var]:
        """Return what is rounded to integers as it is, and so must not be off in its last digit."""
        calls = (b.value for b in self.bindings if isinstance(b.value, relax.Call))
        return {
            call.args[0] for call in calls if _rounds(call) and isinstance(call.args[0], relax.Var)
        }

    def uses(self) -> Counter[relax.Var]:
        """Return how often each variable is read, the result included."""
        counts: Counter[relax.Var] = Counter()
        for binding in self.bindings:
            counts.update(variables(binding.value))
        counts.update(variables(self.result))
        return counts

    def drop_unused(self) -> int:
        """Remove bindings that the result does not need; return how many went."""
        needed = set(variables(self.result))
        kept = []
        for binding in reversed(self.bindings):
            if binding.var in needed:
                kept.append(binding)
                needed.update(variables(binding.value))
        dropped = len(self.bindings) - len(kept)
        self.bindings = kept[::-1]
        return dropped

    def new_var(self, like: str, ty: relax.TensorType) -> relax.Var:
        """Return a variable for a new binding, with a name that nothing else has."""
        return relax.Var(self.names.take(like), ty)


def flatten(function: relax.Function) -> FlatFunction:
    """Read `function` into a list; UnsupportedOperatorError: control flow, run-time shapes."""
    bindings = []
    body = function.body
    for block in body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding) or isinstance(binding.value, relax.If):
                raise UnsupportedOperatorError(
                    f"'{binding.var.name}' depends on data at run time (control flow or a shape)",
                    hint="export the model with static shapes and without branches",
                )
            bindings.append(Binding(var=binding.var, value=binding.value))
    names = UniqueNames(p.name for p in function.params)
    return FlatFunction(
        params=list(function.params), bindings=bindings, result=body.body, names=names
    )


def rebuild(flat: FlatFunction) -> tuple[relax.Function, dict[str, str]]:
    """Return the function again: one dataflow block, unique names, types derived anew. Returns it
    with a map from each new variable's name to its name in `flat`."""
    builder = relax.BlockBuilder()
    names = UniqueNames(p.name for p in flat.params)
    env: dict[relax.Var, relax.Expr] = {}
    origin = {p.name: p.name for p in flat.params}
    returned = set(variables(flat.result))
    with builder.function("main", flat.params):
        with builder.dataflow():
            for binding in flat.bindings:
                name = names.take(flat.name(binding.var))
                env[binding.var] = emit_named(
                    builder, substitute(binding.value, env), name, output=binding.var in returned
                )
                origin[name] = binding.var.name
            result = substitute(flat.result, env)
            if not returned.issubset(env) or not returned:
                # An input or a constant that the model returns as it is needs a binding.
                result = emit_named(builder, result, names.take("result"), output=True)
        builder.emit_func_output(result)
    return builder.get()["main"], origin


def substitute(expr: relax.Expr, env: dict[relax.Var, relax.Expr]) -> relax.Expr:
    """Return `expr` with its variables replaced as `env` says."""
    if isinstance(expr, relax.Var):
        return env.get(expr, expr)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substitute(f, env) for f in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(substitute(expr.tuple_value, env), expr.index)
    if isinstance(expr, relax.Call):
        args = [substitute(a, env) for a in expr.args]
        return relax.Call(expr.op, args, expr.attrs, expr.ty_args)
    return expr


def variables(expr: relax.Expr) -> Iterator[relax.Var]:
    """Yield the variables that `expr` reads, each as often as it reads it."""
    if isinstance(expr, relax.Var):
        yield expr
    elif isinstance(expr, relax.Tuple):
        for part in expr.fields:
            yield from variables(part)
    elif isinstance(expr, relax.TupleGetItem):
        yield from variables(expr.tuple_value)
    elif isinstance(expr, relax.Call):
        for arg in expr.args:
            yield from variables(arg)


def replace_main(module: tvm.IRModule, main: relax.Function) -> tvm.IRModule:
    """Return a module with `main` and, of the old functions, those that `main` still calls."""
    wanted = {
        arg
        for block in main.body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
        for arg in binding.value.args
        if isinstance(arg, relax.GlobalVar)
    }
    kept = {gv: f for gv, f in module.functions.items() if gv in wanted}
    result = tvm.IRModule(kept)
    result["main"] = main.with_attr("global_symbol", "main")
    return result


def _rounds(call: relax.Call) -> bool:
    """Tell whether a call makes whole numbers of its operand."""
    name = str(getattr(call.op, "name", ""))
    return name in _ROUNDING or (name == "relax.astype" and "int" in str(call.attrs.dtype))


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
    `result` is the variable that the call is bound to: it carries the shape and dtype."""
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
        parts = list(arg.fields) if isinstance(arg, relax.Tuple) else [arg]
        for part in parts:
            value = constant_value(part)
            if value is not None:
                found.append(value)
            elif isinstance(part, relax.Var | relax.Call | relax.TupleGetItem):
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
