"""RNN, GRU and LSTM.

With constant weights all steps are one operator (`run_whole`).  Others are written out over
their steps: the projections of all inputs are one product; each step then multiplies the state,
which is small.

Make all steps of an RNN, GRU or LSTM of ONNX with constant weights one operator.

Sequences that end early need no kernel of their own.  The layer runs over all steps; what it makes
behind the end of a sequence is dropped, and the last state is taken where the sequence ends:

    y = layer(x)                            y[b, t] = 0 where t >= length[b]
    last = y[steps - 1]                     last = y[length - 1], or the first state of no step

A reversed layer begins at the end of each sequence: its steps are turned round within each, and
those of the result back.  An LSTM's cell, of which the last alone is written, is held from the end
on: its gates of input are shut and its gates of forgetting open.

A layer that no one kernel does is written out step by step, with the reason.

Source: ONNX operator reference, RNN-14, GRU-14, LSTM-14.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.graph import OnnxGraph, attributes
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.onnx.unroll import MOST_ITERATIONS
from adrenoc.importers.relax.own import MOST_UNITS, Layer, call_recurrent
from adrenoc.importers.relax.recurrent import GATES, Cell
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant

CONSTANT_INPUTS = (1, 2, 3, 7)
"""Weights, recurrence, biases and peepholes."""
LENGTHS = 4
WHOLE_DTYPES = ("float32", "float16")
"""What one operator takes; it computes in float32, as onnxruntime does."""
_RECURRENCE = 2


def explain_steps(
    *, are_constant: bool, has_lengths: bool, can_hold: bool, is_float: bool, units: int
) -> str | None:
    """Return why a layer is no single operator over all its steps; None where it is one."""
    if not are_constant:
        return "its weights are computed, expected constants"
    if has_lengths and not can_hold:
        return "its sequences end early, and its gates can hold no cell behind their ends"
    if not is_float:
        return "its input is neither float32 nor float16"
    if units > MOST_UNITS:
        return f"it has {units} units, one kernel takes up to {MOST_UNITS}"
    return None


def can_hold(attrs: Mapping[str, Any], *, keeps_cell: bool) -> bool:
    """Return whether a cell can be held where a sequence has ended: shut gates are 0 and open ones
    1.

    Where nobody asks for the last cell, nothing has to.
    """
    if not keeps_cell:
        return True
    named = [n.decode() if isinstance(n, bytes) else n for n in attrs.get("activations", [])]
    return not attrs.get("clip", 0.0) and all(n.lower() == "sigmoid" for n in named[::3])


def note_steps(graph: OnnxGraph) -> None:
    """Log a decision for each layer that is written out."""
    for node in graph.nodes:
        if node.op_type in GATES:
            _note(graph, node)


def _note(graph: OnnxGraph, node: onnx.NodeProto) -> None:
    given = dict(enumerate(node.input))
    weights = [name for i in CONSTANT_INPUTS if (name := given.get(i))]
    x, recurrence = graph.types.get(node.input[0]), graph.shape_of(given.get(_RECURRENCE, ""))
    reason = explain_steps(
        are_constant=all(name in graph.constants for name in weights),
        has_lengths=bool(given.get(LENGTHS)),
        can_hold=can_hold(attributes(node), keeps_cell=any(node.output[2:])),
        is_float=x is None or x.dtype in WHOLE_DTYPES,
        units=recurrence[-1] if recurrence else 0,
    )
    if reason is not None:
        subject = next(name for name in node.output if name)
        graph.log.add(subject, "a kernel or more for each step", reason)


_FIRST_STATES = 5

_Ran = tuple[relax.Expr, tuple[relax.Expr, ...]]
"""The states of all steps [steps, batch, units], and the last ones [batch, units]."""


def _suits_whole(node: Node) -> bool:
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
) -> _Ran:
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
        if _suits_whole(node):
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
) -> list[_Ran]:
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
