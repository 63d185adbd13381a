"""What convolutions take in without a kernel: factors and offsets by channel, pads of zeros.

Before → after:
    y = conv2d(x, W); z = y * s + t        (what batch normalisation is at inference)
    z = conv2d(x, W * s) + t

Only a result that nothing else reads is changed, and none that is rounded to integers next.

A convolution reads zeros beyond the edges of an image for nothing, as many as it is told to.

Before -> after:
    p = pad(x, rows 0..1, columns 0..1); y = conv2d(p, w)      y = conv2d(x, w, padding 0, 0, 1, 1)
"""

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Op

from adrenoc.base.decision import DecisionLog
from adrenoc.importers.relax.values import (
    Binding,
    FlatFunction,
    constant_value,
    dtype_of,
    flatten,
    make_constant,
    op_name,
    rebuild,
    replace_main,
    static_shape,
)

_LINEAR = {
    "relax.nn.conv2d": ("kernel_layout", "out_layout"),
    "relax.nn.conv1d": ("kernel_layout", "out_layout"),
    "relax.nn.conv3d": ("kernel_layout", "out_layout"),
    "relax.nn.conv2d_transpose": ("kernel_layout", "out_layout"),
    "relax.matmul": None,
}


def fold_scales(flat: FlatFunction) -> None:
    """Fold multiplications and additions of constants, in place."""
    folder = _Folder(flat)
    for index in range(len(flat.bindings)):
        folder.visit(index)
    flat.drop_unused()


class _Folder:
    def __init__(self, flat: FlatFunction) -> None:
        self.flat = flat
        self.uses = flat.uses()
        self.where = {b.var: i for i, b in enumerate(flat.bindings)}
        self._rounded = flat.find_rounded()
        """What is rounded to integers: weights of integers before it stay integers, and exact."""

    def visit(self, index: int) -> None:
        binding = self.flat.bindings[index]
        kind = op_name(binding.value)
        if kind == "relax.multiply":
            self._fold_factor(index, binding)
        elif kind == "relax.add":
            self._fold_offset(index, binding)

    def _fold_factor(self, index: int, binding: Binding) -> None:
        var, factor = self._constant_operand(binding)
        inner = self._sole(var)
        if inner is None or binding.var in self._rounded:
            return
        if op_name(inner.value) == "relax.add":
            below, offset = self._constant_operand(inner)
            linear = self._sole(below)
            if linear is None or not self._scale(linear, factor):
                return
            self._emit(index, binding, "relax.add", below, offset * factor)
        elif self._scale(inner, factor):
            # What is scaled computes what the product did, and takes its place.
            value = self.flat.bindings[self.where[inner.var]].value
            self.flat.bindings[index] = Binding(var=binding.var, value=value)
            self.flat.aliases[binding.var] = self.flat.name(inner.var)
            self.uses[inner.var] = 0
        else:
            return
        self.flat.log.add(
            self.flat.name(inner.var),
            "folded a factor into the constants before it",
            "both are constant, and nothing else reads the result between",
        )

    def _fold_offset(self, index: int, binding: Binding) -> None:
        var, offset = self._constant_operand(binding)
        inner = self._sole(var)
        if inner is None or op_name(inner.value) != "relax.add":
            return
        below, first = self._constant_operand(inner)
        if below is not None:
            self._emit(index, binding, "relax.add", below, first + offset)

    def _emit(
        self, index: int, binding: Binding, op: str, var: relax.Var, constant: np.ndarray
    ) -> bool:
        """Let `binding` be `var op constant`, unless that changes its shape."""
        shape = static_shape(binding.var)
        dtype = dtype_of(binding.var)
        if shape is None or np.broadcast_shapes(static_shape(var) or (), constant.shape) != shape:
            return False
        value = relax.Call(Op.get(op), [var, make_constant(constant.astype(dtype))])
        self.flat.bindings[index] = Binding(var=binding.var, value=value)
        return True

    def _constant_operand(self, binding: Binding) -> tuple[relax.Var | None, Any]:
        """Return the variable and the constant of a product or sum in floats; None of another."""
        a, b = binding.value.args
        if isinstance(b, relax.Var):
            a, b = b, a
        constant = constant_value(b)
        if not isinstance(a, relax.Var) or constant is None or constant.dtype.kind != "f":
            return None, None
        if static_shape(a) != static_shape(binding.var):
            return None, None
        # Weights of half models are folded in single precision and rounded once.
        return a, constant.astype(np.float32, copy=False)

    def _sole(self, var: relax.Var | None) -> Binding | None:
        """Return the binding of `var`, if it is read exactly once."""
        if var is None or self.uses[var] != 1 or var not in self.where:
            return None
        return self.flat.bindings[self.where[var]]

    def _scale(self, linear: Binding, factor: np.ndarray) -> bool:
        """Multiply the weights of `linear` by `factor`, if they allow it."""
        call = linear.value
        kind = op_name(call)
        if kind == "relax.multiply":
            below, constant = self._constant_operand(linear)
            both = None if below is None else _product(constant, factor)
            place = self.where[linear.var]
            return both is not None and self._emit(place, linear, "relax.multiply", below, both)
        weight = constant_value(call.args[1]) if kind in _LINEAR else None
        shape = static_shape(linear.var)
        if weight is None or shape is None or (kind == "relax.matmul" and weight.ndim < 2):
            return False
        if kind == "relax.matmul":
            channel, axis = len(shape) - 1, weight.ndim - 1
        else:
            attrs = call.attrs
            channel = str(attrs.out_layout or attrs.data_layout).find("C")
            axis = str(attrs.kernel_layout).find("O")
            if "transpose" in kind and int(attrs.groups) != 1:
                return False
        by_channel = _spread_by_axis(factor, channel, shape)
        if by_channel is None or weight.shape[axis] != by_channel.size:
            return False
        spread = [1] * weight.ndim
        spread[axis] = by_channel.size
        scaled = _product(weight, by_channel.reshape(spread).astype(np.float32))
        if scaled is None:
            return False
        args = [call.args[0], make_constant(scaled), *call.args[2:]]
        self.flat.bindings[self.where[linear.var]] = Binding(
            var=linear.var, value=relax.Call(call.op, args, call.attrs, call.ty_args)
        )
        return True


