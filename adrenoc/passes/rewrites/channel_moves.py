"""Which bindings only move channels: concatenations, slices, shuffles and picks, seen through.

Before -> after:
    c = concat(a, b); r = reshape(permute_dims(reshape(c))); y = r[:, 58:]
    y is channels a29, b29, a30, b30, ... of a and b
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tvm import relax

from adrenoc.importers.relax.flat import FlatFunction
from adrenoc.importers.relax.fold import slice_bounds
from adrenoc.importers.relax.values import constant_value, op_name, static_shape

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
        kind = op_name(value)
        if not isinstance(var.ty, relax.TensorType) or not static_shape(var):
            return None
        if kind == "relax.concat":
            return self._concat(var, value)
        if kind == "relax.strided_slice":
            return self._slice(var, value)
        if kind == "relax.take":
            return self._take(var, value)
        if kind == "relax.reshape":
            return self._shuffle(var, value)
        return None

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
        """Return a reshape that splits one axis, a transpose within it, a reshape that joins it
        again."""
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
