"""Search, sort, scan and scatter as folds: loop nests where TVM's legalisation has none.

TVM lowers these operators to sequential loops or to library calls, which no thread grid can run.
Each element of their result is a fold over the data, though: the rank of an element is the number
of elements before it, what a scatter leaves is the last update that names the place.  That takes
more arithmetic than a sequential algorithm (an axis of n elements costs n * n) and no trip to the
CPU.

Before -> after:
    R.argmax(x, axis)       extreme = max(x[r]); min(select(x[r] == extreme, r, n)), each of a long
                            axis in parts: max(part[p]), part[p] = max(x[r * parts + p]), and of a
                            vocabulary in parts of these
    R.topk(x, k)            rank[i] = sum(x[r] before x[i]); order[j] = sum(select(rank[r] == j, r))
    R.cumsum(x)             sum(select(r <= i, x[r], 0))

Pads by reflection are a loop nest of their own.  TVM writes the place that an element of a
reflected border comes from as m - |m - |i - p|| (m: the last place, p: the pad before the first).
Magnitudes of integers become nested conditions, each of which repeats the one within.  The lesser
of d and 2m - d, with d = |i - p| as the greater of i - p and p - i, is the same place in four
instructions.

The form matters beyond its length: of an image that is read at 5 - |x|, NVIDIA's compiler (driver
580.159, optimising) gives zeros everywhere.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from adrenoc.base.tvmapi import Expr, tvm

Nest = Callable[[Any], Any]
"""Gives for a call the TIR function of its arguments and results."""


def _extreme(dtype: str, sign: int) -> Expr:
    """Return the value that loses against every other: TVM's own are finite."""
    if str(dtype).startswith("float"):
        return tirx.const(sign * math.inf, dtype)
    return tirx.max_value(dtype) if sign > 0 else tirx.min_value(dtype)


def _product(dtype: str) -> Expr:
    return tirx.const(1, dtype)


# TVM inspects these functions: they must be Python's own, with two parameters.
def _larger(a: Expr, b: Expr) -> Expr:
    return tirx.max(a, b)


def _smaller(a: Expr, b: Expr) -> Expr:
    return tirx.min(a, b)


_INFINITE = {
    "max": te.comm_reducer(_larger, lambda t: _extreme(t, -1), name="max"),
    "min": te.comm_reducer(_smaller, lambda t: _extreme(t, +1), name="min"),
}
_PRODUCT = te.comm_reducer(lambda a, b: a * b, _product, name="product")


def _argument(kind: str) -> Nest:
    def nest(call: Any) -> Any:
        (x,) = _placeholders(call)
        shape, extreme_of = _ints(x.shape), _INFINITE[kind]
        axes = list(range(len(shape))) if call.attrs.axis is None else [int(call.attrs.axis)]
        axes = [a % len(shape) for a in axes]
        extents = [shape[a] for a in axes]
        kept = [1 if a in axes else d for a, d in enumerate(shape)]

        def place(index: Sequence[Expr], walked: Sequence[Expr]) -> list[Expr]:
            by_axis = dict(zip(axes, walked, strict=True))
            return [by_axis.get(a, i) for a, i in enumerate(index)]

        missing = tirx.const(math.prod(extents), "int32")
        dtype = str(x.dtype)
        loser = _extreme(dtype, -1 if kind == "max" else 1)

        def is_number(value: Expr) -> Expr:
            return value >= loser if kind == "max" else value <= loser

        def element(index: Sequence[Expr], walked: Sequence[Expr]) -> Expr:
            value = x(*place(index, walked))
            return tirx.Select(is_number(value), value, loser) if "float" in dtype else value

        def fold(reducer: Callable[..., Expr], element: Element, name: str) -> Any:
            return fold_over(kept, extents, reducer, element, name)

        extreme = fold(extreme_of, element, "extreme")
        first = fold(
            te.min,
            lambda i, walked: tirx.Select(
                x(*place(i, walked)) == extreme(*i), _linear(walked, extents), missing
            ),
            "first",
        )
        (out,) = fields_of(call)

        def result(*index: Expr) -> Expr:
            rest = list(index)
            if not call.attrs.keepdims:
                rest = [_zero() if a in axes else rest.pop(0) for a in range(len(shape))]
            found = first(*rest)
            if "float" in dtype:
                begin = x(*place(rest, [_zero()] * len(extents)))
                found = tirx.Select(is_number(begin), found, _zero())
            return found.astype(str(out.dtype))

        return _function([x], [te.compute(_ints(out.shape), result, name="position")])

    return nest


