"""RNN, GRU and LSTM: all steps of a direction are one operator (`call_recurrent`).

Sequences that end early need no kernel of their own.  The layer runs over all steps; what it makes
behind the end of a sequence is dropped, and the last state is taken where the sequence ends:

    y = layer(x)                            y[b, t] = 0 where t >= length[b]
    last = y[steps - 1]                     last = y[length - 1], or the first state of no step

A reversed layer begins at the end of each sequence: its steps are turned round within each, and
those of the result back.  An LSTM's cell, of which the last alone is written, is held from the end
on: its gates of input are shut and its gates of forgetting open.

Source: ONNX operator reference, RNN-14, GRU-14, LSTM-14.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax

from adrenoc.base.errors import RefusedError
from adrenoc.importers.onnx.node import OnnxNode
from adrenoc.importers.relax.own import RecurrentLayer, call_recurrent
from adrenoc.importers.relax.recurrent import GATES, Cell
from adrenoc.importers.relax.values import Emitter, constant_value, dtype_of, make_constant

_LENGTHS = 4
_FIRST_STATES = 5

_Ran = tuple[relax.Expr, tuple[relax.Expr, ...]]
"""The states of all steps [steps, batch, units], and the last ones [batch, units]."""


def _run(node: OnnxNode, kind: str, number: int, *, reverse: bool, batch_first: bool) -> _Ran:
    """Run direction `number` of a layer over x [steps, batch, depth], or batch first."""
    ends = node.input(_LENGTHS) is not None
    layer = _layer(node, kind, number, reverse=reverse and not ends)
    given, emit = node.inputs[0], node.emit
    if given is None:
        raise RefusedError("its input is left out")
    dtype = dtype_of(given)
    x = _cast(node, given if batch_first else _swap(node, given), "float32")
    lengths = _lengths_of(node, x)
    if lengths is not None and reverse:
        x = lengths.turn(x)
    states = [
        _first_state(node, index, number, batch_first=batch_first)
        for index in range(_FIRST_STATES, _FIRST_STATES + (2 if kind == "LSTM" else 1))
    ]
    if all(state is None for state in states):
        states = []
    batch, steps, _ = (int(extent) for extent in x.ty.shape)
    zero = make_constant(np.zeros((batch, layer.units), np.float32))
    for state in states:
        shape = (
            [batch, layer.units] if state is None else [int(extent) for extent in state.ty.shape]
        )
        if shape != [batch, layer.units]:
            raise RefusedError(f"a first state is {shape}, expected {[batch, layer.units]}")
    firsts = [zero if s is None else _cast(node, s, "float32") for s in states]
    hold = lengths.hold if lengths is not None and layer.keeps_cell else None
    made = _cast(node, call_recurrent(Emitter(node.bb), layer, x, firsts, hold), dtype)

    def row(at: int) -> relax.Expr:
        part = emit(relax.op.strided_slice(made, [1], [at], [at + 1]))
        return emit(relax.op.reshape(part, [batch, layer.units]))

    cell = row(steps) if layer.keeps_cell else None
    if layer.keeps_cell:
        made = emit(relax.op.strided_slice(made, [1], [0], [steps]))
    if lengths is None:
        last = row(0 if reverse else steps - 1)
    else:
        last = lengths.last(made, firsts[0] if firsts else zero)
        made = lengths.cut(made)
        made = lengths.turn(made) if reverse else made
    # Of a cell that nobody asks for the state has the shape.
    return _swap(node, made), (last, last if cell is None else cell)[: 2 if kind == "LSTM" else 1]


def _lengths_of(node: OnnxNode, x: relax.Expr) -> Lengths | None:
    given = node.input(_LENGTHS)
    if given is None:
        return None
    batch, steps, _ = (int(extent) for extent in x.ty.shape)
    whole = node.emit(relax.op.astype(given, "int32"))
    shaped = node.emit(relax.op.reshape(whole, [batch, 1]))
    return Lengths(node=node, expr=shaped, batch=batch, steps=steps)


def _layer(node: OnnxNode, kind: str, number: int, *, reverse: bool) -> RecurrentLayer:
    gates, units, fold = GATES[kind], node.shape(2)[-1], Emitter(node.bb)

    def value(index: int, *shape: int) -> relax.Expr | None:
        """Return an input of this direction in float32; None where it is left out."""
        given = node.input(index)
        if given is None:
            return None
        part = relax.op.strided_slice(given, [0], [number], [number + 1])
        return fold(relax.op.reshape(relax.op.astype(part, "float32"), shape))

    weights, recurrence = value(1, gates, units, node.shape(1)[-1]), value(2, gates, units, units)
    if weights is None or recurrence is None:
        raise RefusedError("its weights are left out")
    bias, extra = value(3, 2 * gates, units), value(7, 3, units) if kind == "LSTM" else None
    after = kind == "GRU" and bool(node.attrs.get("linear_before_reset", 0))

    def rows(begin: int, end: int) -> relax.Expr:
        return relax.op.strided_slice(bias, [0], [begin], [end])

    if bias is not None and after:  # the bias of the state is reset, too
        extra = fold(rows(5, 6))
        bias = relax.op.concat([rows(0, 2) + rows(3, 5), rows(2, 3)], axis=0)
    elif bias is not None:
        bias = rows(0, gates) + rows(gates, 2 * gates)
    names, clip = _activation_names(node, kind, number), float(node.attrs.get("clip", 0.0))
    keeps_cell = kind == "LSTM" and node.outputs > 2
    if keeps_cell and node.input(_LENGTHS) is not None and (clip or names[0] != "sigmoid"):
        raise RefusedError(
            "its sequences end early, and its gates can hold no cell behind their ends: leave out "
            "the lengths, or the last cell"
        )
    return RecurrentLayer(
        cell=Cell(kind=kind, activations=tuple(names), clip=clip, clip_cell=0.0),
        weights=weights,
        recurrence=recurrence,
        bias=None if bias is None else fold(bias),
        extra=extra,
        reverse=reverse,
        reset_before=kind == "GRU" and not after,
        keeps_cell=keeps_cell,
    )


def _cast(node: OnnxNode, x: relax.Expr, dtype: str) -> relax.Expr:
    return x if dtype_of(x) == dtype else node.emit(relax.op.astype(x, dtype))


def _swap(node: OnnxNode, x: relax.Expr) -> relax.Expr:
    """Return [a, b, c] as [b, a, c]; where one of them is one, nothing moves."""
    first, second, depth = (int(extent) for extent in x.ty.shape)
    if 1 in (first, second):
        return node.emit(relax.op.reshape(x, [second, first, depth]))
    return node.emit(relax.op.permute_dims(x, [1, 0, 2]))


def _first_state(
    node: OnnxNode, index: int, number: int, *, batch_first: bool
) -> relax.Expr | None:
    expr = node.input(index)
    if expr is None:
        return None
    value = constant_value(expr)
    if value is not None and not value.any():
        return None
    axis = 1 if batch_first else 0
    part = node.emit(relax.op.strided_slice(expr, [axis], [number], [number + 1]))
    return node.emit(relax.op.squeeze(part, [axis]))


_SHUT = 1e4
"""Sigmoid is 1 or 0 this far out, and halves hold it."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How many steps each sequence of a batch has, as int32 [batch, 1]."""

    node: OnnxNode
    expr: relax.Expr
    batch: int
    steps: int

    def turn(self, x: relax.Expr) -> relax.Expr:
        """Return x [batch, steps, n] with each sequence's steps turned round, others as are."""
        ends = self.node.emit(relax.op.reshape(self.expr, [self.batch]))
        return self.node.emit(relax.op.reverse_sequence(x, ends, 1, 0))

    def cut(self, y: relax.Expr) -> relax.Expr:
        """Return y [batch, steps, n] with zeros behind the end of each sequence."""
        emit = self.node.emit
        alive = emit(relax.op.reshape(self._alive(), [self.batch, self.steps, 1]))
        return emit(relax.op.where(alive, y, make_constant(np.float32(0))))

    def last(self, y: relax.Expr, first: relax.Expr) -> relax.Expr:
        """Return each sequence's row [batch, n] of the last step; `first` where it has none."""
        emit = self.node.emit
        zero, one = (make_constant(np.int32(v)) for v in (0, 1))
        at = emit(relax.op.maximum(emit(relax.op.subtract(self.expr, one)), zero))
        flat = emit(relax.op.gather_nd(y, emit(relax.op.astype(at, "int64")), batch_dims=1))
        return emit(relax.op.where(emit(relax.op.greater(self.expr, zero)), flat, first))

    def hold(self, gates: int, width: int) -> relax.Expr:
        """Return what is added to LSTM gates [batch, steps, gates * width] for cells to stay."""
        emit = self.node.emit
        shut = np.zeros((gates, width), np.float32)
        shut[0], shut[2] = -_SHUT, _SHUT  # input, output, forget, new
        ended = emit(relax.op.logical_not(self._alive()))
        ended = emit(relax.op.reshape(ended, [self.batch, self.steps, 1]))
        row = make_constant(shut.reshape(1, 1, gates * width))
        return emit(relax.op.where(ended, row, make_constant(np.float32(0))))

    def _alive(self) -> relax.Expr:
        """Return whether a sequence has a step: [batch, steps]."""
        times = np.arange(self.steps, dtype=np.int32).reshape(1, self.steps)
        return self.node.emit(relax.op.greater(self.expr, make_constant(times)))


