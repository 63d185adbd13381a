"""RNN, GRU and LSTM.

With constant weights all steps are one operator (`rnn_whole.py`).  Others are written out over
their steps: the projections of all inputs are one product; each step then multiplies the state,
which is small.

Source: ONNX operator reference, RNN-14, GRU-14, LSTM-14.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.onnx.rnn_whole import Ran, run_whole, suits_whole
from adrenoc.importers.onnx.unroll import MOST_ITERATIONS
from adrenoc.importers.relax.values import constant_value, make_constant

Activation = Callable[[relax.Expr], relax.Expr]
State = tuple[relax.Expr, ...]


@dataclass(frozen=True, kw_only=True)
class _Direction:
    """The weights of one direction, as expressions.

    Shapes:
        recurrence: [hidden, gates * hidden]
        projected: [steps, batch, gates * hidden], biases of the input included
        bias: [gates * hidden] of the recurrence
        peepholes: [3 * hidden], for an LSTM that has them
    """

    node: Node
    hidden: int
    recurrence: relax.Expr
    projected: relax.Expr
    bias: relax.Expr | None
    peepholes: relax.Expr | None
    activations: Sequence[Activation]

    def part(self, expr: relax.Expr, axis: int, number: int, count: int = 1) -> relax.Expr:
        """Gates `number` to `number + count` of a tensor."""
        begin, end = number * self.hidden, (number + count) * self.hidden
        return self.node.emit(relax.op.strided_slice(expr, [axis], [begin], [end]))

    def recurrent(self, state: relax.Expr, number: int = 0, count: int | None = None) -> relax.Expr:
        """Return the state's share in some gates, with its bias."""
        weights, bias = self.recurrence, self.bias
        if count is not None:
            weights = self.part(weights, 1, number, count)
            bias = None if bias is None else self.part(bias, 0, number, count)
        product = self.node.emit(relax.op.matmul(state, weights))
        return product if bias is None else self.node.emit(product + bias)


Step = Callable[[_Direction, relax.Expr, State], State]


def _rnn_step(d: _Direction, x: relax.Expr, state: State) -> State:
    return (d.activations[0](x + d.recurrent(state[0])),)


def _gru_step(d: _Direction, x: relax.Expr, state: State) -> State:
    (h,) = state
    gates = d.activations[0](d.part(x, 1, 0, 2) + d.recurrent(h, 0, 2))
    update, reset = d.part(gates, 1, 0), d.part(gates, 1, 1)
    if d.node.attrs.get("linear_before_reset", 0):
        inner = reset * d.recurrent(h, 2, 1)
    else:
        inner = d.recurrent(reset * h, 2, 1)
    new = d.activations[1](d.part(x, 1, 2) + inner)
    return (new + update * (h - new),)  # (1 - z) * new + z * h


def _lstm_step(d: _Direction, x: relax.Expr, state: State) -> State:
    h, c = state
    gates = x + d.recurrent(h)
    i, o, f, g = (d.part(gates, 1, number) for number in range(4))

    def peek(gate: relax.Expr, cell: relax.Expr, number: int) -> relax.Expr:
        if d.peepholes is None:
            return gate
        return gate + d.part(d.peepholes, 0, number) * cell

    i = d.activations[0](peek(i, c, 0))
    f = d.activations[0](peek(f, c, 2))
    cell = f * c + i * d.activations[1](g)
    o = d.activations[0](peek(o, cell, 1))
    return o * d.activations[2](cell), cell


@dataclass(frozen=True, kw_only=True)
class _Kind:
    gates: int
    step: Step
    activations: tuple[str, ...]
    states: int = 1


_KINDS = {
    "RNN": _Kind(gates=1, step=_rnn_step, activations=("Tanh",)),
    "GRU": _Kind(gates=3, step=_gru_step, activations=("Sigmoid", "Tanh")),
    "LSTM": _Kind(gates=4, step=_lstm_step, activations=("Sigmoid", "Tanh", "Tanh"), states=2),
}

_ACTIVATIONS: dict[str, Activation] = {
    "relu": relax.op.nn.relu,
    "sigmoid": relax.op.sigmoid,
    "softplus": relax.op.nn.softplus,
    "tanh": relax.op.tanh,
}


def _converter(name: str) -> Callable[[Node], relax.Expr]:
    kind = _KINDS[name]

    def convert(node: Node) -> relax.Expr:
        if node.attrs.get("input_forget", 0):
            raise RefusedError("input_forget is not supported")
        batch_first = bool(node.attrs.get("layout", 0))
        direction = node.text("direction", "forward")
        backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
        ways = list(enumerate(backward[direction]))
        if suits_whole(node):
            runs = [
                run_whole(
                    node,
                    name,
                    _activation_names(node, kind, number),
                    number,
                    reverse=reverse,
                    batch_first=batch_first,
                )
                for number, reverse in ways
            ]
        else:
            runs = _write_out(node, kind, ways, batch_first)
        # Y: [steps, directions, batch, hidden]
        results = [relax.op.stack([sequence for sequence, _ in runs], axis=1)]
        for state in range(kind.states):
            results.append(relax.op.stack([last[state] for _, last in runs], axis=0))
        if batch_first:
            results[0] = relax.op.permute_dims(results[0], [2, 0, 1, 3])
            results[1:] = [relax.op.permute_dims(r, [1, 0, 2]) for r in results[1:]]
        return relax.Tuple(results)

    return convert


