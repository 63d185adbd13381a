"""Recurrent operators of TFLite; states are zero when a run begins.

Sequences of an RNN or LSTM with constant weights are one operator for all steps, others are written
out over their steps.  LiteRT keeps the states of RNN, LSTM and SVDF from run to run.  A compiled
model does not: each run computes what LiteRT does after a reset, and a Decision says so.

Source: TFLite operator reference; the kernels of LiteRT for what it leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.relax.own import MOST_UNITS, Layer, call_recurrent
from adrenoc.importers.relax.recurrent import Cell
from adrenoc.importers.relax.values import constant_value, make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import Node, Result

_NAMES = {0: "linear", 1: "relu", 4: "tanh", 6: "sigmoid"}
"""Those of TFLite's activations that the operator has."""
_GATE_ORDER = (0, 3, 1, 2)
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
    found = [_values(node, [first + number for number in _GATE_ORDER]) for first in gates]
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


Expr: TypeAlias = "relax.Expr"
Whole: TypeAlias = "Callable[[relax.Expr, bool], relax.Expr | None]"
Written: TypeAlias = "Callable[[Sequence[relax.Expr]], list[relax.Expr]]"

_ACTIVATIONS: dict[int, Callable[[Expr], Expr]] = {
    0: lambda x: x,
    1: relax.op.nn.relu,
    2: lambda x: relax.op.clip(x, -1.0, 1.0),
    3: lambda x: relax.op.clip(x, 0.0, 6.0),
    4: relax.op.tanh,
    6: relax.op.sigmoid,
}


def _activation(node: Node) -> Callable[[Expr], Expr]:
    kind = int(node.option("FusedActivationFunction", 0))
    if kind not in _ACTIVATIONS:
        known = ", ".join(map(str, _ACTIVATIONS))
        raise RefusedError(f"the activation number {kind}, expected one of {known}")
    return _ACTIVATIONS[kind]


def _forgets(node: Node) -> None:
    key = ("a state that is zero when a run begins", "runs of a bundle do not depend on each other")
    node.emit.decisions.setdefault(key, []).append(node.results[0].name)


def _product(node: Node, x: Expr, number: int) -> Expr:
    """x times the transpose of weights [units, depth]."""
    weights = relax.op.permute_dims(node.real(number), [1, 0])
    return node.emit(relax.op.matmul(x, weights))


def _zeros(*shape: int) -> Expr:
    return make_constant(np.zeros(shape, np.float32))


def _steps(node: Node, x: Expr, *, time_major: bool) -> list[Expr]:
    """Return the data [batch, depth] of each step."""
    axis = 0 if time_major else 1
    shape = node.shape()
    rest = [d for a, d in enumerate(shape) if a != axis]
    parts = []
    for step in range(shape[axis]):
        part = relax.op.strided_slice(x, [axis], [step], [step + 1])
        parts.append(node.emit(relax.op.reshape(part, rest)))
    return parts


def _stack(parts: Sequence[Expr], *, time_major: bool) -> Expr:
    axis = 0 if time_major else 1
    rows = [relax.op.expand_dims(p, axis) for p in parts]
    return relax.op.concat(rows, axis=axis) if len(rows) > 1 else rows[0]


def _rnn_steps(node: Node, steps: Sequence[Expr], first: int) -> list[Expr]:
    """Weights, recurrent weights and bias begin at input `first`."""
    act = _activation(node)
    batch = int(steps[0].ty.shape[0])
    state, results = _zeros(batch, node.shape(first)[0]), []
    for x in steps:
        total = _product(node, x, first) + _product(node, state, first + 1)
        state = node.emit(act(total + node.real(first + 2)))
        results.append(state)
    return results


def _rnn(node: Node) -> Result:
    _forgets(node)
    return _rnn_steps(node, [node.real()], 1)[0]


def _rnn_sequence(node: Node) -> Result:
    _forgets(node)
    return _rnn_way(node, 1)


def _rnn_way(node: Node, first: int, *, reverse: bool = False) -> Expr:
    """One direction of an RNN, whose weights begin at input `first`, over all steps."""

    def whole(x: Expr, back: bool) -> Expr | None:
        return run_rnn(node, x, first, reverse=back)

    return _way(node, whole, lambda steps: _rnn_steps(node, steps, first), reverse=reverse)


def _way(node: Node, whole: Whole, written: Written, *, reverse: bool = False) -> Expr:
    """One direction over all steps: whole, or written out."""
    major, x = bool(node.option("TimeMajor", False)), node.real()
    made = whole(_swap(node, x) if major else x, reverse)
    if made is not None:
        return _swap(node, made) if major else made
    steps = _steps(node, x, time_major=major)
    made_steps = written(steps[::-1])[::-1] if reverse else written(steps)
    return _stack(made_steps, time_major=major)


def _swap(node: Node, x: Expr) -> Expr:
    """[step, batch, depth] as [batch, step, depth], and back."""
    return node.emit(relax.op.permute_dims(x, [1, 0, 2]))


def _both_ways(node: Node, ahead: Expr, back: Expr) -> list[Result]:
    if node.option("MergeOutputs", False):
        return [relax.op.concat([ahead, back], axis=-1)]
    return [ahead, back]


def _rnn_both_ways(node: Node) -> list[Result]:
    _forgets(node)
    if any(node.has(i) for i in range(9, len(node.inputs))):
        raise RefusedError("auxiliary inputs, expected none")
    ahead, back = _rnn_way(node, 1), _rnn_way(node, 5, reverse=True)
    return _both_ways(node, ahead, back)


@dataclass(frozen=True, kw_only=True)
class _LstmInputs:
    """Where the parts of an LSTM lie among the inputs; each has input, forget, cell, output."""

    by_input: int
    by_state: int
    peephole: int
    bias: int
    projection: int
    norm: int | None


