"""Steps through integers and booleans: comparisons, places of extremes, roundings, lookups.

They jump where their input hardly changes, so they read what is known to the last bit: inputs of
the graph, and what was only moved of them.
"""

import numpy as np
from onnx import TensorProto

from tests.host.random_graphs.grower import Grower, Made, Tensor

COMPARISONS = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")
INTEGERS = {np.int32: TensorProto.INT32, np.int64: TensorProto.INT64}


def _exact(g: Grower, x: Tensor) -> Tensor:
    return x if x.name in g.exact else g.one_of([t for t in g.tensors if t.name in g.exact])


def _float(g: Grower, name: str, shape: tuple[int, ...]) -> Tensor:
    """Integers or booleans as floats; at times they are an output, too."""
    if g.between(0, 3) == 3:
        g.ends.append(name)
    return g.keep(g.ops("Cast", name, to=TensorProto.FLOAT), shape)


def _read(g: Grower, op: str, x: Tensor, *more: str, **attrs: object) -> str:
    g.read.add(x.name)
    return g.ops(op, x.name, *more, **attrs)


def compare(g: Grower, x: Tensor) -> Made:
    """Numbers that choose: a mask, its logic with another, and what it selects."""
    x = _exact(g, x)
    shape = tuple(e if g.maybe() else 1 for e in x.shape)
    mask = _read(g, g.one_of(COMPARISONS), x, g.weight(*shape))
    if g.maybe():
        mask = g.ops(g.one_of(("And", "Or", "Xor")), mask, g.mask(*x.shape[-1:]))
    if g.maybe():
        mask = g.ops("Not", mask)
    if g.maybe():
        return _float(g, mask, x.shape)
    other = g.like(x.shape, besides=x)
    chosen = [other.name if other else g.weight(*shape), x.name]
    return g.keep(g.ops("Where", mask, *(chosen if g.maybe() else chosen[::-1])), x.shape)


def extreme(g: Grower, x: Tensor) -> Made:
    """Where the largest or smallest number of an axis is."""
    x = _exact(g, x)
    axis, keep = g.between(0, x.rank - 1), g.between(0, 1)
    attrs = {"axis": axis, "keepdims": keep, "select_last_index": g.between(0, 1)}
    place = _read(g, g.one_of(("ArgMax", "ArgMin")), x, **attrs)
    shape = [1 if a == axis else e for a, e in enumerate(x.shape) if keep or a != axis]
    return _float(g, place, tuple(shape))


def top(g: Grower, x: Tensor) -> Made:
    """The largest or smallest numbers of an axis, in order."""
    x = _exact(g, x)
    axis = g.between(0, x.rank - 1)
    if x.shape[axis] > 64 or not g.fits(x.shape):
        return None
    count = g.between(1, x.shape[axis])
    g.read.add(x.name)
    attrs = {"axis": axis, "largest": g.between(0, 1), "sorted": 1}
    values, _ = g.ops.several("TopK", [x.name, g.ints(count)], ["values", "places"], **attrs)
    return g.keep(values, tuple(count if a == axis else e for a, e in enumerate(x.shape)))


def whole_numbers(g: Grower, x: Tensor) -> Made:
    """To integers, arithmetic on them, and back."""
    x = _exact(g, x)
    dtype = g.one_of(tuple(INTEGERS))
    scaled = _read(g, "Mul", x, g.ops.const(64.0))  # a power of two: exact
    number = g.ops("Cast", scaled, to=INTEGERS[dtype])
    for _ in range(g.between(1, 3)):
        kind = g.one_of(("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Abs", "Neg", "Sign"))
        if kind in ("Abs", "Neg", "Sign"):
            number = g.ops(kind, number)
            continue
        shape = tuple(e if g.maybe() else 1 for e in x.shape[-2:])
        low, high = (1, 9) if kind in ("Div", "Mod") else (-9, 9)
        other = np.resize([g.between(low, high) for _ in range(8)], shape)
        number = g.ops(kind, number, g.ops.const(other, dtype))
    return _float(g, number, x.shape)


def rounding(g: Grower, x: Tensor) -> Made:
    """To the next whole number, or a remainder of floats."""
    x = _exact(g, x)
    kind = g.one_of(("Floor", "Ceil", "Round", "Sign", "Mod"))
    if kind == "Mod":
        return g.keep(_read(g, "Mod", x, g.ops.const(0.25), fmod=1), x.shape)
    return g.keep(g.ops(kind, _read(g, "Mul", x, g.ops.const(4.0))), x.shape)


def lookup(g: Grower, x: Tensor) -> Made:
    """Rows of a table, or of a tensor of the graph, by an integer input."""
    shape = g.one_of(((1, 7), (5,), (2, 3), (1,)))
    dtype = g.one_of(tuple(INTEGERS))
    if g.maybe() and x.rank < 5 and x.rank:
        ids = g.whole_input(shape, x.shape[0], dtype)
        return g("Gather", x, ids, shape=(*shape, *x.shape[1:]))
    rows, width = g.between(2, 40), g.one_of((1, 3, 8, 17, 33))
    ids = g.whole_input(shape, rows, dtype)
    return g.keep(g.ops("Gather", g.weight(rows, width), ids), (*shape, width))


def one_hot(g: Grower, x: Tensor) -> Made:
    """Ones at the places of an integer input."""
    shape, depth = g.one_of(((4,), (1, 6), (2, 3))), g.between(2, 9)
    ids = g.whole_input(shape, depth, np.int64)
    axis = g.between(-1, len(shape))
    made = list(shape)
    made.insert(len(shape) if axis == -1 else axis, depth)
    count, values = g.ops.const(depth, np.int64), g.ops.const([0.25, 1.5])
    return g.keep(g.ops("OneHot", ids, count, values, axis=axis), made)


STEPS = (compare, compare, extreme, top, whole_numbers, whole_numbers, rounding, lookup, one_hot)