def _write_out(
    node: Node, kind: _Kind, ways: list[tuple[int, bool]], batch_first: bool
) -> list[Ran]:
    """All directions, step by step."""
    x = node.inputs[0]
    if batch_first:
        x = relax.op.permute_dims(x, [1, 0, 2])
    steps, batch = (node.shape()[a] for a in ((1, 0) if batch_first else (0, 1)))
    if steps > MOST_ITERATIONS:
        raise RefusedError(
            f"it has {steps} steps, expected up to {MOST_ITERATIONS}: without constant weights "
            "each is kernels of its own"
        )
    runs = []
    for number, reverse in ways:
        outputs, last = _run(node, kind, x, number, steps, batch, reverse, batch_first)
        runs.append((relax.op.stack(outputs, axis=0), last))
    return runs


def _run(
    node: Node,
    kind: _Kind,
    x: relax.Expr,
    number: int,
    steps: int,
    batch: int,
    reverse: bool,
    batch_first: bool,
) -> tuple[list[relax.Expr], State]:
    """Return the outputs of all steps in order, and the last state, of one direction."""
    d = _direction(node, kind, x, number)
    state = _initial(node, kind, d.hidden, number, batch, batch_first)
    lengths = node.input(4)
    zero = make_constant(np.zeros((), np.float32))
    outputs: list[relax.Expr] = [None] * steps
    for step in reversed(range(steps)) if reverse else range(steps):
        row = relax.op.strided_slice(d.projected, [0], [step], [step + 1])
        made = kind.step(d, relax.op.squeeze(row, [0]), state)
        made = tuple(map(node.emit, made))
        outputs[step] = made[0]
        if lengths is not None:
            # A sequence that has ended keeps its state and gives zeros.
            alive = lengths.astype("int32") > make_constant(np.array(step, np.int32))
            alive = relax.op.expand_dims(alive, 1)
            outputs[step] = relax.op.where(alive, made[0], zero)
            pairs = zip(made, state, strict=True)
            made = tuple(node.emit(relax.op.where(alive, new, old)) for new, old in pairs)
        state = made
    return outputs, state


def _direction(node: Node, kind: _Kind, x: relax.Expr, number: int) -> _Direction:
    hidden = node.shape(2)[-1]

    def take_direction(index: int) -> relax.Expr | None:
        """Input `index` of this direction, without the axis of directions."""
        expr = node.input(index)
        if expr is None:
            return None
        value = constant_value(expr)
        if value is not None:
            return make_constant(np.ascontiguousarray(value[number]))
        part = relax.op.strided_slice(expr, [0], [number], [number + 1])
        return relax.op.squeeze(part, [0])

    weights, recurrence, bias = take_direction(1), take_direction(2), take_direction(3)
    projected = node.emit(relax.op.matmul(x, _transpose(node, weights)))
    recurrent_bias = None
    if bias is not None:
        half = kind.gates * hidden
        own = relax.op.strided_slice(bias, [0], [0], [half])
        projected += own
        recurrent_bias = relax.op.strided_slice(bias, [0], [half], [2 * half])
    return _Direction(
        node=node,
        hidden=hidden,
        recurrence=_transpose(node, recurrence),
        projected=projected,
        bias=recurrent_bias,
        peepholes=take_direction(7) if kind.states == 2 else None,
        activations=_activations(node, kind, number),
    )


def _transpose(node: Node, expr: relax.Expr) -> relax.Expr:
    value = constant_value(expr)
    if value is not None:
        return make_constant(np.ascontiguousarray(value.T))
    return node.emit(relax.op.permute_dims(expr, [1, 0]))


def _initial(
    node: Node, kind: _Kind, hidden: int, number: int, batch: int, batch_first: bool
) -> State:
    states = []
    for index in range(5, 5 + kind.states):
        expr = node.input(index)
        if expr is None:
            states.append(make_constant(np.zeros((batch, hidden), np.float32)))
            continue
        axis = 1 if batch_first else 0
        part = relax.op.strided_slice(expr, [axis], [number], [number + 1])
        states.append(node.emit(relax.op.squeeze(part, [axis])))
    return tuple(states)


def _activations(node: Node, kind: _Kind, number: int) -> list[Activation]:
    """Those of a direction: `clip` bounds what gates read, not what an LSTM's cell lets out."""
    limit = float(node.attrs.get("clip", 0.0))
    found = [_ACTIVATIONS[name] for name in _activation_names(node, kind, number)]
    gates = len(found) - (kind.states == 2)
    return [_clip(one, limit) for one in found[:gates]] + found[gates:]


def _activation_names(node: Node, kind: _Kind, number: int) -> list[str]:
    """Return the activations of one direction, in lower case."""
    named = [n.decode() if isinstance(n, bytes) else n for n in node.attrs.get("activations", [])]
    count = len(kind.activations)
    names = named[number * count : (number + 1) * count] or list(kind.activations)
    unknown = [n for n in names if n.lower() not in _ACTIVATIONS]
    if unknown:
        raise RefusedError(f"activation {unknown[0]} is not one of {', '.join(_ACTIVATIONS)}")
    return [name.lower() for name in names]


def _clip(activation: Activation, limit: float) -> Activation:
    """Return the activation of a value kept within -limit..limit; a limit of 0 is none."""
    if not limit:
        return activation
    return lambda value: activation(relax.op.clip(value, -limit, limit))


RNN_OPS: dict[str, Callable[[Node], relax.Expr]] = {name: _converter(name) for name in _KINDS}
