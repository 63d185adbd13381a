"""Steps that read and write at places: gathers, scatters, triangles, sums on the way, sequences."""

import math
from typing import Any

import numpy as np

from tests.host.random_graphs.grower import Grower, Made, Tensor

MOST_STEPS = 7
"""Of a sequence: its loop is written out."""
EQUATIONS = {
    1: ("i,j->ij", "i,i->", "i->"),
    2: ("ij->ji", "ij,jk->ik", "ij,kj->ik", "ij,ij->i", "ij->j", "...j,j->..."),
    3: ("bij,bjk->bik", "bij,kj->bik", "bij,bkj->bki", "bij->jib", "bij,i->bj", "b...,...->b..."),
    4: ("bchw,kc->bkhw", "bhid,bhjd->bhij", "bchw->bwhc", "bchw,bchw->bc", "nchw,w->nch"),
}


def einsum(g: Grower, x: Tensor) -> Made:
    """A sum over any letters, with a constant or alone."""
    if x.rank not in EQUATIONS:
        return None
    equation = g.one_of(EQUATIONS[x.rank])
    left, result = equation.split("->")
    terms = left.split(",")
    sizes = _sizes(terms[0], x)
    operands: list[Tensor | str] = [x]
    for term in terms[1:]:
        shape: list[int] = []
        for letter in term.replace("...", "."):
            if letter not in sizes:
                sizes[letter] = [g.between(1, 6)]
            shape += sizes[letter]
        operands.append(g.weight(*shape))
    shape = [e for letter in result.replace("...", ".") for e in sizes[letter]]
    total = math.prod(math.prod(s) for s in sizes.values())
    return g("Einsum", *operands, shape=shape, equation=equation) if total < 1 << 20 else None


def _sizes(term: str, x: Tensor) -> dict[str, list[int]]:
    letters = term.replace("...", ".")
    sizes, at = {}, 0
    for letter in letters:
        span = x.rank - len(letters) + 1 if letter == "." else 1
        sizes[letter] = list(x.shape[at : at + span])
        at += span
    return sizes


def running_sum(g: Grower, x: Tensor) -> Made:
    """CumSum, with each of its attributes."""
    axis = g.between(-x.rank, x.rank - 1)
    attrs = {"exclusive": g.between(0, 1), "reverse": g.between(0, 1)}
    return g("CumSum", x, g.ops.const(axis, np.int64), **attrs)


def triangle(g: Grower, x: Tensor) -> Made:
    """One half of each matrix, from any diagonal."""
    if x.rank < 2:
        return None
    operands = [x] if g.maybe() else [x, g.ops.const(g.between(-4, 4), np.int64)]
    return g("Trilu", *operands, upper=g.between(0, 1))


def _places(g: Grower, extent: int, *shape: int) -> np.ndarray:
    count = math.prod(shape)
    values = [g.between(-extent, extent - 1) for _ in range(min(count, 24))]
    return np.resize(np.array(values, np.int64), shape)


def gather_elements(g: Grower, x: Tensor) -> Made:
    """By indices of the result's shape."""
    axis = g.between(0, x.rank - 1)
    shape = tuple(g.between(1, 5) if a == axis else g.between(1, e) for a, e in enumerate(x.shape))
    if math.prod(shape) > 1 << 12:
        return None
    taken = g.ops.const(_places(g, x.shape[axis], *shape), np.int64)
    return g("GatherElements", x, taken, shape=shape, axis=axis - x.rank if g.maybe() else axis)


def gather_rows(g: Grower, x: Tensor) -> Made:
    """Gather by a matrix of indices, or by a scalar."""
    axis = g.between(0, x.rank - 1)
    some = g.one_of(((), (2, 3), (1, 4)))
    shape = (*x.shape[:axis], *some, *x.shape[axis + 1 :])
    if len(shape) > 6 or not shape:
        return None
    taken = g.ops.const(_places(g, x.shape[axis], *some), g.one_of((np.int64, np.int32)))
    return g("Gather", x, taken, shape=shape, axis=axis)


