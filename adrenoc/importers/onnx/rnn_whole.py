"""RNN, GRU and LSTM of ONNX with constant weights: all steps as one operator."""

from __future__ import annotations

import numpy as np
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.onnx.recurrent_steps import (
    CONSTANT_INPUTS,
    LENGTHS,
    WHOLE_DTYPES,
    can_hold,
    explain_steps,
)
from adrenoc.importers.onnx.rnn_lengths import Lengths
from adrenoc.importers.relax.recurrent_call import Layer, call_recurrent
from adrenoc.importers.relax.recurrent_cells import GATES, Cell
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant

_FIRST_STATES = 5

Ran = tuple[relax.Expr, tuple[relax.Expr, ...]]
"""The states of all steps [steps, batch, units], and the last ones [batch, units]."""


def suits_whole(node: Node) -> bool:
    """Return whether a layer can be one operator; else it is written out, step by step."""
    given = [node.input(index) for index in CONSTANT_INPUTS]
    reason = explain_steps(
        are_constant=all(expr is None or constant_value(expr) is not None for expr in given),
        has_lengths=node.input(LENGTHS) is not None,
        can_hold=can_hold(node.attrs, keeps_cell=node.outputs > 2),
        is_float=dtype_of(node.inputs[0]) in WHOLE_DTYPES,
        units=node.shape(2)[-1],
    )
    return reason is None


def run_whole(
    node: Node, kind: str, names: list[str], number: int, *, reverse: bool, batch_first: bool
) -> Ran:
    """Direction `number` of a layer, with activations of these names, over x [steps, batch, depth]
    or, where that is said, [batch, steps, depth]."""
    ends = node.input(LENGTHS) is not None
    layer = _layer(node, kind, names, number, reverse=reverse and not ends)
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
    _check_firsts(states, batch, layer.units)
    firsts = [zero if s is None else _cast(node, s, "float32") for s in states]
    hold = lengths.hold if lengths is not None and layer.keeps_cell else None
    made = _cast(node, call_recurrent(emit, layer, x, firsts, hold), dtype)

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


def _check_firsts(states: list[relax.Expr | None], batch: int, units: int) -> None:
    for state in states:
        shape = [batch, units] if state is None else [int(extent) for extent in state.ty.shape]
        if shape != [batch, units]:
            raise RefusedError(f"a first state is {shape}, expected {[batch, units]}")


def _lengths_of(node: Node, x: relax.Expr) -> Lengths | None:
    given = node.input(LENGTHS)
    if given is None:
        return None
    return Lengths.of(node, given, *[int(extent) for extent in x.ty.shape][:2])


def _layer(node: Node, kind: str, names: list[str], number: int, *, reverse: bool) -> Layer:
    gates, units = GATES[kind], node.shape(2)[-1]

    def value(index: int) -> np.ndarray | None:
        found = node.constant(index)
        return None if found is None else found[number].astype(np.float32)

    weights, recurrence, bias, peepholes = (value(index) for index in CONSTANT_INPUTS)
    if weights is None or recurrence is None:
        raise RefusedError("its weights are left out")
    extra = None if peepholes is None or kind != "LSTM" else peepholes.reshape(3, units)
    after = kind == "GRU" and bool(node.attrs.get("linear_before_reset", 0))
    if bias is not None:
        own, of_state = bias.reshape(2, gates, units)
        bias = own + of_state
        if after:  # the bias of the state is reset, too
            bias[2], extra = own[2], of_state[2:]
    return Layer(
        cell=Cell(
            kind=kind,
            activations=tuple(names),
            clip=float(node.attrs.get("clip", 0.0)),
            clip_cell=0.0,
        ),
        weights=weights.reshape(gates, units, -1),
        recurrence=recurrence.reshape(gates, units, units),
        bias=bias,
        extra=extra,
        reverse=reverse,
        reset_before=kind == "GRU" and not after,
        keeps_cell=kind == "LSTM" and node.outputs > 2,
    )


def _cast(node: Node, x: relax.Expr, dtype: str) -> relax.Expr:
    return x if dtype_of(x) == dtype else node.emit(relax.op.astype(x, dtype))


def _swap(node: Node, x: relax.Expr) -> relax.Expr:
    """[a, b, c] as [b, a, c]; where one of them is one, nothing moves."""
    first, second, depth = (int(extent) for extent in x.ty.shape)
    if 1 in (first, second):
        return node.emit(relax.op.reshape(x, [second, first, depth]))
    return node.emit(relax.op.permute_dims(x, [1, 0, 2]))


def _first_state(node: Node, index: int, number: int, *, batch_first: bool) -> relax.Expr | None:
    expr = node.input(index)
    if expr is None:
        return None
    value = constant_value(expr)
    if value is not None and not value.any():
        return None
    axis = 1 if batch_first else 0
    part = node.emit(relax.op.strided_slice(expr, [axis], [number], [number + 1]))
    return node.emit(relax.op.squeeze(part, [axis]))
