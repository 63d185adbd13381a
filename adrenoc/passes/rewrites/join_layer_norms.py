"""Layer norms that an exporter wrote out become one operator each, however it wrote them.

Before -> after, with m = mean(x), s = rsqrt(mean((x - m)^2) + epsilon):
    (x - m) * s * g + o             layer_norm(x, g, o)      as PyTorch does before ONNX had it
    (x - m) / sqrt(...) * g + o     the same
    x * (s * g) + (-m * (s * g) + o)    the same             as Keras writes it to TFLite

What follows a mean and a deviation is multiplied out as a polynomial of x, m and s with constant
factors: whatever is g * x * s - g * m * s + o is a norm.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from tvm import relax

from adrenoc.importers.relax.values import (
    Binding,
    FlatFunction,
    constant_value,
    dtype_of,
    make_constant,
    op_name,
    static_shape,
    variables,
)

_X, _MEAN, _SCALE, _ROOT = "x", "m", "s", "r"
_MOST_TERMS = 4
_LARGEST = 2**22
"""Elements of a factor that is multiplied out."""

_Form = dict[tuple[str, ...], np.ndarray]
"""Sorted symbols -> their constant factor, of float64 that broadcasts to x; () is the offset."""


@dataclass(frozen=True, kw_only=True)
class _Norm:
    """What a deviation is of: the tensor, its mean, axes, and what is added to the variance."""

    x: relax.Var
    mean: relax.Var
    axes: tuple[int, ...]
    epsilon: float
    is_root: bool
    """Whether the variable is the root, by which is divided, and not one over it."""


def join_layer_norms(flat: FlatFunction) -> None:
    """Put one operator in the place of each layer norm of `flat`."""
    finder = _Finder(flat)
    found: dict[int, list[Binding]] = {}
    for index, binding in enumerate(flat.bindings):
        norm = finder.deviation(binding)
        if norm is not None:
            found.update(finder.results(index, binding.var, norm))
    if not found:
        return
    bindings: list[Binding] = []
    for index, binding in enumerate(flat.bindings):
        bindings.extend(found.get(index, [binding]))
    flat.bindings = bindings
    flat.drop_unused()
    reason = "their means, deviations, gains and offsets were operators of their own"
    flat.log.add(f"{len(found)} layer norms", "are one operator each", reason)


class _Finder:
    def __init__(self, flat: FlatFunction) -> None:
        self._flat = flat
        self._values = {b.var: b.value for b in flat.bindings}
        self._readers: dict[relax.Var, list[int]] = {}
        for index, binding in enumerate(flat.bindings):
            for var in Counter(variables(binding.value)):
                self._readers.setdefault(var, []).append(index)
        self._returned = set(variables(flat.result))

    def _call(self, expr: relax.Expr, *names: str) -> relax.Call | None:
        """Return what a variable is bound to, where that is a call of one of these operators."""
        value = self._values.get(expr) if isinstance(expr, relax.Var) else None
        return value if op_name(value).removeprefix("relax.") in names else None

    def deviation(self, binding: Binding) -> _Norm | None:
        """Return what `binding` is the deviation of, or one over it."""
        name = op_name(binding.value).removeprefix("relax.")
        if name not in ("rsqrt", "sqrt"):
            return None
        raised = self._call(binding.value.args[0], "add")
        for at in (0, 1) if raised is not None else ():
            assert raised is not None
            epsilon = constant_value(raised.args[1 - at])
            if epsilon is None or epsilon.size != 1:
                continue
            read = self._variance(raised.args[at])
            if read is not None:
                x, mean, axes = read
                return _Norm(
                    x=x, mean=mean, axes=axes, epsilon=float(epsilon.item()), is_root=name == "sqrt"
                )
        return None

    def _variance(self, expr: relax.Expr) -> tuple[relax.Var, relax.Var, tuple[int, ...]] | None:
        """x, its mean and the axes of a mean of squared differences."""
        outer = self._mean(expr)
        square = None if outer is None else self._call(outer[0], "multiply")
        if outer is None or square is None:
            return None
        factors = [self._call(factor, "subtract") for factor in square.args]
        if factors[0] is None or factors[1] is None:
            return None
        (x, mean), (x_again, mean_again) = factors[0].args, factors[1].args
        inner = self._mean(mean)
        if inner is None or x != x_again or mean != mean_again:
            return None
        is_one = inner[0] == x and inner[1] == outer[1] and isinstance(x, relax.Var)
        return (x, mean, outer[1]) if is_one and dtype_of(x) == "float32" else None

    def _mean(self, expr: relax.Expr) -> tuple[relax.Expr, tuple[int, ...]] | None:
        """Return what a tensor is the mean of, and the axes, which stay as extents of one."""
        shape = static_shape(expr)
        kept = self._call(expr, "reshape")
        call = self._call(expr if kept is None else kept.args[0], "mean")
        whole = None if call is None else static_shape(call.args[0])
        if call is None or whole is None or call.attrs.axis is None:
            return None
        axes = tuple(sorted(int(axis) % len(whole) for axis in call.attrs.axis))
        stays = tuple(1 if axis in axes else extent for axis, extent in enumerate(whole))
        return (call.args[0], axes) if shape == stays else None

    def results(self, index: int, deviation: relax.Var, norm: _Norm) -> dict[int, list[Binding]]:
        """Place -> bindings in its stead, of the last results that are a norm and nothing else."""
        forms: dict[relax.Var, _Form] = {
            norm.x: {(_X,): np.float64(1)},
            norm.mean: {(_MEAN,): np.float64(1)},
            deviation: {(_ROOT if norm.is_root else _SCALE,): np.float64(1)},
        }
        places: dict[relax.Var, int] = {}
        # In the order of bindings, from the mean on: a difference may lie before the deviation.
        waiting = sorted({place for var in forms for place in self._readers.get(var, ())})
        seen: set[int] = set()
        while waiting:
            place = waiting.pop(0)
            binding = self._flat.bindings[place]
            if place in seen or binding.var in forms:
                continue
            seen.add(place)
            form = self._multiply_out(binding.value, forms)
            if form is None or static_shape(binding.var) is None:
                continue
            forms[binding.var] = form
            places[binding.var] = place
            waiting = sorted({*waiting, *self._readers.get(binding.var, ())})
        norms = {
            var: place
            for var, place in places.items()
            if _is_norm(forms[var]) and static_shape(var) == static_shape(norm.x)
        }
        last = {
            var: place
            for var, place in norms.items()
            if var in self._returned or not set(self._readers.get(var, ())) <= set(norms.values())
        }
        if any(self._stays(var, form, places, last) for var, form in forms.items()):
            return {}
        return {place: self._norm_of(var, forms[var], norm) for var, place in last.items()}

    def _stays(
        self, var: relax.Var, form: _Form, places: dict[relax.Var, int], last: dict[relax.Var, int]
    ) -> bool:
        """Return whether a deviation would have to be computed all the same, beside the norms."""
        if var in last or not any({_SCALE, _ROOT} & set(key) for key in form):
            return False
        readers = set(self._readers.get(var, ()))
        return var in self._returned or not readers <= set(places.values())

    def _multiply_out(self, value: relax.Expr, forms: dict[relax.Var, _Form]) -> _Form | None:
        """Return a call as a polynomial; None where it is no arithmetic, or of another tensor."""
        name = op_name(value).removeprefix("relax.")
        if name == "negative":
            form = forms.get(value.args[0])
            return None if form is None else {key: -factor for key, factor in form.items()}
        if name not in ("add", "subtract", "multiply", "divide"):
            return None
        left, right = (self._form(argument, forms) for argument in value.args)
        if left is None or right is None:
            return None
        if name == "divide":
            if list(right) != [(_ROOT,)]:
                return None
            name, right = "multiply", {(_SCALE,): 1 / right[_ROOT,]}
        result: _Form = {}
        if name == "multiply":
            for one, first in left.items():
                for other, second in right.items():
                    key = tuple(sorted((*one, *other)))
                    result[key] = result.get(key, np.float64(0)) + first * second
        else:
            sign = -1.0 if name == "subtract" else 1.0
            result = dict(left)
            for key, factor in right.items():
                result[key] = result.get(key, np.float64(0)) + sign * factor
        fits = len(result) <= _MOST_TERMS and all(np.size(f) <= _LARGEST for f in result.values())
        return result if fits else None

    @staticmethod
    def _form(argument: relax.Expr, forms: dict[relax.Var, _Form]) -> _Form | None:
        constant = constant_value(argument)
        if constant is not None:
            is_factor = constant.dtype.kind == "f" and np.isfinite(constant).all()
            return {(): constant.astype(np.float64)} if is_factor else None
        return forms.get(argument) if isinstance(argument, relax.Var) else None

    def _norm_of(self, var: relax.Var, form: _Form, norm: _Norm) -> list[Binding]:
        """Return the norm as an operator; gains and offsets along other axes stay apart."""
        shape = static_shape(norm.x) or ()
        parts = [_along(form[_SCALE, _X], shape, norm.axes)]
        parts.append(_along(form.get((), np.float64(0)), shape, norm.axes))
        extents = [shape[axis] for axis in norm.axes]
        gains, offsets = (
            np.full(extents, neutral, np.float32) if part is None else part
            for part, neutral in zip(parts, (1.0, 0.0), strict=True)
        )
        if parts[0] is None:
            offsets = np.zeros(extents, np.float32)  # they come after the gains
        value = relax.op.nn.layer_norm(
            norm.x,
            make_constant(gains),
            make_constant(offsets),
            axes=list(norm.axes),
            epsilon=norm.epsilon,
        )
        bindings, left = [], []
        if parts[0] is None:
            left.append((relax.op.multiply, form[_SCALE, _X]))
        if () in form and (parts[0] is None or parts[1] is None):
            left.append((relax.op.add, form[()]))
        for operator, factor in left:
            made = self._flat.new_var(var.name, var.ty)
            bindings.append(Binding(var=made, value=value))
            value = operator(made, make_constant(np.asarray(factor, np.float32)))
        return [*bindings, Binding(var=var, value=value)]


def _is_norm(form: _Form) -> bool:
    """Return whether a polynomial is g * x * s - g * m * s + o."""
    scaled, centred = form.get((_SCALE, _X)), form.get((_MEAN, _SCALE))
    if scaled is None or centred is None or set(form) - {(_SCALE, _X), (_MEAN, _SCALE), ()}:
        return False
    return bool(np.all(scaled == -centred))


def _along(value: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray | None:
    """Return a factor as an array over `axes` alone; None where it differs along others."""
    extents = [1] * (len(shape) - np.ndim(value)) + list(np.shape(value))
    if len(extents) > len(shape):
        return None
    if any(extent != 1 and axis not in axes for axis, extent in enumerate(extents)):
        return None
    wanted = [shape[axis] if axis in axes else 1 for axis in range(len(shape))]
    whole = np.broadcast_to(np.reshape(value, extents), wanted)
    return np.ascontiguousarray(whole.reshape([shape[axis] for axis in axes]), np.float32)