def _order(x: Any, axis: int, descending: bool, count: int) -> Any:
    """Return where along `axis` the first `count` elements in order stand; equal ones stay so."""
    shape = _ints(x.shape)
    extent = shape[axis]
    (r,) = make_loops([extent])

    def count_before(*index: Expr) -> Expr:
        here, there = x(*index), x(*_replace_position(index, axis, r))
        earlier = there > here if descending else there < here
        tied = tirx.And(there == here, r.var < index[axis])
        before = tirx.Select(tirx.Or(earlier, tied), tirx.const(1, "int32"), _zero())
        return te.sum(before, axis=r)

    rank = te.compute(shape, count_before, name="rank")
    (s,) = make_loops([extent])
    return te.compute(
        [count if a == axis else d for a, d in enumerate(shape)],
        lambda *i: te.sum(
            tirx.Select(rank(*_replace_position(i, axis, s)) == i[axis], s.var, _zero()), axis=s
        ),
        name="order",
    )


def _reorder(x: Any, axis: int, order: Any) -> Any:
    return te.compute(
        _ints(order.shape), lambda *i: x(*_replace_position(i, axis, order(*i))), name="in_order"
    )


def _sort(call: Any, descending: Any, kind: str) -> Any:
    (x,), fields = _placeholders(call), fields_of(call)
    axis = int(call.attrs.axis) % len(x.shape)
    order = _order(x, axis, bool(descending), _ints(fields[0].shape)[axis])
    results = [] if kind == "indices" else [_reorder(x, axis, order)]
    if kind != "values":
        results.append(_cast(order, fields[-1]))
    return _function([x], results)


def _scan(combine: Callable[..., Expr], neutral: int) -> Nest:
    def nest(call: Any) -> Any:
        (x,) = _placeholders(call)
        (out,) = fields_of(call)
        dtype, shape = str(out.dtype), _ints(x.shape)
        flat = call.attrs.axis is None
        axis = 0 if flat else int(call.attrs.axis) % len(shape)
        exclusive = bool(call.attrs.exclusive)
        (r,) = make_loops([math.prod(shape) if flat else shape[axis]])

        def element(*index: Expr) -> Expr:
            at = _unravel(r.var, shape) if flat else _replace_position(index, axis, r)
            taken = r.var < index[axis] if exclusive else r.var <= index[axis]
            value = x(*at).astype(dtype)
            return combine(tirx.Select(taken, value, tirx.const(neutral, dtype)), axis=r)

        return _function([x], [te.compute(_ints(out.shape), element, name="scan")])

    return nest


def _scatter_elements(call: Any) -> Any:
    data, indices, updates = _placeholders(call)
    shape, given = _ints(data.shape), _ints(indices.shape)
    axis = int(call.attrs.axis) % len(shape)

    def matches(index: Sequence[Expr], walked: Sequence[Expr]) -> Expr:
        named = _wrap_index(indices(*_replace_position(index, axis, walked[0])), shape[axis])
        found = named == index[axis].astype(str(indices.dtype))
        for a, extent in enumerate(given):
            if a != axis and extent < shape[a]:
                found = tirx.if_then_else(index[a] < extent, found, tirx.const(False, "bool"))
        return found

    return _scatter_updates(
        data,
        indices,
        updates,
        str(call.attrs.reduction),
        [given[axis]],
        matches,
        lambda index, walked: _replace_position(index, axis, walked[0]),
    )


def _scatter_nd(call: Any) -> Any:
    data, indices, updates = _placeholders(call)
    shape, given = _ints(data.shape), _ints(indices.shape)
    depth = given[-1]

    def matches(index: Sequence[Expr], walked: Sequence[Expr]) -> Expr:
        found = tirx.const(True, "bool")
        for a in range(depth):
            named = _wrap_index(indices(*walked, tirx.const(a, "int32")), shape[a])
            found = tirx.And(found, named == index[a].astype(str(indices.dtype)))
        return found

    return _scatter_updates(
        data,
        indices,
        updates,
        str(call.attrs.reduction),
        given[:-1],
        matches,
        lambda index, walked: [*walked, *index[depth:]],
    )


