"""Recurrent operators of TFLite; states are zero when a run begins.

All steps of an RNN or LSTM are one operator; an LSTM with peepholes, projections or norms is
written out over its steps.  LiteRT keeps the states of RNN, LSTM and SVDF from run to run.  A
compiled model does not: each run computes what LiteRT does after a reset, and a Decision says so.

Source: TFLite operator reference; the kernels of LiteRT for what it leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from tvm import relax

from adrenoc.base.errors import RefusedError
from adrenoc.importers.relax.own import RecurrentLayer, call_recurrent
from adrenoc.importers.relax.recurrent import Cell
from adrenoc.importers.relax.values import make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import Result, TfliteNode

_NAMES = {0: "linear", 1: "relu", 2: "relu_n1_to_1", 3: "relu6", 4: "tanh", 6: "sigmoid"}
"""TFLite's activations, as the operator calls them."""
_GATE_ORDER = (0, 3, 1, 2)
"""TFLite's input, forget, cell and output in the order of the operator."""


def _run_rnn(node: TfliteNode, x: relax.Expr, first: int, *, reverse: bool) -> relax.Expr:
    """Return [batch, step, units] of x [batch, step, depth]; weights begin at input `first`."""
    return _call(node, x, "RNN", [[first + number] for number in range(3)], reverse=reverse)


def _run_lstm(
    node: TfliteNode, x: relax.Expr, gates: Sequence[int], others: Sequence[int], *, reverse: bool
) -> relax.Expr | None:
    """Return the same of an LSTM: weights of inputs, of the state and biases begin at inputs
    `gates`.

    None where something lies at the inputs `others` (peepholes, projections, norms), or a gate
    lacks weights: the layer is written out then, step by step."""
    parts = [[first + number for number in _GATE_ORDER] for first in gates]
    if any(map(node.has, others)) or not all(node.has(i) for part in parts for i in part):
        return None
    return _call(node, x, "LSTM", parts, reverse=reverse)


def _call(
    node: TfliteNode, x: relax.Expr, kind: str, parts: Sequence[Sequence[int]], *, reverse: bool
) -> relax.Expr:
    """Return the call; `parts` are inputs: weights, those of the state, biases, one a gate."""
    own = _NAMES[_activation_number(node)]
    weights, recurrence, bias = (
        node.emit(relax.op.stack([node.real(number).astype("float32") for number in part], axis=0))
        for part in parts
    )
    cell = Cell(
        kind=kind,
        activations=("sigmoid", own, own) if kind == "LSTM" else (own,),
        clip=0.0,
        clip_cell=float(node.option("CellClip", 0.0)) if kind == "LSTM" else 0.0,
    )
    layer = RecurrentLayer(
        cell=cell,
        weights=weights,
        recurrence=recurrence,
        bias=bias,
        extra=None,
        reverse=reverse,
        reset_before=False,
        keeps_cell=False,
    )
    return call_recurrent(node.emit, layer, x, [])


Expr: TypeAlias = "relax.Expr"

_ACTIVATIONS: dict[int, Callable[[Expr], Expr]] = {
    0: lambda x: x,
    1: relax.op.nn.relu,
    2: lambda x: relax.op.clip(x, -1.0, 1.0),
    3: lambda x: relax.op.clip(x, 0.0, 6.0),
    4: relax.op.tanh,
    6: relax.op.sigmoid,
}


def _activation_number(node: TfliteNode) -> int:
    kind = int(node.option("FusedActivationFunction", 0))
    if kind not in _ACTIVATIONS:
        known = ", ".join(map(str, _ACTIVATIONS))
        raise RefusedError(f"the activation number {kind}, expected one of {known}")
    return kind


def _activation(node: TfliteNode) -> Callable[[Expr], Expr]:
    return _ACTIVATIONS[_activation_number(node)]


def _forgets(node: TfliteNode) -> None:
    key = ("a state that is zero when a run begins", "runs of a bundle do not depend on each other")
    node.emit.decisions.setdefault(key, []).append(node.results[0].name)


def _product(node: TfliteNode, x: Expr, number: int) -> Expr:
    """Return x times the transpose of weights [units, depth]."""
    weights = relax.op.permute_dims(node.real(number), [1, 0])
    return node.emit(relax.op.matmul(x, weights))


def _zeros(*shape: int) -> Expr:
    return make_constant(np.zeros(shape, np.float32))


def _steps(node: TfliteNode, x: Expr, *, time_major: bool) -> list[Expr]:
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


def _rnn(node: TfliteNode) -> Result:
    """Run one step."""
    _forgets(node)
    batch, depth = node.shape()
    x = node.emit(relax.op.reshape(node.real(), [batch, 1, depth]))
    made = _run_rnn(node, x, 1, reverse=False)
    return relax.op.reshape(made, [batch, node.shape(1)[0]])


def _rnn_sequence(node: TfliteNode) -> Result:
    _forgets(node)
    return _rnn_way(node, 1)


def _rnn_way(node: TfliteNode, first: int, *, reverse: bool = False) -> Expr:
    """Run one direction of an RNN, whose weights begin at input `first`, over all steps."""
    major, x = bool(node.option("TimeMajor", False)), node.real()
    made = _run_rnn(node, _swap(node, x) if major else x, first, reverse=reverse)
    return _swap(node, made) if major else made


def _swap(node: TfliteNode, x: Expr) -> Expr:
    """Return [step, batch, depth] as [batch, step, depth], and back."""
    return node.emit(relax.op.permute_dims(x, [1, 0, 2]))


