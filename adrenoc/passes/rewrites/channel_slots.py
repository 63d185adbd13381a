"""How operators treat channels that lie in another order, some of them unused.

`Slots` say which channel of a tensor each of its places holds; -1 is a place that nothing wants.
A convolution reads any order, by weights in that order, and makes any order; a depthwise one, a
pool and what changes elements one by one keep the order that they read.

Bindings that only move channels are seen through: concatenations, slices, shuffles and picks.

Before -> after:
    c = concat(a, b); r = reshape(permute_dims(reshape(c))); y = r[:, 58:]
    y is channels a29, b29, a30, b30, ... of a and b
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from adrenoc.importers.relax.values import (
    FlatFunction,
    constant_value,
    make_constant,
    op_name,
    slice_bounds,
    static_shape,
)
from adrenoc.passes.rewrites.fold_scale import remake_conv

MOST_CHANNELS = 1 << 14
"""The most channels of a tensor that is looked into; images have at most 2048 layers of four."""

Unit = tuple[relax.Var, int]
"""A channel of a tensor that is computed, not moved."""


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A tensor that is channels of others side by side along `axis`."""

    axis: int
    units: tuple[Unit, ...]


def find_moves(flat: FlatFunction) -> dict[relax.Var, Moved]:
    """Return the tensors that are made of channels of others, down to those that are computed."""
    finder = _Finder(flat)
    for binding in flat.bindings:
        moved = finder.find_move(binding.var, binding.value)
        if moved is not None:
            finder.found[binding.var] = moved
    return finder.found


class _Finder:
    def __init__(self, flat: FlatFunction) -> None:
        self._values: Mapping[relax.Var, relax.Expr] = {b.var: b.value for b in flat.bindings}
        self.found: dict[relax.Var, Moved] = {}

    def find_move(self, var: relax.Var, value: relax.Expr) -> Moved | None:
        find = {
            "relax.concat": self._concat,
            "relax.strided_slice": self._slice,
            "relax.take": self._take,
            "relax.reshape": self._shuffle,
        }.get(op_name(value))
        is_known = isinstance(var.ty, relax.TensorType) and static_shape(var)
        return find(var, value) if find is not None and is_known else None

    def _units(self, source: relax.Expr, axis: int) -> tuple[Unit, ...] | None:
        """Return the channels of a tensor along an axis."""
        shape = static_shape(source) if isinstance(source, relax.Var) else None
        if shape is None:
            return None
        known = self.found.get(source)
        if known is not None and known.axis == axis:
            return known.units
        if shape[axis] > MOST_CHANNELS:
            return None
        return tuple((source, channel) for channel in range(shape[axis]))

    def _concat(self, var: relax.Var, value: relax.Call) -> Moved | None:
        if not isinstance(value.args[0], relax.Tuple):
            return None
        axis = int(value.attrs.axis) % len(static_shape(var) or ())
        parts = [self._units(part, axis) for part in value.args[0].fields]
        if any(part is None for part in parts):
            return None
        return Moved(axis=axis, units=tuple(unit for part in parts if part for unit in part))

    def _slice(self, var: relax.Var, value: relax.Call) -> Moved | None:
        shape, before = static_shape(var) or (), static_shape(value.args[0]) or ()
        cut = [a for a, (x, y) in enumerate(zip(shape, before, strict=True)) if x != y]
        axes, begins, _, steps = slice_bounds(value)
        if len(cut) != 1 or any(step != 1 for step in steps):
            return None
        (axis,) = cut
        (begin,) = (b for a, b in zip(axes, begins, strict=True) if a % len(shape) == axis)
        begin += before[axis] if begin < 0 else 0
        return self._pick_units(value.args[0], axis, np.arange(begin, begin + shape[axis]))

    def _take(self, var: relax.Var, value: relax.Call) -> Moved | None:
        shape, indices = static_shape(value.args[0]), constant_value(value.args[1])
        axis = value.attrs.axis
        if not shape or axis is None or indices is None or indices.ndim != 1:
            return None
        axis = int(axis) % len(shape)
        if not indices.size or indices.min() < 0 or indices.max() >= shape[axis]:
            return None
        return self._pick_units(value.args[0], axis, indices)

    def _shuffle(self, var: relax.Var, value: relax.Call) -> Moved | None:
        """Read a reshape that splits an axis, a transpose within, and a reshape that joins it."""
        turned = self._values.get(value.args[0])
        if turned is None or op_name(turned) != "relax.permute_dims":
            return None
        split = self._values.get(turned.args[0])
        if split is None or op_name(split) != "relax.reshape":
            return None
        source, shape = split.args[0], static_shape(var) or ()
        parts = static_shape(turned.args[0]) or ()
        count = len(parts) - len(shape) + 1
        axes = [int(a) % len(parts) for a in turned.attrs.axes or range(len(parts))[::-1]]
        if static_shape(source) != shape or count < 2:
            return None
        for axis, extent in enumerate(shape):
            factors = parts[axis : axis + count]
            inner = axes[axis : axis + count]
            rest = [a for a in range(len(parts)) if not axis <= a < axis + count]
            if (
                math.prod(factors) == extent
                and (*shape[:axis], *factors, *shape[axis + 1 :]) == parts
                and axes == [*rest[:axis], *inner, *rest[axis:]]
            ):
                order = np.arange(extent).reshape(factors)
                order = order.transpose([a - axis for a in inner]).reshape(-1)
                return self._pick_units(source, axis, order)
        return None

    def _pick_units(self, source: relax.Expr, axis: int, order: np.ndarray) -> Moved | None:
        units = self._units(source, axis)
        if units is None:
            return None
        return Moved(axis=axis, units=tuple(units[int(i)] for i in order))