def _product(value: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
    """Return the product of two constants; None where one after the other may give other numbers.
    What they multiply may be as small as their product is large."""
    with np.errstate(over="ignore", under="ignore"):
        both = np.asarray(value * factor).astype(value.dtype)
    lost = both.size == 1 and not both.any() and value.any() and factor.any()
    return None if lost or not np.isfinite(both).all() else both


def _spread_by_axis(factor: np.ndarray, axis: int, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return `factor` as one value for each index of `axis`, if it depends on nothing else."""
    full = factor.reshape((1,) * (len(shape) - factor.ndim) + factor.shape)
    if full.size != full.shape[axis]:
        return None
    return np.broadcast_to(full.reshape(-1), (shape[axis],))


_CONVOLUTIONS = {"relax.nn.conv1d": "W", "relax.nn.conv2d": "HW"}
"""And the axes along which they are padded."""


def fold_pads(module: tvm.IRModule) -> tuple[tvm.IRModule, DecisionLog]:
    """Let convolutions in `main` pad what a pad of zeros before them does."""
    flat = flatten(module["main"])
    values: dict[relax.Var, relax.Expr] = {}
    bindings = []
    for binding in flat.bindings:
        value = _fold_pad(flat, binding.value, values)
        values[binding.var] = value
        bindings.append(Binding(var=binding.var, value=value))
    if not flat.log:
        return module, flat.log
    flat.bindings = bindings
    flat.drop_unused()
    main, _ = rebuild(flat)
    return replace_main(module, main), flat.log


def _fold_pad(
    flat: FlatFunction, value: relax.Expr, values: dict[relax.Var, relax.Expr]
) -> relax.Expr:
    """Return the convolution on what the pad before it reads; anything else as it is."""
    letters = _CONVOLUTIONS.get(op_name(value))
    if letters is None or not isinstance(value, relax.Call):
        return value
    source = value.args[0]
    while isinstance(source, relax.Var) and source in values:
        pad = values[source]
        widths = _zeros(pad, str(value.attrs.data_layout), letters)
        if widths is None:
            break
        taken = "zeros that its convolution reads beyond the edges"
        reason = f"{widths[0]} before and {widths[1]} after along {letters}"
        flat.log.add(flat.name(source), taken, reason)
        source = pad.args[0]
        known = zip(value.attrs.padding, (*widths[0], *widths[1]), strict=True)
        padding = [int(p) + more for p, more in known]
        value = remake_conv(value, source, value.args[1], padding=padding)
    return value


def _zeros(
    pad: relax.Expr, layout: str, letters: str
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the zeros before and after each of these axes; None where others are padded."""
    if op_name(pad) != "relax.nn.pad" or str(pad.attrs.pad_mode) != "constant":
        return None
    widths = [int(n) for n in pad.attrs.pad_width]
    if float(pad.attrs.pad_value) != 0.0 or len(widths) != 2 * len(layout):
        return None
    if static_shape(pad.args[0]) is None or min(widths) < 0:
        return None
    by_letter = {c: (widths[2 * axis], widths[2 * axis + 1]) for axis, c in enumerate(layout)}
    if any(any(pair) for letter, pair in by_letter.items() if letter not in letters):
        return None
    return tuple(by_letter[c][0] for c in letters), tuple(by_letter[c][1] for c in letters)


def remake_conv(conv: relax.Call, data: relax.Expr, weight: relax.Expr, **other: Any) -> relax.Call:
    """Return a convolution of other operands, and with some attributes that are `other`."""
    attrs = conv.attrs
    kept: dict[str, Any] = {
        **{name: [int(n) for n in getattr(attrs, name)] for name in _LISTS},
        "groups": int(attrs.groups),
        "data_layout": str(attrs.data_layout),
        "kernel_layout": str(attrs.kernel_layout),
        "out_layout": str(attrs.out_layout or attrs.data_layout),
        "out_dtype": str(attrs.out_dtype) if attrs.out_dtype is not None else None,
    }
    make = relax.op.nn.conv2d if op_name(conv) == "relax.nn.conv2d" else relax.op.nn.conv1d
    call = make(data, weight, **{**kept, **other})
    return relax.Call(conv.op, list(call.args), call.attrs, call.ty_args)


_LISTS = ("strides", "padding", "dilation")