def gather_nd(g: Grower, x: Tensor) -> Made:
    """By rows of indices of some axes, with or without batches."""
    batch = g.between(0, min(2, x.rank - 1))
    depth = g.between(1, x.rank - batch)
    rows = (*x.shape[:batch], g.between(1, 4))
    shape = (*rows, *x.shape[batch + depth :])
    if len(shape) > 6 or math.prod(rows) > 1 << 12:
        return None
    columns = [_places(g, x.shape[batch + d], *rows) for d in range(depth)]
    taken = g.ops.const(np.stack(columns, -1), np.int64)
    return g("GatherND", x, taken, shape=shape, batch_dims=batch)


def scatter_nd(g: Grower, x: Tensor) -> Made:
    """Constant updates at rows of indices, each once or added up."""
    depth, rows = g.between(1, x.rank), g.between(1, 4)
    kind = g.one_of(("none", "add", "mul", "max"))
    if math.prod(x.shape[:depth]) < rows:
        return None
    flat = sorted({g.between(0, math.prod(x.shape[:depth]) - 1) for _ in range(rows)})
    taken = np.stack(np.unravel_index(flat, x.shape[:depth]), -1).astype(np.int64)
    updates = g.weight(len(flat), *x.shape[depth:])
    return g("ScatterND", x, g.ops.const(taken, np.int64), updates, reduction=kind)


def scatter_elements(g: Grower, x: Tensor) -> Made:
    """Constant updates at indices along one axis, no place twice."""
    axis = g.between(0, x.rank - 1)
    count = g.between(1, min(3, x.shape[axis]))
    shape = tuple(count if a == axis else g.between(1, e) for a, e in enumerate(x.shape))
    if math.prod(shape) > 1 << 10:
        return None
    order = np.array(g.order(x.shape[axis])[:count] if x.shape[axis] < 64 else range(count))
    along = [-1 if a == axis else 1 for a in range(x.rank)]
    taken = np.broadcast_to(order.reshape(along), shape)
    kind = g.one_of(("none", "add", "mul"))
    operands = [g.ops.const(taken, np.int64), g.weight(*shape)]
    return g("ScatterElements", x, *operands, axis=axis, reduction=kind)


def sequence(g: Grower, x: Tensor) -> Made:
    """LSTM, GRU or RNN, of any direction; all states or the last ones."""
    if x.rank != 3 or x.shape[0] > MOST_STEPS or x.shape[2] > 64 or x.shape[1] > 8:
        return None
    kind, hidden = g.one_of(("LSTM", "GRU", "RNN")), g.between(1, 9)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    direction = g.one_of(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, width = x.shape
    operands: list[Tensor | str] = [
        x,
        g.weight(ways, gates * hidden, width),
        g.weight(ways, gates * hidden, hidden),
    ]
    if g.maybe():
        operands.append(g.weight(ways, 2 * gates * hidden))
        if g.maybe():
            operands += ["", g.weight(ways, batch, hidden)]
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if kind == "GRU":
        attrs["linear_before_reset"] = g.between(0, 1)
    if g.maybe():
        return g(kind, *operands, shape=(steps, ways, batch, hidden), **attrs)
    g.read.add(x.name)
    names = [o.name if isinstance(o, Tensor) else o for o in operands]
    last = g.ops.several(kind, names, ["", "last"], **attrs)[1]
    return g.keep(last, (ways, batch, hidden))


def group_norm(g: Grower, x: Tensor) -> Made:
    """GroupNormalization, with a scale a channel (since operator set 21) or a group."""
    if not 3 <= x.rank <= 5 or math.prod(x.shape[2:]) < 4:
        return None
    channels = x.shape[1]
    groups = g.one_of([c for c in (1, 2, 4, channels) if channels % c == 0])
    count = channels if g.ops.opset >= 21 else groups
    scale, bias = g.weight(count, around=1.0), g.weight(count)
    return g("GroupNormalization", x, scale, bias, num_groups=groups, epsilon=1e-2)


def lp_norm(g: Grower, x: Tensor) -> Made:
    """LpNormalization of numbers away from zero."""
    away = g("Add", x, g.ops.const(1.5))
    return away and g(
        "LpNormalization", away, axis=g.between(-x.rank, x.rank - 1), p=g.between(1, 2)
    )


STEPS = (
    *(einsum, einsum, running_sum, triangle, gather_elements, gather_rows, gather_nd),
    *(scatter_nd, scatter_elements, sequence, sequence, group_norm, lp_norm),
)
