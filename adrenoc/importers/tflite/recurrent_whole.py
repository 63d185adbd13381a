"""Sequences of TFLite's RNN and LSTM with constant weights: all steps as one operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from adrenoc.importers.relax.recurrent_call import MOST_UNITS, Layer, call_recurrent
from adrenoc.importers.relax.recurrent_cells import Cell
from adrenoc.importers.relax.values import constant_value
from adrenoc.importers.tflite.node import Node

_NAMES = {0: "linear", 1: "relu", 4: "tanh", 6: "sigmoid"}
"""Those of TFLite's activations that the operator has."""
_GATES = (0, 3, 1, 2)
"""TFLite's input, forget, cell and output in the order of the operator."""


def run_rnn(node: Node, x: relax.Expr, first: int, *, reverse: bool) -> relax.Expr | None:
    """[batch, step, units] of x [batch, step, depth]; weights begin at input `first`.

    None where the layer has to be written out, step by step.
    """
    values = _values(node, range(first, first + 3))
    if values is None:
        return None
    weights, recurrence, bias = (value[np.newaxis] for value in values)
    return _call(node, x, "RNN", (weights, recurrence, bias), reverse=reverse, times=1)


def run_lstm(
    node: Node, x: relax.Expr, gates: tuple[int, int, int], others: Sequence[int], *, reverse: bool
) -> relax.Expr | None:
    """Return the same of an LSTM: weights of inputs, of the state and biases begin at inputs
    `gates`.

    Nothing may lie at the inputs `others`: peepholes, projections, norms.
    """
    if any(node.has(number) for number in others):
        return None
    found = [_values(node, [first + number for number in _GATES]) for first in gates]
    if any(values is None for values in found):
        return None
    stacked = [np.stack(values) for values in found if values is not None]
    return _call(node, x, "LSTM", (stacked[0], stacked[1], stacked[2]), reverse=reverse, times=2)


def _call(
    node: Node,
    x: relax.Expr,
    kind: str,
    weights: tuple[np.ndarray, np.ndarray, np.ndarray],
    *,
    reverse: bool,
    times: int,
) -> relax.Expr | None:
    """Return the call, whose activation is the node's own, so many times after an LSTM's
    sigmoid."""
    own = _NAMES.get(int(node.option("FusedActivationFunction", 0)))
    by_input, by_state, bias = weights
    units = by_state.shape[1]
    if own is None or by_state.shape[2] != units or units > MOST_UNITS:
        return None
    names = ("sigmoid", *[own] * times) if kind == "LSTM" else (own,)
    cell = Cell(
        kind=kind,
        activations=names,
        clip=0.0,
        clip_cell=float(node.option("CellClip", 0.0)) if kind == "LSTM" else 0.0,
    )
    layer = Layer(
        cell=cell,
        weights=by_input,
        recurrence=by_state,
        bias=bias,
        extra=None,
        reverse=reverse,
        reset_before=False,
        keeps_cell=False,
    )
    return call_recurrent(node.emit, layer, x, [])


def _values(node: Node, numbers: Sequence[int]) -> list[np.ndarray] | None:
    """Constant inputs in float32; None where one is left out or computed."""
    if not all(node.has(number) for number in numbers):
        return None
    found = [constant_value(node.real(number)) for number in numbers]
    known = [value.astype(np.float32) for value in found if value is not None]
    return known if len(known) == len(found) else None
