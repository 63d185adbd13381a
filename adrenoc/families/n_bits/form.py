"""Which of its inputs a product by weights of few bits reads as what."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.ir.graph import Node

GATED, NORMED = "gated", "normed"
"""Attributes: whether a second matrix is there; the epsilon of a norm of what is read."""
GATE = "gate"
"""Part of a node: what is made of the second matrix's products."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """Names of inputs: matrices as words, scales and perhaps zero points; `rest` an epilogue's."""

    matrices: tuple[tuple[str, ...], ...]
    gains: str
    rest: tuple[str, ...]


def is_n_bits(node: Node) -> bool:
    """Whether a node is a product by weights of few bits."""
    return node.op == "n_bits"


def read_form(node: Node) -> Form:
    """The inputs behind the tokens."""
    width = 3 if node.attrs["zeros"] else 2
    inputs, matrices = node.inputs[1:], []
    for _ in range(2 if node.attrs.get(GATED) else 1):
        matrices.append(inputs[:width])
        inputs = inputs[width:]
    count = 1 if node.attrs.get(NORMED) else 0
    return Form(matrices=tuple(matrices), gains="".join(inputs[:count]), rest=tuple(inputs[count:]))
