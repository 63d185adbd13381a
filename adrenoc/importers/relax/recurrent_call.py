"""Calls of a recurrent layer: both importers say what they found, this says it in Relax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from adrenoc.importers.relax.own import RECURRENT, call_own
from adrenoc.importers.relax.recurrent_cells import GATES, Cell
from adrenoc.importers.relax.values import make_constant

_LANES = 4
MOST_UNITS = 1024
"""More take more local memory than some GPU has."""

Emit = Callable[[relax.Expr], relax.Expr]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One direction of a layer, in ONNX's order of gates.

    Shapes:
        weights: [gates, units, depth]
        recurrence: [gates, units, units]
        bias: [gates, units], or None
        extra: [3, units] peepholes or [1, units], a GRU's bias of what is reset; or None
    """

    cell: Cell
    weights: np.ndarray
    recurrence: np.ndarray
    bias: np.ndarray | None
    extra: np.ndarray | None
    reverse: bool
    reset_before: bool
    keeps_cell: bool

    @property
    def units(self) -> int:
        """Numbers of a state."""
        return int(self.recurrence.shape[1])


def call_recurrent(
    emit: Emit,
    layer: Layer,
    x: relax.Expr,
    states: Sequence[relax.Expr],
    hold: Callable[[int, int], relax.Expr] | None = None,
) -> relax.Expr:
    """[batch, step, units] of x [batch, step, depth]; with `keeps_cell` the last cell after them.

    Each gate begins at a whole block of channels, so that none is read of two.  `hold` gives what
    is added to the gates, of their number and the width of each.
    """
    batch, steps, depth = (int(extent) for extent in x.ty.shape)
    gates, more = GATES[layer.cell.kind], -layer.units % _LANES
    width = gates * (layer.units + more)
    weights = np.pad(layer.weights, ((0, 0), (0, more), (0, 0))).reshape(width, depth)
    projected = emit(relax.op.matmul(x, make_constant(np.ascontiguousarray(weights.T))))
    if layer.bias is not None:
        bias = np.pad(layer.bias, ((0, 0), (0, more))).reshape(width)
        projected = emit(relax.op.add(projected, make_constant(bias)))
    if hold is not None:
        projected = emit(relax.op.add(projected, hold(gates, layer.units + more)))
    inputs = [projected, make_constant(np.ascontiguousarray(layer.recurrence))]
    if layer.extra is not None:
        inputs.append(make_constant(np.ascontiguousarray(layer.extra)))
    return emit(
        call_own(
            RECURRENT,
            [*inputs, *states],
            shape=(batch, steps + layer.keeps_cell, layer.units),
            dtype="float32",
            kind=layer.cell.kind,
            activations=",".join(layer.cell.activations),
            clip=layer.cell.clip,
            clip_cell=layer.cell.clip_cell,
            extras=int(layer.extra is not None),
            states=len(states),
            reverse=int(layer.reverse),
            reset_before=int(layer.reset_before),
            keeps_cell=int(layer.keeps_cell),
        )
    )
