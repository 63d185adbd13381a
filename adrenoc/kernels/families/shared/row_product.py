"""Products of tokens by constant matrices that take in the norm before them, or a gate beside them.

One token may come as the parts in which attention leaves it (`mixed_parts.py`).

Which of its inputs such a product reads as what, and what the kernels of all of them share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from adrenoc.base.tvmapi import Expr, fconst, splat, tirx
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Finished
from adrenoc.kernels.families.shared.context import NodeKernel
from adrenoc.kernels.families.shared.local_token import LocalToken, TokenWork
from adrenoc.kernels.families.shared.mixed_parts import (
    MixedParts,
    mix_clocks,
    mixed_bytes,
    token_of,
)
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.kernels.walk import sum_lanes

GATED, NORMED = "gated", "normed"
"""Attributes: whether a second matrix is there; the epsilon of a norm of what is read."""
CENTRED = "centred"
"""Attribute: the epsilon of a layer norm of what is read, of many tokens (`centred_conv.py`)."""
JOINED, SUNK = "joined", "sunk"
"""Attributes: whether the token comes in parts; whether these have sinks."""
GATE = "gate"
"""Part of a node: what is made of the second matrix's products."""
N_BITS, N_BITS_DOT = "n_bits", "n_bits_dot"
"""The operators whose matrix has few bits, and with it scales and perhaps zero points: of tokens as
they are, and of such as are rounded to bytes."""
ROUND_TOKENS = "round_tokens"
"""The operator that rounds them."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """Names of inputs: matrices with what belongs to each; gains; gains and offsets of a layer
    norm; sinks of a token in parts; `rest` are an epilogue's."""

    matrices: tuple[tuple[str, ...], ...]
    gains: str
    centring: tuple[str, ...]
    sinks: str
    rest: tuple[str, ...]


def read_form(node: Node) -> Form:
    """Return the inputs behind the tokens."""
    width = 1
    if node.op in (N_BITS, N_BITS_DOT):
        width = 2 + bool(node.attrs["zeros"])
    inputs, matrices = node.inputs[1:], []
    for _ in range(2 if node.attrs.get(GATED) else 1):
        matrices.append(inputs[:width])
        inputs = inputs[width:]
    gains, inputs = _take_one(inputs, node.attrs.get(NORMED))
    of_norm = 2 if node.attrs.get(CENTRED) else 0
    centring, inputs = inputs[:of_norm], inputs[of_norm:]
    sinks, inputs = _take_one(inputs, node.attrs.get(SUNK))
    return Form(matrices=tuple(matrices), gains=gains, centring=centring, sinks=sinks, rest=inputs)


def _take_one(names: tuple[str, ...], there: object) -> tuple[str, tuple[str, ...]]:
    return (names[0], names[1:]) if there else ("", names)


def extents_read(graph: Graph, node: Node) -> Extents:
    """Extents of the tokens that a product reads."""
    read = graph.operand(node.inputs[0]).extents
    return token_of(read) if node.attrs.get(JOINED) else read


def bytes_of_mix(graph: Graph, node: Node) -> int:
    """Local memory for a token that comes in parts."""
    return mixed_bytes(graph.operand(node.inputs[0]).extents) if node.attrs.get(JOINED) else 0


def parts_read(graph: Graph, node: Node) -> int:
    """In how many parts a token comes, 0 where it is whole."""
    return graph.operand(node.inputs[0]).extents.n if node.attrs.get(JOINED) else 0


def mix_work(graph: Graph, node: Node, blocks: int) -> TokenWork | None:
    """Return what the mix of a token of so many blocks costs, None where it is whole."""
    if not node.attrs.get(JOINED):
        return None
    parts = parts_read(graph, node)
    return TokenWork(
        local_bytes=lambda _threads: bytes_of_mix(graph, node),
        memory_bytes=0,
        clocks=partial(mix_clocks, parts, blocks),
    )


def declare_token(kernel: NodeKernel, node: Node) -> Access:
    """Return what is multiplied: tokens, or the mix of one's parts."""
    x = kernel.input(node.inputs[0])
    if not node.attrs.get(JOINED):
        return x
    sinks = None
    if read_form(node).sinks:
        sinks = kernel.flat(read_form(node).sinks, "sinks", np.ravel, _widen, "float32")
    return MixedParts(kernel.builder, x, sinks)


def begin_token(x: Access, work_group: tuple[int, int, int]) -> None:
    """Compute a token by the threads of a work-group, if each of these makes its own."""
    if isinstance(x, LocalToken):
        x.begin(work_group)


@dataclass(frozen=True, kw_only=True)
class RowNorm:
    """The root-mean-square norm of a token's numbers: `gains` a factor for each, flat, in float."""

    gains: Access
    epsilon: float

    def scale(self, builder: KernelBuilder, squares: Expr, channels: int) -> Expr:
        """Return what a token of so many channels is multiplied by, of the sums of squares by
        lane."""
        squares = builder.let(squares, "squares")
        mean = sum_lanes(squares) / fconst(channels, ACCUMULATOR)
        root = tirx.sqrt(mean + fconst(self.epsilon, ACCUMULATOR))
        return splat(builder.let(fconst(1.0, ACCUMULATOR) / root, "scale"))


def declare_norm(kernel: NodeKernel, node: Node) -> RowNorm | None:
    """Return the norm that a product computes, None where it has none."""
    form = read_form(node)
    if not form.gains:
        return None
    gains = kernel.flat(form.gains, "row_gains", np.ravel, _widen, "float32")
    return RowNorm(gains=gains, epsilon=float(node.attrs[NORMED]))


def declare_gate(kernel: NodeKernel, node: Node) -> Finished | None:
    """Return what makes the gate of the second matrix's products, None where there is one
    matrix."""
    if not node.attrs.get(GATED):
        return None
    body = node.parts.get(GATE)
    for name in body.sources.values() if body is not None else ():
        if name != Node.RESULT:
            kernel.input(name)
    spec = kernel.context.graph.operand(node.output)
    return Finished(kernel.builder, body, kernel.accesses, spec)


def give_gate(
    finish: Finished | None, place: tuple[Expr, Expr, Expr, Expr], others: Sequence[Expr]
) -> dict[str, Expr]:
    """Return what an epilogue reads beside a product at (n, block, h, w): the gate there, if there
    is one."""
    if finish is None or not others:
        return {}
    return {Node.BESIDE: finish.value(*place, others[0])}


def _widen(gains: np.ndarray) -> np.ndarray:
    return gains.astype(np.float32, copy=False)
