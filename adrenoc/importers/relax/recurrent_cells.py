"""What a step of a recurrent layer makes of sums of products and of the state before it.

Works on anything that TIR computes with: numbers, or vectors of four units.

Source: ONNX operator reference, RNN-14, GRU-14, LSTM-14, whose orders of gates these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adrenoc.base.tvmapi import Expr, maximum, minimum, tirx

Constant = Callable[[float], Expr]
"""A number in the form of what is computed with."""

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""Kind of layer -> parts of its sums: the state; update, reset, new; input, output, forget, new."""


def _softplus(x: Expr, constant: Constant) -> Expr:
    zero = constant(0.0)
    return maximum(x, zero) + tirx.log(constant(1.0) + tirx.exp(minimum(x, zero - x)))


_APPLIED: dict[str, Callable[[Expr, Constant], Expr]] = {
    "relu": lambda x, constant: maximum(x, constant(0.0)),
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

    What an LSTM lets out of its cell is no gate: onnxruntime does not bound it.
    """

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