def _scatter_updates(
    data: Any,
    indices: Any,
    updates: Any,
    reduction: str,
    extents: Sequence[int],
    matches: Callable[[Sequence[Expr], Sequence[Expr]], Expr],
    source: Callable[[Sequence[Expr], Sequence[Expr]], Sequence[Expr]],
) -> Any:
    """Return the data with its updates: the last one, or all of them combined by `reduction`."""
    shape, dtype = _ints(data.shape), str(data.dtype)
    loops = make_loops(extents)
    walked = [r.var for r in loops]
    if reduction == "update":
        number = _linear(walked, extents)
        last = te.compute(
            shape,
            lambda *i: te.max(
                tirx.Select(matches(i, walked), number, tirx.const(-1, "int32")), axis=loops
            ),
            name="last",
        )

        def element(*index: Expr) -> Expr:
            found = updates(*source(index, _unravel(last(*index), extents)))
            return tirx.if_then_else(last(*index) >= 0, found, data(*index))

        return _function([data, indices, updates], [te.compute(shape, element, name="updated")])
    fold, combine, neutral = _REDUCTIONS[reduction]

    def guard(index: Sequence[Expr]) -> Expr:
        update = updates(*source(index, walked))
        return tirx.if_then_else(matches(index, walked), update, neutral(dtype))

    folded = te.compute(shape, lambda *i: fold(guard(i), axis=loops), name="folded")
    result = te.compute(shape, lambda *i: combine(data(*i), folded(*i)), name="updated")
    return _function([data, indices, updates], [result])


_REDUCTIONS: dict[str, tuple[Callable[..., Expr], Callable[..., Expr], Callable[..., Expr]]] = {
    "add": (te.sum, lambda a, b: a + b, lambda t: tirx.const(0, t)),
    "mul": (_PRODUCT, lambda a, b: a * b, lambda t: tirx.const(1, t)),
    "max": (_INFINITE["max"], tirx.max, lambda t: _extreme(t, -1)),
    "min": (_INFINITE["min"], tirx.min, lambda t: _extreme(t, +1)),
}

FOLD_NESTS: dict[str, Nest] = {
    "relax.argmax": _argument("max"),
    "relax.argmin": _argument("min"),
    "relax.argsort": lambda call: _sort(call, call.attrs.descending, "indices"),
    "relax.cumprod": _scan(_PRODUCT, 1),
    "relax.cumsum": _scan(te.sum, 0),
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
    "relax.sort": lambda call: _sort(call, call.attrs.descending, "values"),
    "relax.topk": lambda call: _sort(call, call.attrs.largest, str(call.attrs.ret_type)),
}
"""Relax operator -> its loop nest."""


# What all of them are written with


def _placeholders(call: Any) -> list[Any]:
    return [
        te.placeholder(_ints(a.ty.shape), str(a.ty.dtype), name=f"arg{i}")
        for i, a in enumerate(call.args)
    ]


def fields_of(value: Any) -> list[Any]:
    """Return the types of what a call or a variable holds, one or a tuple."""
    return list(value.ty.fields) if isinstance(value.ty, tvm.relax.TupleType) else [value.ty]