_GATES = ("input", "forget", "cell", "output")
_PEEPHOLES = {"input": 0, "forget": 1, "output": 2}


def _lstm_way(node: Node, at: _LstmInputs, *, reverse: bool = False) -> Expr:
    """One direction of an LSTM over all steps."""
    others = [*range(at.peephole, at.peephole + 3), at.projection, at.projection + 1]
    others += [] if at.norm is None else range(at.norm, at.norm + 4)

    def whole(x: Expr, back: bool) -> Expr | None:
        return run_lstm(node, x, (at.by_input, at.by_state, at.bias), others, reverse=back)

    return _way(node, whole, lambda steps: _lstm_steps(node, steps, at), reverse=reverse)


def _lstm_steps(node: Node, steps: Sequence[Expr], at: _LstmInputs) -> list[Expr]:
    units = node.shape(at.by_input + 1)[0]
    width = node.shape(at.by_state + 1)[1]
    batch = int(steps[0].ty.shape[0])
    output, cell, results = _zeros(batch, width), _zeros(batch, units), []
    for x in steps:
        output, cell = map(node.emit, _lstm_step(node, x, output, cell, at))
        results.append(output)
    return results


def _lstm_step(node: Node, x: Expr, output: Expr, cell: Expr, at: _LstmInputs) -> tuple[Expr, Expr]:
    act = _activation(node)

    def gate(name: str, state: Expr | None) -> Expr:
        number = _GATES.index(name)
        total = _product(node, x, at.by_input + number)
        total += _product(node, output, at.by_state + number)
        if state is not None and node.has(at.peephole + _PEEPHOLES[name]):
            weights = node.real(at.peephole + _PEEPHOLES[name])
            total += state * weights
        if at.norm is not None and node.has(at.norm + number):
            total = _normalise(node, total, at.norm + number)
        return total + node.real(at.bias + number)

    forget = relax.op.sigmoid(gate("forget", cell))
    new = act(gate("cell", None))
    if node.has(at.by_input):
        take = relax.op.sigmoid(gate("input", cell))
    else:
        take = make_constant(np.float32(1)) - forget
    cell = _clip(node, forget * cell + take * new, "CellClip")
    output = relax.op.sigmoid(gate("output", cell)) * act(cell)
    if node.has(at.projection):
        output = _product(node, output, at.projection)
        if node.has(at.projection + 1):
            output += node.real(at.projection + 1)
        output = _clip(node, output, "ProjClip")
    return output, cell


def _clip(node: Node, x: Expr, option: str) -> Expr:
    bound = float(node.option(option, 0.0))
    return relax.op.clip(x, -bound, bound) if bound > 0 else x


def _normalise(node: Node, x: Expr, number: int) -> Expr:
    """To mean zero and deviation one over the units, times a factor a unit."""
    mean = relax.op.mean(x, [-1], True)
    centred = x - mean
    variance = relax.op.mean(centred * centred, [-1], True)
    inverse = relax.op.rsqrt(variance + make_constant(np.float32(1e-8)))
    return centred * inverse * node.real(number)


def _float_lstm(node: Node) -> None:
    _forgets(node)
    if node.info().is_quantised:
        raise RefusedError(f"an LSTM on {node.info().dtype}, expected float32")


def _lstm(node: Node) -> list[Result] | Result:
    _float_lstm(node)
    if int(node.option("KernelType", 0)) == 1 or len(node.inputs) == 5:
        raise RefusedError("one matrix for all gates, expected a matrix for each of them")
    norm = 20 if len(node.inputs) > 20 else None
    at = _LstmInputs(by_input=1, by_state=5, peephole=9, bias=12, projection=16, norm=norm)
    return _lstm_steps(node, [node.real()], at)[0]


def _lstm_sequence(node: Node) -> Result:
    _float_lstm(node)
    norm = 20 if len(node.inputs) > 20 else None
    at = _LstmInputs(by_input=1, by_state=5, peephole=9, bias=12, projection=16, norm=norm)
    return _lstm_way(node, at)


def _lstm_both_ways(node: Node) -> list[Result]:
    _float_lstm(node)
    if any(node.has(i) for i in range(39, len(node.inputs))):
        raise RefusedError("auxiliary inputs, expected none")

    def run(first: int) -> Expr:
        at = _LstmInputs(
            by_input=first,
            by_state=first + 4,
            peephole=first + 8,
            bias=first + 11,
            projection=first + 15,
            norm=None,
        )
        return _lstm_way(node, at, reverse=first > 1)

    return _both_ways(node, run(1), run(18))


def _svdf(node: Node) -> Result:
    """Of a memory of zeros only the newest place counts: the last column of the time weights."""
    _forgets(node)
    if node.info().is_quantised:
        raise RefusedError(f"SVDF on {node.info().dtype}, expected float32")
    rank = int(node.option("Rank", 1))
    filters, memory = node.shape(2)
    newest = _product(node, node.real(0), 1)
    last = relax.op.strided_slice(node.real(2), [1], [memory - 1], [memory])
    weighted = newest * relax.op.reshape(last, [filters])
    grouped = [int(newest.ty.shape[0]), filters // rank, rank]
    total = relax.op.sum(relax.op.reshape(node.emit(weighted), grouped), [-1])
    if node.has(3):
        total = total + node.real(3)
    return _activation(node)(total)


RECURRENT_OPS: dict[str, Convert] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": _lstm_both_ways,
    "BIDIRECTIONAL_SEQUENCE_RNN": _rnn_both_ways,
    "LSTM": _lstm,
    "RNN": _rnn,
    "SVDF": _svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm_sequence,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn_sequence,
}
