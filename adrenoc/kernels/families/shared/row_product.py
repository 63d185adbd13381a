"""Products of tokens by constant matrices that take in the norm before them, or a gate beside them.

One token may come as the parts in which attention over parts of a cache leaves it.  A part is the
mix of values by its own powers, and behind that the largest score and the sum of these powers:
[split, query head, head + OF_SCORES].  The product mixes them itself: each of its work-groups needs
all of the numbers, and puts them into local memory before it begins.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from adrenoc.base.tvmapi import (
    Expr,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    load_numbers,
    maximum,
    splat,
    tirx,
)
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.context import NodeKernel
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.fused_bodies import Finished
from adrenoc.kernels.statements import SharedArray
from adrenoc.kernels.walk import ACCUMULATOR, plus, sum_lanes


class LocalToken(Access):
    """Reads of a vector of the threads' own making; `begin` comes before the first."""

    def __init__(self, builder: KernelBuilder, source: Access) -> None:
        super().__init__(source.spec, None, builder)
        self._builder = builder
        self._numbers: SharedArray | None = None

    def begin(self, work_group: tuple[int, int, int]) -> None:
        """Compute all numbers, by all threads of a work-group; they have to cooperate."""
        width, height, _ = work_group
        x, y, z = self._builder.local
        member = self._builder.let((z * iconst(height) + y) * iconst(width) + x, "member")
        self._numbers = self._compute(member, math.prod(work_group))
        self._builder.barrier()

    @abstractmethod
    def _compute(self, member: Expr, threads: int) -> SharedArray:
        """Compute the numbers as thread `member` of so many."""

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Return four numbers of the vector."""
        if self._numbers is None:
            raise TypeError("a vector in local memory is read before it is begun")
        return self._numbers[block]


@dataclass(frozen=True, kw_only=True)
class TokenWork:
    """What such a vector costs each work-group.  `clocks` gives, for a group of so many threads,
    how long each wave keeps the busiest pipe, and how long one takes alone."""

    local_bytes: Callable[[int], int]
    """Local memory of a group of so many threads."""
    memory_bytes: int
    """What all groups together bring from memory."""
    clocks: Callable[[int, Machine], tuple[float, float]]


OF_SCORES = LANES
"""Numbers of a part behind its mix; two are unused."""


class MixedParts(LocalToken):
    """Reads of the mix of `parts`, as one token of all heads; `sinks`, one a head, are scores of
    no row.

    Shapes:
        parts: N = split, W = query head, C = a head and its scores
    """

    def __init__(self, builder: KernelBuilder, parts: Access, sinks: Access | None) -> None:
        super().__init__(builder, parts)
        self._parts, self._sinks = parts, sinks

    @property
    def extents(self) -> Extents:
        """Return one token."""
        return token_of(self._parts.extents)

    def _compute(self, member: Expr, threads: int) -> SharedArray:
        builder, e, zero = self._builder, self._parts.extents, iconst(0)
        shares = self._share_powers(member, threads)
        blocks = e.blocks - 1
        mixed = builder.allocate_shared(blocks * e.w, dtype=ACCUMULATOR)
        count = blocks * e.w
        with builder.loop(-(-count // threads), "mix", rolled=True) as turn:
            at = builder.let(turn * iconst(threads) + member, "at")
            with builder.when(at < iconst(count) if count % threads else None):
                query = builder.let(floordiv(at, blocks), "query")
                block = builder.let(floormod(at, blocks), "block")
                texels = [
                    builder.let(self._parts.texel(iconst(n), block, zero, query), "part")
                    for n in range(e.n)
                ]
                mixed[at] = reduce(
                    plus,
                    (
                        texel * shares[query * iconst(e.n) + iconst(n)]
                        for n, texel in enumerate(texels)
                    ),
                )
        return mixed

    def _share_powers(self, member: Expr, threads: int) -> SharedArray:
        """Return what each part of each head is multiplied by, in local memory."""
        builder, e = self._builder, self._parts.extents
        scores_at, zero = iconst(e.blocks - 1), iconst(0)
        shares = builder.allocate_shared(e.w * e.n, dtype=ACCUMULATOR)
        with builder.loop(-(-e.w // threads), "head", rolled=True) as turn:
            query = builder.let(turn * iconst(threads) + member, "query")
            with builder.when(query < iconst(e.w) if e.w % threads else None):
                scores = [
                    builder.let(self._parts.texel(iconst(n), scores_at, zero, query), "scores")
                    for n in range(e.n)
                ]
                largest, powers, total = weigh_parts(builder, scores)
                if self._sinks is not None:
                    sink = load_numbers(self._sinks.buffer, query, 0, 1, aligned=False)
                    total = builder.let(total + tirx.exp(sink - largest), "total")
                inverse = builder.let(fconst(1.0, ACCUMULATOR) / total, "inverse")
                for n, power in enumerate(powers):
                    shares[query * iconst(e.n) + iconst(n)] = splat(power * inverse)
        builder.barrier()
        return shares


def weigh_parts(builder: KernelBuilder, scores: Sequence[Expr]) -> tuple[Expr, list[Expr], Expr]:
    """Return the largest score of some parts, what each is multiplied by, and their sum of powers.
    Each of `scores` holds the largest score of a part and the sum of its powers."""
    largest = builder.let(reduce(maximum, (lane(one, 0) for one in scores)), "largest")
    powers = [builder.let(tirx.exp(lane(one, 0) - largest), "power") for one in scores]
    total = reduce(plus, (p * lane(one, 1) for p, one in zip(powers, scores, strict=True)))
    return largest, powers, builder.let(total, "total")


def token_of(parts: Extents) -> Extents:
    """Return the extents of the token whose numbers are in so many parts."""
    return Extents(1, (parts.blocks - 1) * LANES * parts.w, 1, 1)


def mix_clocks(parts: int, blocks: int, threads: int, machine: Machine) -> tuple[float, float]:
    """Return what the mix of so many blocks adds in a group of so many threads: how long each wave
    keeps the busiest pipe, and how long one takes alone."""
    if not parts:
        return 0.0, 0.0
    cost, rates = machine.cost.n_bits, machine.cost.pipes
    texels = math.ceil(blocks / threads) * parts
    slots = texels * (LANES + cost.read_slots)
    alu = slots / machine.lanes
    busiest = machine.threads_of(threads) * max(alu, texels / machine.texels_of(FLOAT_BYTES))
    # With one wait for 64 parts, 4 us were reckoned on an H100 where it took 54.
    at_once = machine.cost.conv_local.texels_a_wait
    waits = math.ceil(blocks / threads) * math.ceil(parts / at_once) + 1
    serial = waits * rates.buffer_latency_clocks + machine.slots_a_wave * slots
    return busiest, serial + 2 * cost.barrier_clocks


GATED, NORMED = "gated", "normed"
"""Attributes: whether a second matrix is there; the epsilon of a norm of what is read."""
CENTRED = "centred"
"""Attribute: the epsilon of a layer norm of what is read, of many tokens (`centred_conv.py`)."""
MEAN_PARTS = "mean_parts"
"""Attribute of a convolution: rows and columns of work-groups that make parts of a mean, too."""
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
    """Return extents of the tokens that a product reads."""
    read = graph.operand(node.inputs[0]).extents
    return token_of(read) if node.attrs.get(JOINED) else read


def bytes_of_mix(graph: Graph, node: Node) -> int:
    """Return local memory for a token that comes in parts."""
    parts = graph.operand(node.inputs[0]).extents
    vectors = parts.w * parts.n + (parts.blocks - 1) * parts.w
    return LANES * FLOAT_BYTES * vectors if node.attrs.get(JOINED) else 0


def parts_read(graph: Graph, node: Node) -> int:
    """Return how many parts a token comes in, 0 where it is whole."""
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
        sinks = declare_numbers(kernel, read_form(node).sinks, "sinks")
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
        """Return what a token is multiplied by, of the sums of squares by lane."""
        squares = builder.let(squares, "squares")
        mean = sum_lanes(squares) / fconst(channels, ACCUMULATOR)
        root = tirx.sqrt(mean + fconst(self.epsilon, ACCUMULATOR))
        return splat(builder.let(fconst(1.0, ACCUMULATOR) / root, "scale"))


def declare_norm(kernel: NodeKernel, node: Node) -> RowNorm | None:
    """Return the norm that a product computes, None where it has none."""
    form = read_form(node)
    if not form.gains:
        return None
    gains = declare_numbers(kernel, form.gains, "row_gains")
    return RowNorm(gains=gains, epsilon=float(node.attrs[NORMED]))


def declare_gate(kernel: NodeKernel, node: Node) -> Finished | None:
    """Return what makes the gate of the second matrix's products; None where there is one."""
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
    """Return what an epilogue reads beside a product: the gate there, if there is one."""
    if finish is None or not others:
        return {}
    return {Node.BESIDE: finish.value(*place, others[0])}


def declare_numbers(kernel: NodeKernel, name: str, kind: str) -> Access:
    """Declare a constant, flat in float32, as the next argument."""
    widen_table = partial(np.asarray, dtype=np.float32)
    return kernel.flat(name, kind, np.ravel, widen_table, "float32")