def _function(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    return te.create_prim_func([*inputs, *outputs])


def _ints(shape: Sequence[Any]) -> list[int]:
    return [int(d) for d in shape]


def _replace_position(index: Sequence[Expr], axis: int, to: Any) -> list[Expr]:
    """Return the index with another position along one axis."""
    return [getattr(to, "var", to) if a == axis else i for a, i in enumerate(index)]


def _linear(walked: Sequence[Expr], extents: Sequence[int]) -> Expr:
    number = _zero()
    for var, extent in zip(walked, extents, strict=True):
        number = number * extent + var
    return number


def _unravel(number: Expr, extents: Sequence[int]) -> list[Expr]:
    index: list[Expr] = []
    for extent in reversed(extents):
        index.insert(0, tirx.floormod(number, extent))
        number = tirx.floordiv(number, extent)
    return index


def _wrap_index(index: Expr, extent: int) -> Expr:
    """Return an index that may count from the end."""
    return tirx.Select(index < 0, index + extent, index)


def _cast(tensor: Any, ty: Any) -> Any:
    return te.compute(_ints(tensor.shape), lambda *i: tensor(*i).astype(str(ty.dtype)), name="cast")


def _zero() -> Expr:
    return tirx.const(0, "int32")


Element = Callable[..., Expr]
"""Gives an element for the index of a result and the places along the axes that are walked."""

LONG_FOLD = 2048
"""Elements that one thread folds alone; more are folded in parts, where few threads would run."""
FEW_RESULTS = 256
"""Results that leave most of a GPU idle, a thread each."""
LONG_PART = 128
"""Elements that one thread folds one after the other before a further kernel is quicker."""


def make_loops(extents: Sequence[int]) -> list[Any]:
    """Return the loops of a fold over axes of these extents."""
    return [te.reduce_axis((0, extent), f"r{i}") for i, extent in enumerate(extents)]


def fold_over(
    kept: Sequence[int],
    extents: Sequence[int],
    reducer: Callable[..., Expr],
    element: Element,
    name: str,
) -> Any:
    """Fold `element(index, walked)` over axes, in parts where few threads would."""
    parts = _count_parts(math.prod(kept), extents)
    if not parts:
        loops = make_loops(extents)
        return te.compute(
            kept, lambda *i: reducer(element(i, [v.var for v in loops]), axis=loops), name=name
        )
    folded = _fold_in_parts(kept, reducer, element, extents[0], parts[0], f"{name}_parts")
    for number, count in enumerate(parts[1:], start=1):
        named = f"{name}_parts{number}"
        folded = _fold_in_parts(kept, reducer, _element_of(folded), parts[number - 1], count, named)
    (over,) = make_loops([parts[-1]])
    return te.compute(kept, lambda *i: reducer(folded(*i, over.var), axis=[over]), name=name)


def _count_parts(results: int, extents: Sequence[int]) -> list[int]:
    """Return how many threads of a result begin a fold, and how many go on, each of as many."""
    if len(extents) != 1 or results > FEW_RESULTS or extents[0] <= LONG_FOLD:
        return []
    kernels = 2
    while extents[0] > LONG_PART**kernels:
        kernels += 1
    each = 1
    while each**kernels < extents[0]:
        each += 1
    return [each**left for left in range(kernels - 1, 0, -1)]


def _fold_in_parts(
    kept: Sequence[int],
    reducer: Callable[..., Expr],
    element: Element,
    extent: int,
    parts: int,
    name: str,
) -> Any:
    """Fold each `parts`-th of `extent` elements, from each of the first ones on."""
    (steps,) = make_loops([-(-extent // parts)])

    def fold_part(*i: Expr) -> Expr:
        walked = tirx.min(steps.var * parts + i[-1], tirx.const(extent - 1, "int32"))
        return reducer(element(i[:-1], [walked]), axis=[steps])

    return te.compute([*kept, parts], fold_part, name=name)


def _element_of(tensor: Any) -> Element:
    return lambda index, walked: tensor(*index, *walked)


def is_mirror(call: Any, name: str) -> bool:
    """Return whether a call pads by reflection."""
    return name == "relax.nn.pad" and str(call.attrs.pad_mode) == "reflect"


def mirror_nest(call: Any) -> Any:
    """Return the TIR function of a pad by reflection: its input, then its result."""
    (data,) = call.args
    shape = [int(extent) for extent in data.ty.shape]
    pads = [int(width) for width in call.attrs.pad_width]
    source = te.placeholder(shape, str(data.ty.dtype), name="data")
    around = list(zip(shape, pads[::2], pads[1::2], strict=True))

    def read_mirrored(*index: Expr) -> Expr:
        return source(
            *(
                _mirror(i, before, extent - 1) if before or after else i
                for i, (extent, before, after) in zip(index, around, strict=True)
            )
        )

    padded = [extent + before + after for extent, before, after in around]
    result = te.compute(padded, read_mirrored, name="mirrored")
    return te.create_prim_func([source, result])


def _mirror(index: Expr, before: int, last: int) -> Expr:
    """Return the place along an axis that a place of the padded axis shows."""
    from_first = tirx.max(index - before, before - index)
    return tirx.min(from_first, 2 * last - from_first)