def _both_ways(node: TfliteNode, ahead: Expr, back: Expr) -> list[Result]:
    if node.option("MergeOutputs", False):
        return [relax.op.concat([ahead, back], axis=-1)]
    return [ahead, back]


def _rnn_both_ways(node: TfliteNode) -> list[Result]:
    _forgets(node)
    if any(node.has(i) for i in range(9, len(node.inputs))):
        raise RefusedError("auxiliary inputs, expected none")
    ahead, back = _rnn_way(node, 1), _rnn_way(node, 5, reverse=True)
    return _both_ways(node, ahead, back)


_STATE, _PEEPHOLE, _BIAS, _PROJECTION = 4, 8, 11, 15
"""How far behind the first weights of an LSTM others lie among its inputs; each has input, forget,
cell, output."""
_NORM = 20
"""Where those of norms begin, of a layer in one direction."""
_GATES = ("input", "forget", "cell", "output")
_PEEPHOLES = {"input": 0, "forget": 1, "output": 2}


def _lstm_way(node: TfliteNode, first: int, *, reverse: bool = False) -> Expr:
    """Run one direction of an LSTM, whose weights begin at input `first`, over all steps."""
    others = [first + at for at in (*range(_PEEPHOLE, _BIAS), _PROJECTION, _PROJECTION + 1)]
    others += range(_NORM, _NORM + 4) if _has_norms(node) else []
    major, x = bool(node.option("TimeMajor", False)), node.real()
    gates = first, first + _STATE, first + _BIAS
    made = _run_lstm(node, _swap(node, x) if major else x, gates, others, reverse=reverse)
    if made is not None:
        return _swap(node, made) if major else made
    steps = _steps(node, x, time_major=major)[:: -1 if reverse else 1]
    return _stack(_lstm_steps(node, steps, first)[:: -1 if reverse else 1], time_major=major)


def _has_norms(node: TfliteNode) -> bool:
    is_one_way = not node.operator.kind.startswith("BIDIRECTIONAL")
    return is_one_way and len(node.inputs) > _NORM


def _lstm_steps(node: TfliteNode, steps: Sequence[Expr], first: int) -> list[Expr]:
    units = node.shape(first + 1)[0]
    width = node.shape(first + _STATE + 1)[1]
    batch = int(steps[0].ty.shape[0])
    output, cell, results = _zeros(batch, width), _zeros(batch, units), []
    for x in steps:
        output, cell = map(node.emit, _lstm_step(node, x, output, cell, first))
        results.append(output)
    return results


def _lstm_step(
    node: TfliteNode, x: Expr, output: Expr, cell: Expr, first: int
) -> tuple[Expr, Expr]:
    act, projection = _activation(node), first + _PROJECTION

    def gate(name: str, state: Expr | None) -> Expr:
        number = _GATES.index(name)
        total = _product(node, x, first + number)
        total += _product(node, output, first + _STATE + number)
        if state is not None and node.has(first + _PEEPHOLE + _PEEPHOLES[name]):
            weights = node.real(first + _PEEPHOLE + _PEEPHOLES[name])
            total += state * weights
        if _has_norms(node) and node.has(_NORM + number):
            total = _normalise(node, total, _NORM + number)
        return total + node.real(first + _BIAS + number)

    forget = relax.op.sigmoid(gate("forget", cell))
    new = act(gate("cell", None))
    if node.has(first):
        take = relax.op.sigmoid(gate("input", cell))
    else:
        take = make_constant(np.float32(1)) - forget
    cell = _clip(node, forget * cell + take * new, "CellClip")
    output = relax.op.sigmoid(gate("output", cell)) * act(cell)
    if node.has(projection):
        output = _product(node, output, projection)
        if node.has(projection + 1):
            output += node.real(projection + 1)
        output = _clip(node, output, "ProjClip")
    return output, cell


def _clip(node: TfliteNode, x: Expr, option: str) -> Expr:
    bound = float(node.option(option, 0.0))
    return relax.op.clip(x, -bound, bound) if bound > 0 else x


def _normalise(node: TfliteNode, x: Expr, number: int) -> Expr:
    """Normalise to mean zero and deviation one over the units, times a factor a unit."""
    mean = relax.op.mean(x, [-1], True)
    centred = x - mean
    variance = relax.op.mean(centred * centred, [-1], True)
    inverse = relax.op.rsqrt(variance + make_constant(np.float32(1e-8)))
    return centred * inverse * node.real(number)


def _float_lstm(node: TfliteNode) -> None:
    _forgets(node)
    if node.info().is_quantised:
        raise RefusedError(f"an LSTM on {node.info().dtype}, expected float32")


def _lstm(node: TfliteNode) -> list[Result] | Result:
    _float_lstm(node)
    if int(node.option("KernelType", 0)) == 1 or len(node.inputs) == 5:
        raise RefusedError("one matrix for all gates, expected a matrix for each of them")
    return _lstm_steps(node, [node.real()], 1)[0]


def _lstm_sequence(node: TfliteNode) -> Result:
    _float_lstm(node)
    return _lstm_way(node, 1)


def _lstm_both_ways(node: TfliteNode) -> list[Result]:
    _float_lstm(node)
    if any(node.has(i) for i in range(39, len(node.inputs))):
        raise RefusedError("auxiliary inputs, expected none")
    return _both_ways(node, _lstm_way(node, 1), _lstm_way(node, 18, reverse=True))


def _svdf(node: TfliteNode) -> Result:
    """Keep the last column of the time weights: of a memory of zeros the newest place counts."""
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
