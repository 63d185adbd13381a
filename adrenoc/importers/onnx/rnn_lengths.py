"""Sequences of a recurrent layer that end early, without a kernel of their own.

The layer runs over all steps.  What it makes behind the end of a sequence is dropped, and the last
state is taken where the sequence ends:

    y = layer(x)                            y[b, t] = 0 where t >= length[b]
    last = y[steps - 1]                     last = y[length - 1], or the first state of no step

A reversed layer begins at the end of each sequence: its steps are turned round within each, and
those of the result back.  An LSTM's cell, of which the last alone is written, is held from the end
on: its gates of input are shut and its gates of forgetting open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from adrenoc.importers.onnx.node import Node
from adrenoc.importers.relax.values import make_constant

_SHUT = 1e4
"""Sigmoid is 1 or 0 this far out, and halves hold it."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How many steps each sequence of a batch has, as int32 [batch, 1]."""

    node: Node
    expr: relax.Expr
    batch: int
    steps: int

    @classmethod
    def of(cls, node: Node, given: relax.Expr, batch: int, steps: int) -> Lengths:
        """Those that a layer is given."""
        whole = node.emit(relax.op.astype(given, "int32"))
        shaped = node.emit(relax.op.reshape(whole, [batch, 1]))
        return cls(node=node, expr=shaped, batch=batch, steps=steps)

    def turn(self, x: relax.Expr) -> relax.Expr:
        """x [batch, steps, n] with the steps of each sequence turned round, others as are."""
        emit, times = self.node.emit, self._times()
        back = emit(relax.op.subtract(self.expr, make_constant(times + 1)))
        return self._pick(x, emit(relax.op.where(self._alive(), back, make_constant(times))))

    def cut(self, y: relax.Expr) -> relax.Expr:
        """y [batch, steps, n] with zeros behind the end of each sequence."""
        emit = self.node.emit
        alive = emit(relax.op.reshape(self._alive(), [self.batch, self.steps, 1]))
        return emit(relax.op.where(alive, y, make_constant(np.float32(0))))

    def last(self, y: relax.Expr, first: relax.Expr) -> relax.Expr:
        """Return the row [batch, n] of the last step of each sequence; `first` of those without a
        step."""
        emit = self.node.emit
        zero, one = (make_constant(np.int32(v)) for v in (0, 1))
        at = emit(relax.op.maximum(emit(relax.op.subtract(self.expr, one)), zero))
        rows = self._pick(y, at)
        flat = emit(relax.op.reshape(rows, [self.batch, int(y.ty.shape[2])]))
        return emit(relax.op.where(emit(relax.op.greater(self.expr, zero)), flat, first))

    def hold(self, gates: int, width: int) -> relax.Expr:
        """Return what is added to an LSTM's gates [batch, steps, gates * width] so that cells
        stay."""
        emit = self.node.emit
        shut = np.zeros((gates, width), np.float32)
        shut[0], shut[2] = -_SHUT, _SHUT  # input, output, forget, new
        ended = emit(relax.op.logical_not(self._alive()))
        ended = emit(relax.op.reshape(ended, [self.batch, self.steps, 1]))
        row = make_constant(shut.reshape(1, 1, gates * width))
        return emit(relax.op.where(ended, row, make_constant(np.float32(0))))

    def _alive(self) -> relax.Expr:
        """Return whether a sequence has a step: [batch, steps]."""
        return self.node.emit(relax.op.greater(self.expr, make_constant(self._times())))

    def _times(self) -> np.ndarray:
        return np.arange(self.steps, dtype=np.int32).reshape(1, self.steps)

    def _pick(self, x: relax.Expr, places: relax.Expr) -> relax.Expr:
        """Rows of x [batch, steps, n] at places [batch, k]."""
        emit = self.node.emit
        _, steps, width = (int(extent) for extent in x.ty.shape)
        begins = np.arange(self.batch, dtype=np.int32).reshape(-1, 1) * steps
        flat = emit(relax.op.reshape(x, [self.batch * steps, width]))
        return emit(relax.op.take(flat, emit(relax.op.add(places, make_constant(begins))), axis=0))
