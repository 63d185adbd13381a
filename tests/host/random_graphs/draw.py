"""Random graphs: a few inputs, up to a dozen steps that branch and join, several outputs."""

from dataclasses import dataclass

import numpy as np

from tests.host.random_graphs import indices, maths, moves, whole, windows
from tests.host.random_graphs.grower import Between, Chooser, Grower, Shape
from tests.host.random_graphs.ranges import RANGES
from tests.host.run_op import Ops

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 11, 13, 17)
CHANNELS = (1, 3, 4, 5, 8, 13, 16, 24, 33, 64)
MOST_ELEMENTS = 1 << 14
LARGE = (14, 19, 27, 28, 33, 40)
TOKENS = ((1, 50, 64), (1, 197, 48), (2, 65, 96), (1, 4, 77, 32), (1, 300, 40))
WIDE = (16385, 20011, 32749)
"""Wider than an image may be."""

STEPS = (*windows.STEPS, *windows.STEPS, *moves.STEPS, *maths.STEPS)
"""Windows twice: most of the network is made of them."""
WIDER = (*STEPS, *indices.STEPS, *indices.STEPS, *whole.STEPS)
"""Also what networks have between their layers."""
OPSETS = (18, 18, 19, 20, 21, 22)

TOLERANCE = {"fp32": 2e-5}
"""onnxruntime's own sums of a hundred thousand elements are off by 1.3e-5."""

PRESETS = ("fp32", "fp32", "mixed", "mixed", "buffer", "fp16")
TARGETS = ("host", "host:610", "host:640", "host:660", "host:740", "host:830")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, and how it is compiled."""

    ops: Ops
    preset: str
    target: str


def draw_case(between: Between, *, ranged: bool = False) -> Case:
    """Any graph, preset and target; `ranged` inputs hold numbers of any size."""
    ops = Ops(seed=between(0, 1000), opset=OPSETS[between(0, len(OPSETS) - 1)])
    ops.asked = {"keep_float32": ranged}
    shape, most = _shape(Chooser(between))
    g = Grower(ops, between, most)
    x = g.input(*shape)
    if between(0, 3) == 3:
        g.input(*shape)
    for name in ops.inputs if ranged else ():
        random = np.random.default_rng(between(0, 1 << 30))
        ops.given(name, RANGES[g.one_of(tuple(RANGES))](random, shape).astype(np.float32))
    steps = WIDER if g.maybe() else STEPS
    jumps = False
    for _ in range(between(1, 10)):
        branch = g.one_of(g.tensors) if between(0, 3) == 3 else x
        if branch.rank == 0:  # a scalar is an end, but joins may read it
            branch = g.tensors[0]
        step = g.one_of(steps)
        made = step(g, branch)
        if made is not None and step in moves.MOVED and branch.name in g.exact:
            g.exact.add(made.name)
        jumps |= made is not None and step in whole.STEPS
        x = made or x
    if x.name in ops.inputs:
        x = g.keep(ops("Relu", x.name), x.shape)
    made = [t.name for t in g.tensors if t.name not in ops.inputs]
    loose = [name for name in made if name not in g.read and name != x.name]
    others = [g.one_of(loose or made) for _ in range(between(0, 2))]
    ops.output(*dict.fromkeys([*others, *g.ends[:2], x.name]))
    # Halves are not the numbers that were compared.
    preset = "fp32" if jumps else g.one_of(PRESETS)
    return Case(ops=ops, preset=preset, target=g.one_of(TARGETS))


def _shape(choose: Chooser) -> tuple[Shape, int]:
    """Of the first input, and how many elements any tensor may have."""
    kind = choose.between(0, 10)
    if kind == 10:  # as large as the tensors of networks: other kernels suit them
        if choose.between(0, 2) == 2:
            return choose.one_of(TOKENS), MOST_ELEMENTS * 16
        image = [choose.one_of(LARGE) for _ in range(2)]
        return (1, choose.one_of(windows.MANY_CHANNELS), *image), MOST_ELEMENTS * 16
    if kind == 9:
        rank = choose.one_of((4, 4, 3, 2, 1))
        wide = choose.between(0, rank - 1)
        extents = [choose.one_of(WIDE if a == wide else (1, 2, 3)) for a in range(rank)]
        return tuple(extents), MOST_ELEMENTS * 16
    if kind < 6:
        image = [choose.one_of(EXTENTS) for _ in range(2)]
        return (choose.between(1, 3), choose.one_of(CHANNELS), *image), MOST_ELEMENTS
    rank = choose.between(1, 6)
    return tuple(choose.one_of(EXTENTS if rank < 5 else EXTENTS[:5]) for _ in range(rank)), (
        MOST_ELEMENTS
    )
