"""What a step of a recurrent layer makes of sums of products and of the state before it.

Works on anything that TIR computes with: numbers, or vectors of four units.

A recurrent layer as plain loops, for where its family does not compute it.

Source: ONNX operator reference, RNN-14, GRU-14, LSTM-14, whose orders of gates these are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import te
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812 - as TVM's own do

from adrenoc.base.tvmapi import Expr, decl_buffer, maximum, minimum, tirx

Constant = Callable[[float], Expr]
"""A number in the form of what is computed with."""

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""Kind of layer -> parts of its sums: the state; update, reset, new; input, output, forget, new."""


def _softplus(x: Expr, constant: Constant) -> Expr:
    zero = constant(0.0)
    return maximum(x, zero) + tirx.log(constant(1.0) + tirx.exp(minimum(x, zero - x)))


_APPLIED: dict[str, Callable[[Expr, Constant], Expr]] = {
    "relu": lambda x, constant: maximum(x, constant(0.0)),
    "relu6": lambda x, constant: _clip(maximum(x, constant(0.0)), 6.0, constant),
    "relu_n1_to_1": lambda x, constant: _clip(x, 1.0, constant),
    "sigmoid": lambda x, constant: constant(1.0) / (constant(1.0) + tirx.exp(constant(0.0) - x)),
    "softplus": _softplus,
    "tanh": lambda x, _: tirx.tanh(x),
    "linear": lambda x, _: x,
}
PEEPHOLES = 3
"""Gates of an LSTM that may see the cell: input, output, forget."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A kind of layer; `clip` bounds what gates activate, 0 does not; `clip_cell` the LSTM's cell.
    What an LSTM lets out of its cell is no gate: onnxruntime does not bound it."""

    kind: str
    activations: tuple[str, ...]
    clip: float
    clip_cell: float

    def activate(self, number: int, x: Expr, constant: Constant) -> Expr:
        """Apply activation `number` of a gate."""
        return self._apply(number, _clip(x, self.clip, constant), constant)

    def _apply(self, number: int, x: Expr, constant: Constant) -> Expr:
        return _APPLIED[self.activations[number]](x, constant)

    def step_rnn(self, total: Expr, constant: Constant) -> Expr:
        """Compute the new state."""
        return self.activate(0, total, constant)

    def step_gru(self, update: Expr, new: Expr, before: Expr) -> Expr:
        """Compute (1 - update) * new + update * before."""
        return new + update * (before - new)

    def change_cell(
        self, gates: Sequence[Expr], cell: Expr, peepholes: Sequence[Expr], constant: Constant
    ) -> Expr:
        """Compute an LSTM's new cell; `peepholes` are none or weights of three."""
        i, _, f, g = gates
        if peepholes:
            i, f = i + peepholes[0] * cell, f + peepholes[2] * cell
        kept = self.activate(0, f, constant) * cell
        made = self.activate(0, i, constant) * self.activate(1, g, constant)
        return _clip(kept + made, self.clip_cell, constant)

    def let_out(
        self, gates: Sequence[Expr], cell: Expr, peepholes: Sequence[Expr], constant: Constant
    ) -> Expr:
        """Compute an LSTM's new state of its new cell."""
        o = gates[1] + peepholes[1] * cell if peepholes else gates[1]
        return self.activate(0, o, constant) * self._apply(2, cell, constant)


def _clip(x: Expr, limit: float, constant: Constant) -> Expr:
    return minimum(maximum(x, constant(-limit)), constant(limit)) if limit else x


def cell_of(attrs: Any) -> Cell:
    """Return what a step of a call or a node with these attributes computes."""
    return Cell(
        kind=str(attrs["kind"]),
        activations=tuple(str(attrs["activations"]).split(",")),
        clip=float(attrs["clip"]),
        clip_cell=float(attrs["clip_cell"]),
    )