@dataclass(frozen=True, kw_only=True, eq=False)
class Slots:
    """The channels that lie along `axis`, in order."""

    axis: int
    channels: np.ndarray

    def same(self, other: Slots) -> bool:
        """Return whether both are the same order along the same axis."""
        return self.axis == other.axis and np.array_equal(self.channels, other.channels)

    def shape(self, of: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a tensor once its channels lie so."""
        return (*of[: self.axis], self.channels.size, *of[self.axis + 1 :])


Orders = Mapping[relax.Var, Slots]

_ELEMENTWISE = {
    "relax.abs",
    "relax.clip",
    "relax.erf",
    "relax.negative",
    "relax.nn.gelu",
    "relax.nn.gelu_tanh",
    "relax.nn.leakyrelu",
    "relax.nn.relu",
    "relax.nn.relu6",
    "relax.nn.silu",
    "relax.sigmoid",
    "relax.tanh",
}
"""Of one element each, and finite at zero, which is what unused places hold."""

_OF_TWO = {"relax.add", "relax.multiply", "relax.subtract", "relax.maximum", "relax.minimum"}

_POOLS = {"relax.nn.avg_pool2d", "relax.nn.max_pool2d"}

_REDUCTIONS = {"relax.mean", "relax.max"}


class OrderConflictError(Exception):
    """A binding reads tensors in an order that it cannot do with."""


def is_conv(value: relax.Expr) -> bool:
    """Return a convolution in two dimensions by constant weights."""
    return op_name(value) == "relax.nn.conv2d" and constant_value(value.args[1]) is not None


def makes_any_order(value: relax.Expr) -> bool:
    """Return whether its results can lie in any order, within each of its groups."""
    return is_conv(value) and not is_depthwise(value)


def output_axis(call: relax.Call) -> int:
    """Return the axis of a convolution's results' channels."""
    return int(str(call.attrs.out_layout or call.attrs.data_layout).find("C"))


def is_depthwise(call: relax.Call) -> bool:
    """Return whether each result is of one channel, and each channel has one."""
    layout, shape = str(call.attrs.kernel_layout), static_shape(call.args[1]) or ()
    groups = int(call.attrs.groups)
    return groups > 1 and shape[layout.find("O")] == groups and shape[layout.find("I")] == 1


def holds_groups(channels: np.ndarray, groups: int, count: int) -> bool:
    """Return whether equal parts of an order of `count` channels hold those of one group each."""
    if channels.size % groups:
        return False
    parts = channels.reshape(groups, -1)
    return bool(((parts < 0) | (parts // (count // groups) == np.arange(groups)[:, None])).all())


def kept_source(value: relax.Expr) -> relax.Var | None:
    """Return the tensor whose order a result keeps, where there is one."""
    kind = op_name(value)
    if kind in _ELEMENTWISE | _POOLS | _REDUCTIONS or (is_conv(value) and is_depthwise(value)):
        return value.args[0] if isinstance(value.args[0], relax.Var) else None
    if kind in _OF_TWO:
        variables = [arg for arg in value.args if isinstance(arg, relax.Var)]
        constants = [arg for arg in value.args if constant_value(arg) is not None]
        return variables[0] if len(variables) == len(constants) == 1 else None
    return None


def kept_order(var: relax.Var, value: relax.Expr, orders: Orders) -> Slots | None:
    """Return the order of a result, given those of what it reads; None where it is the usual one.

    Raises:
        OrderConflictError: it cannot read them so.
    """
    kind, read = op_name(value), _read(value, orders)
    if not read:
        return None
    if is_conv(value) and value.args[0] in orders and len(read) == 1:
        slots = orders[value.args[0]]
        if slots.axis != str(value.attrs.data_layout).find("C"):
            raise OrderConflictError
        if is_depthwise(value):
            return Slots(axis=output_axis(value), channels=slots.channels)
        count = (static_shape(value.args[0]) or ())[slots.axis]
        if holds_groups(slots.channels, int(value.attrs.groups), count):
            return None
    elif (
        kind in _ELEMENTWISE
        or (kind in _POOLS and str(value.attrs.layout).find("C") == read[0].axis)
        or (kind in _REDUCTIONS and _keeps_axis(var, value, read[0].axis))
        or (kind in _OF_TWO and _agree(var, value, orders, read))
    ):
        return read[0]
    raise OrderConflictError


def _keeps_axis(var: relax.Var, value: relax.Call, axis: int) -> bool:
    """Return whether a reduction leaves an axis as it is."""
    rank, attrs = len(static_shape(var) or ()), value.attrs
    reduced = range(rank) if attrs.axis is None else attrs.axis
    return bool(attrs.keepdims) and axis not in {int(a) % rank for a in reduced}


def _read(value: relax.Expr, orders: Orders) -> list[Slots]:
    if not isinstance(value, relax.Call):
        return []
    flat = [f for a in value.args for f in (a.fields if isinstance(a, relax.Tuple) else (a,))]
    return [orders[arg] for arg in flat if isinstance(arg, relax.Var) and arg in orders]


def _agree(var: relax.Var, value: relax.Call, orders: Orders, read: Sequence[Slots]) -> bool:
    """Return whether both operands hold the same channels, or one is a constant of them."""
    shape = static_shape(var) or ()
    for arg in value.args:
        if constant_value(arg) is not None:
            continue
        if arg not in orders or not orders[arg].same(read[0]):
            return False
        own = static_shape(arg) or ()
        if len(own) != len(shape) or own[read[0].axis] != shape[read[0].axis]:
            return False
    return all(len(static_shape(arg) or ()) <= len(shape) for arg in value.args)


def reorder_call(
    value: relax.Call, orders: Orders, made: Slots | None, env: Mapping[relax.Var, relax.Var]
) -> relax.Call:
    """Return the call on tensors that lie in these orders, with constants to match.  `made` is the
    order of its result, `env` the tensors as they are now."""
    args = [env.get(arg, arg) if isinstance(arg, relax.Var) else arg for arg in value.args]
    if is_conv(value):
        return _conv(value, args, orders.get(value.args[0]), made)
    if op_name(value) in _OF_TWO and made is not None:
        # What is added to unused places is zero, what they are multiplied by is one.
        filler = 1.0 if op_name(value) == "relax.multiply" else 0.0
        rank = max(len(static_shape(arg) or ()) for arg in value.args)
        args = [_constant_in_order(arg, rank, made, filler) for arg in args]
    return relax.Call(value.op, args, value.attrs, value.ty_args)


def _constant_in_order(arg: relax.Expr, rank: int, slots: Slots, filler: float) -> relax.Expr:
    constant = constant_value(arg)
    axis = slots.axis - rank + (0 if constant is None else constant.ndim)
    if constant is None or axis < 0 or constant.shape[axis] == 1:
        return arg
    return make_constant(_pick_channels(constant, axis, slots.channels, filler))


def _conv(
    value: relax.Call, args: Sequence[relax.Expr], read: Slots | None, made: Slots | None
) -> relax.Call:
    attrs, weight = value.attrs, constant_value(value.args[1])
    if weight is None:
        raise ValueError("weights that are not constant have no order")
    layout, groups = str(attrs.kernel_layout), int(attrs.groups)
    depthwise = is_depthwise(value)
    if read is not None and not depthwise:
        axis = layout.find("O")
        shares = np.split(weight, groups, axis=axis)
        inputs = weight.shape[layout.find("I")]
        orders = np.split(read.channels, groups)
        weight = np.concatenate(
            [
                _pick_channels(share, layout.find("I"), np.where(o < 0, -1, o - g * inputs), 0.0)
                for g, (share, o) in enumerate(zip(shares, orders, strict=True))
            ],
            axis=axis,
        )
    if made is not None:
        weight = _pick_channels(weight, layout.find("O"), made.channels, 0.0)
        groups = made.channels.size if depthwise else groups
    return remake_conv(value, args[0], make_constant(weight), groups=groups)


def _pick_channels(
    constant: np.ndarray, axis: int, channels: np.ndarray, filler: float
) -> np.ndarray:
    """Return elements of a constant in another order; `filler` where nothing is wanted."""
    taken = np.take(constant, np.maximum(channels, 0), axis=axis)
    index: list[object] = [slice(None)] * constant.ndim
    index[axis] = channels < 0
    taken[tuple(index)] = filler
    return taken