_ACTIVATIONS = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
_KNOWN = ("relu", "sigmoid", "softplus", "tanh")


def _activation_names(node: OnnxNode, kind: str, number: int) -> list[str]:
    """Return the activations of one direction, in lower case."""
    named = [n.decode() if isinstance(n, bytes) else n for n in node.attrs.get("activations", [])]
    count = len(_ACTIVATIONS[kind])
    names = named[number * count : (number + 1) * count] or list(_ACTIVATIONS[kind])
    unknown = [n for n in names if n.lower() not in _KNOWN]
    if unknown:
        raise RefusedError(f"activation {unknown[0]} is not one of {', '.join(_KNOWN)}")
    return [name.lower() for name in names]


_BACKWARD = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}


def _converter(kind: str) -> Callable[[OnnxNode], relax.Expr]:
    def convert(node: OnnxNode) -> relax.Expr:
        if node.attrs.get("input_forget", 0):
            raise RefusedError("input_forget is not supported")
        batch_first = bool(node.attrs.get("layout", 0))
        runs = [
            _run(node, kind, number, reverse=reverse, batch_first=batch_first)
            for number, reverse in enumerate(_BACKWARD[node.text("direction", "forward")])
        ]
        # Y: [steps, directions, batch, hidden]
        results = [relax.op.stack([sequence for sequence, _ in runs], axis=1)]
        for lasts in zip(*(last for _, last in runs), strict=True):
            results.append(relax.op.stack(list(lasts), axis=0))
        if batch_first:
            results[0] = relax.op.permute_dims(results[0], [2, 0, 1, 3])
            results[1:] = [relax.op.permute_dims(r, [1, 0, 2]) for r in results[1:]]
        return relax.Tuple(results)

    return convert


RNN_OPS: dict[str, Callable[[OnnxNode], relax.Expr]] = {kind: _converter(kind) for kind in GATES}