def recurrent_nest(builder: Any, call: Any) -> Any:
    """Go through the steps one by one."""
    attrs, dtype = call.attrs, str(call.args[0].ty.dtype)
    shape = [int(extent) for extent in attrs["result_shape"]]
    gates, units = GATES[str(attrs["kind"])], shape[2]

    def compute(*tensors: Any) -> Any:
        def write(ins: Any, outs: Any) -> Any:
            with IRBuilder() as written:
                _Loops(
                    attrs=attrs,
                    inputs=[T.buffer_proxy(one) for one in ins],
                    out=T.buffer_proxy(outs[0]),
                    batch=shape[0],
                    steps=int(tensors[0].shape[1]),
                    units=units,
                    padded=int(tensors[0].shape[2]) // gates,
                    dtype=dtype,
                ).write()
            return written.get()

        out = decl_buffer(shape, dtype, name="out")
        return te.extern([shape], tensors, write, dtype=[dtype], out_buffers=[out], name="steps")

    return builder.call_te(compute, *call.args, primfunc_name_hint="recurrent")


@dataclass(frozen=True, kw_only=True)
class _Loops:
    """The loops over batch, steps and units, and what they read and write."""

    attrs: Any
    inputs: list[Any]
    out: Any
    batch: int
    steps: int
    units: int
    padded: int
    dtype: str
    beside: list[Any] = field(default_factory=list)
    """Sums, the state, an LSTM's cell, what a GRU's reset leaves of the state."""

    def write(self) -> None:
        """Write the loops to the builder that is open."""
        gates, units = GATES[str(self.attrs["kind"])], (self.units,)
        states = self.inputs[2 + int(self.attrs["extras"]) :]
        with T.serial(0, self.batch) as b:
            for shape in ((gates, self.units), units, units, units):
                self.beside.append(T.buffer_proxy(T.alloc_buffer(shape, self.dtype)))
            _, state, cell, _ = self.beside
            with T.serial(0, self.units) as u:
                state[u] = states[0][b, u] if states else self._constant(0.0)
                cell[u] = states[1][b, u] if len(states) > 1 else self._constant(0.0)
            with T.serial(0, self.steps) as t:
                self._step(b, self.steps - 1 - t if int(self.attrs["reverse"]) else t)
            if int(self.attrs["keeps_cell"]):
                with T.serial(0, self.units) as u:
                    self.out[b, self.steps, u] = cell[u]

    def _step(self, b: Any, t: Any) -> None:
        made, (sums, state, held, kept) = cell_of(self.attrs), self.beside
        gates = GATES[made.kind]
        before = made.kind == "GRU" and bool(int(self.attrs["reset_before"]))
        self._add_up(state, range(2 if before else gates))
        if before:
            with T.serial(0, self.units) as u:
                reset = made.activate(0, self._gate(b, t, u, 1), self._constant)
                kept[u] = state[u] * reset
            self._add_up(kept, range(2, 3))
        with T.serial(0, self.units) as u:
            if made.kind == "RNN":
                state[u] = made.step_rnn(self._gate(b, t, u, 0), self._constant)
            elif made.kind == "LSTM":
                all_gates = [self._gate(b, t, u, gate) for gate in range(gates)]
                peepholes = [self.inputs[2][n, u] for n in range(PEEPHOLES)] if self._extras else []
                held[u] = made.change_cell(all_gates, held[u], peepholes, self._constant)
                state[u] = made.let_out(all_gates, held[u], peepholes, self._constant)
            else:
                update = made.activate(0, self._gate(b, t, u, 0), self._constant)
                inner = sums[2, u]
                if not before:
                    inner = inner + self.inputs[2][0, u] if self._extras else inner
                    inner = inner * made.activate(0, self._gate(b, t, u, 1), self._constant)
                new = made.activate(1, self._input(b, t, u, 2) + inner, self._constant)
                state[u] = made.step_gru(update, new, state[u])
            self.out[b, t, u] = state[u]

    @property
    def _extras(self) -> int:
        return int(self.attrs["extras"])

    def _add_up(self, vector: Any, gates: range) -> None:
        """Add up the products of the state for some gates."""
        sums, weights = self.beside[0], self.inputs[1]
        for gate in gates:
            with T.serial(0, self.units) as u:
                sums[gate, u] = self._constant(0.0)
                with T.serial(0, self.units) as k:
                    sums[gate, u] = sums[gate, u] + weights[gate, u, k] * vector[k]

    def _input(self, b: Any, t: Any, u: Any, gate: int) -> Any:
        return self.inputs[0][b, t, gate * self.padded + u]

    def _gate(self, b: Any, t: Any, u: Any, gate: int) -> Any:
        return self._input(b, t, u, gate) + self.beside[0][gate, u]

    def _constant(self, value: float) -> Any:
        return tirx.const(value, self.dtype)
