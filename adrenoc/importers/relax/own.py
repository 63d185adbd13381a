"""Operators of Relax that are adrenoc's own: what TVM has none for, and a family computes whole.

Their attributes say the shape and the dtype of the result, and which constants stand behind the
operands of attention over caches: each kind where its attribute is not zero, in the order of a
table.  Each is also a plain loop nest, for where its family does not compute it: slower than its
kernels, and just as right.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.ir import Call, Op
from tvm.ir import op as registry
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812 - as TVM's own do

from adrenoc.base.tvmapi import decl_buffer, dtype_of
from adrenoc.importers.relax.recurrent import GATES, Cell, recurrent_nest
from adrenoc.importers.relax.values import Emitter, make_constant

Held = TypeVar("Held")

Kinds = Sequence[tuple[str, str, int]]
"""(name, attribute that is not zero where it is there, how many operands it is)."""

_OF_HEADS: Kinds = (("tables", "rotated", 2), ("gains", "normed", 1))
OF_ROWS: Kinds = (*_OF_HEADS, ("scales", "bits", 1))
"""Of what adds rows: cosines and sines, the weights of a norm of each head, and the scales of all
channels of a cache that keeps numbers in so many bits."""
OF_ATTENTION: Kinds = (
    *_OF_HEADS,
    ("sinks", "sunk", 1),
    ("bias", "biased", 1),
    ("scales", "bits", 2),
)
"""Of attention: also a score of each head beside those of rows, what is added to the scores of each
head [heads, rows], by how many rows a row lies before the token, and the scales of keys and of
values."""


ROW, KEYS, VALUES = 1, 2, 3
"""Inputs of attention behind its queries: the number of the first row, then caches."""

NIBBLE = 4
"""Bits of which a byte of a cache has two numbers, the first in the low ones."""


def rows_of(held: int, attrs: Mapping[str, Any]) -> int:
    """Return how many rows there may be of a cache that holds so many, which are the last ones."""
    return int(attrs["context"]) or held


def head_of(width: int, bits: int) -> int:
    """Return numbers of a head whose cache has so wide rows of so many bits (0: floats)."""
    return 2 * width if bits == NIBBLE else width


def name_constants(
    kinds: Kinds, attrs: Mapping[str, Any], others: Sequence[Held]
) -> dict[str, Sequence[Held]]:
    """Return the constants of each kind; none of those that are not there."""
    found: dict[str, Sequence[Held]] = {}
    begin = 0
    for name, attribute, count in kinds:
        end = begin + (count if int(attrs[attribute]) else 0)
        found[name] = others[begin:end]
        begin = end
    return found


def n_bits_nest(builder: Any, call: Any) -> Any:
    """Open each weight where it is read."""
    block, zero, bits = (call.attrs[name] for name in ("block", "zero", "bits"))
    a_byte = 8 // int(bits)
    has_zeros = bool(call.attrs["zeros"])

    def compute(x: Any, packed: Any, scales: Any, *zeros: Any) -> Any:
        k = te.reduce_axis((0, x.shape[-1]), "k")

        def weight(n: Any) -> Any:
            at = tirx.floordiv(k, int(block))
            byte = packed[n, at, tirx.floordiv(tirx.floormod(k, int(block)), a_byte)]
            shift = tirx.floormod(k, a_byte) * int(bits)
            code = tirx.floormod(byte.astype("int32") >> shift, 1 << int(bits)).astype(str(x.dtype))
            middle = tirx.const(float(zero), x.dtype)
            if has_zeros:
                middle = zeros[0][n, at].astype(str(x.dtype))
            return (code - middle) * scales[n, at].astype(str(x.dtype))

        def total(*at: Any) -> Any:
            read = (*at[:-1], k)
            return te.sum(x[read] * weight(at[-1]), axis=k)

        return te.compute((*x.shape[:-1], packed.shape[0]), total, name="n_bits")

    return builder.call_te(compute, *call.args, primfunc_name_hint="n_bits")


def append_rows_nest(builder: Any, call: Any) -> Any:
    """Give each element of the cache, old or new."""
    attrs = call.attrs

    def compute(cache: Any, x: Any, position: Any, *others: Any) -> Any:
        tokens, bits = x.shape[1], int(attrs["bits"])
        head = head_of(int(cache.shape[3]), bits)
        held = name_constants(OF_ROWS, attrs, others)
        tables = held["tables"]
        read = _norm(attrs, x, int(cache.shape[1]), int(head), held["gains"])

        def element(n: Any, h: Any, place: Any, j: Any) -> Any:
            token, row = place - position[0], place
            if int(attrs["context"]):  # the place is that of one row in so many
                token = tirx.floormod(token, int(cache.shape[2]))
                row = position[0] + token
            inside = tirx.all(token >= 0, token < tokens)

            def new(at: Any) -> Any:
                return read(h, tirx.max(tirx.min(token, tokens - 1), 0), at)

            def whole(at: Any) -> Any:
                value = _rotate(attrs, new, tables, row, at)
                if not bits:
                    return value
                value = te.nearbyint(value / held["scales"][0][h * head + at].astype(str(x.dtype)))
                last = float((1 << (bits - 1)) - 1)
                return tirx.max(tirx.min(value, last), -last - 1).astype("int32")

            if bits == NIBBLE:
                low, high = (whole(2 * j + i) + 8 for i in range(2))
                value = low + high * 16
            else:
                value = whole(j)
            return te.if_then_else(inside, value.astype(str(cache.dtype)), cache[n, h, place, j])

        return te.compute(tuple(cache.shape), element, name="append_rows")

    return builder.call_te(compute, *call.args, primfunc_name_hint="append_rows")


def cached_attention_nest(builder: Any, call: Any) -> Any:
    """Compute scores of all rows, those that are not seen far below; softmax; the mix of values."""
    attrs = call.attrs
    heads, window = int(attrs["heads"]), int(attrs["window"])

    def compute(q: Any, position: Any, keys: Any, values: Any, *others: Any) -> Any:
        _, kv_heads, rows, width = (int(extent) for extent in keys.shape)
        tokens, group, dtype = int(q.shape[1]), heads // kv_heads, str(q.dtype)
        head = head_of(width, int(attrs["bits"]))
        far = tirx.const(-3.0e4 if dtype == "float16" else -3.0e38, dtype)
        held = name_constants(OF_ATTENTION, attrs, others)
        scores = _scores(attrs, q, position, keys, held)

        def row_at(place: Any) -> Any:
            """Return the row that lies there, which is negative where none does."""
            if not int(attrs["context"]):
                return place
            newest = position[0] + (tokens - 1)
            return newest - tirx.floormod(newest - place, rows)

        def hide(h: Any, t: Any, place: Any) -> Any:
            at, r = position[0] + t, row_at(place)
            is_seen = tirx.all(r <= at, r > at - window) if window else r <= at
            if int(attrs["context"]):
                is_seen = tirx.all(is_seen, r >= 0)
            score = scores[h, t, place]
            for bias in held["bias"]:
                score += bias[h, tirx.max(tirx.min(at, rows - 1) - r, 0)].astype(dtype)
            return te.if_then_else(is_seen, score, far)

        masked = te.compute((heads, tokens, rows), hide, name="masked")
        power, total = _powers(masked, held["sinks"])
        c = te.reduce_axis((0, rows), "c")

        def is_there(t: Any, place: Any, value: Any) -> Any:
            r = row_at(place)
            seen = tirx.all(r <= position[0] + t, r >= 0)
            return te.if_then_else(seen, value, tirx.const(0.0, dtype))

        def mix(h: Any, t: Any, j: Any) -> Any:
            value = _read_number(
                attrs, values, held["scales"][1:], tirx.floordiv(h, group), c, j, dtype
            )
            return te.sum(power[h, t, c] * is_there(t, c, value), axis=c)

        mixed = te.compute((heads, tokens, head), mix, name="mixed")

        def result(n: Any, t: Any, channel: Any) -> Any:
            h = tirx.floordiv(channel, head)
            return mixed[h, t, tirx.floormod(channel, head)] / total[h, t]

        return te.compute((1, tokens, heads * head), result, name="attention")

    return builder.call_te(compute, *call.args, primfunc_name_hint="cached_attention")


def _scores(attrs: Any, q: Any, position: Any, keys: Any, held: Any) -> Any:
    """Return [head, token, row] of rotated, scaled queries times keys, bounded by a cap."""
    heads, cap = int(attrs["heads"]), float(attrs["cap"])
    _, kv_heads, rows, width = (int(extent) for extent in keys.shape)
    tokens, group, dtype = int(q.shape[1]), heads // kv_heads, str(q.dtype)
    head = head_of(width, int(attrs["bits"]))
    tables, read = held["tables"], _norm(attrs, q, heads, head, held["gains"])

    def query(h: Any, token: Any, j: Any) -> Any:
        at = tirx.min(position[0] + token, rows_of(rows, attrs) - 1)
        turned = _rotate(attrs, lambda i: read(h, token, i), tables, at, j)
        return turned * tirx.const(float(attrs["scale"]), dtype)

    turned = te.compute((heads, tokens, head), query, name="turned")
    d = te.reduce_axis((0, head), "d")

    def product(h: Any, t: Any, r: Any) -> Any:
        key = _read_number(attrs, keys, held["scales"][:1], tirx.floordiv(h, group), r, d, dtype)
        return te.sum(turned[h, t, d] * key, axis=d)

    scores = te.compute((heads, tokens, rows), product, name="scores")
    if not cap:
        return scores
    bound = tirx.const(cap, dtype)
    return te.compute(scores.shape, lambda *at: te.tanh(scores[at] / bound) * bound, name="capped")


def _read_number(
    attrs: Any, cache: Any, scales: Any, head: Any, row: Any, channel: Any, dtype: str
) -> Any:
    """Return a number of a cache, opened where it keeps whole ones."""
    bits = int(attrs["bits"])
    if not bits:
        return cache[0, head, row, channel].astype(dtype)
    size = head_of(int(cache.shape[3]), bits)
    if bits == NIBBLE:
        byte = cache[0, head, row, tirx.floordiv(channel, 2)].astype("int32")
        number = tirx.floormod(byte >> (tirx.floormod(channel, 2) * 4), 16) - 8
    else:
        number = cache[0, head, row, channel]
    return number.astype(dtype) * scales[0][head * size + channel].astype(dtype)


def _powers(masked: Any, sinks: Any) -> tuple[Any, Any]:
    """Return exp(score - the largest of its row), and the sums of these and of what sinks take."""
    heads, tokens, rows = masked.shape
    a, b = (te.reduce_axis((0, rows), name) for name in "ab")
    most = te.compute((heads, tokens), lambda h, t: te.max(masked[h, t, a], axis=a), name="most")
    power = te.compute(
        masked.shape, lambda h, t, r: te.exp(masked[h, t, r] - most[h, t]), name="power"
    )
    total = te.compute((heads, tokens), lambda h, t: te.sum(power[h, t, b], axis=b), name="total")
    if not sinks:
        return power, total
    (sink,) = sinks

    return power, te.compute(
        (heads, tokens),
        lambda h, t: total[h, t] + te.exp(sink[h].astype(str(masked.dtype)) - most[h, t]),
        name="drained",
    )


def _norm(attrs: Any, x: Any, heads: int, head: int, gains: Any) -> Any:
    """Reads number `j` of a head of a token, less its length where there are weights of a norm."""
    first = int(attrs["first"])
    if not gains:
        return lambda h, token, j: x[0, token, first + h * head + j]
    tokens, dtype, k = int(x.shape[1]), "float32", te.reduce_axis((0, head), "k")

    def square(h: Any, token: Any) -> Any:
        value = x[0, token, first + h * head + k].astype(dtype)
        return te.sum(value * value, axis=k)

    squares = te.compute((heads, tokens), square, name="squares")

    def read_normed(h: Any, token: Any, j: Any) -> Any:
        mean = squares[h, token] / head + tirx.const(float(attrs["epsilon"]), dtype)
        value = x[0, token, first + h * head + j].astype(dtype) / te.sqrt(mean)
        return (value * gains[0][j].astype(dtype)).astype(str(x.dtype))

    return read_normed


def _rotate(attrs: Any, read: Any, tables: Any, position: Any, j: Any) -> Any:
    """Return number `j` of a head, turned by the angle of a position where it is one of a pair."""
    width = int(attrs["rotated"])
    if not width:
        return read(j)
    middle, apart = width // 2, not int(attrs["interleaved"])
    at = tirx.min(j, width - 1)
    first = at < middle if apart else tirx.floormod(at, 2) == 0
    angle = tirx.floormod(at, middle) if apart else tirx.floordiv(at, 2)
    step = middle if apart else 1
    other = te.if_then_else(first, at + step, at - step)
    x, y = (tirx.convert(read(i)) for i in (at, other))
    cos, sin = (table[position, angle].astype(dtype_of(x)) for table in tables)
    turned = x * cos + te.if_then_else(first, -y, y) * sin
    return te.if_then_else(j < width, turned, read(j))


def inverse_nest(builder: Any, call: Any) -> Any:
    """Eliminate column by column, with the largest element of each as its pivot."""
    shape = [int(extent) for extent in call.attrs["result_shape"]]
    dtype = str(call.args[0].ty.dtype)

    def compute(x: Any) -> Any:
        def write(ins: Any, outs: Any) -> Any:
            with IRBuilder() as written:
                _each_matrix(shape, dtype, T.buffer_proxy(ins[0]), T.buffer_proxy(outs[0]), ())
            return written.get()

        out = decl_buffer(shape, dtype, name="out")
        return te.extern([shape], [x], write, dtype=[dtype], out_buffers=[out], name="inverse")

    return builder.call_te(compute, *call.args, primfunc_name_hint="inverse")


def _each_matrix(shape: list[int], dtype: str, x: Any, out: Any, at: tuple[Any, ...]) -> None:
    """Write the loops over the axes before the last two, and those of a matrix within them."""
    if len(at) < len(shape) - 2:
        with T.serial(0, shape[len(at)]) as i:
            _each_matrix(shape, dtype, x, out, (*at, i))
        return
    rows = shape[-1]
    left = T.buffer_proxy(T.alloc_buffer((rows, rows), dtype))
    held = T.buffer_proxy(T.alloc_buffer((1,), dtype))
    with T.serial(0, rows) as i, T.serial(0, rows) as j:
        here = (*at, i, j)
        left[i, j] = x[here]
        out[here] = tirx.Select(i == j, tirx.const(1.0, dtype), tirx.const(0.0, dtype))
    with T.serial(0, rows) as k:
        _eliminate(rows, k, held, (left, ()), (out, at))


def _eliminate(rows: int, k: Any, held: Any, *halves: tuple[Any, tuple[Any, ...]]) -> None:
    """Write the elimination of column `k`; the halves are the matrix and what was the identity."""
    left = halves[0][0]
    with (
        T.serial(k + 1, rows) as i,
        T.If(tirx.abs(left[i, k]) > tirx.abs(left[k, k])),
        T.Then(),
        T.serial(0, rows) as j,
    ):
        for half, at in halves:
            here, there = (*at, k, j), (*at, i, j)
            held[0] = half[here]
            half[here] = half[there]
            half[there] = held[0]
    held[0] = left[k, k]
    with T.serial(0, rows) as j:
        for half, at in halves:
            here = (*at, k, j)
            half[here] = half[here] / held[0]
    with T.serial(0, rows) as i, T.If(i != k), T.Then():
        held[0] = left[i, k]
        with T.serial(0, rows) as j:
            for half, at in halves:
                here, there = (*at, k, j), (*at, i, j)
                half[there] = half[there] - held[0] * half[here]


N_BITS = "adrenoc.n_bits"
"""x [..., K] by weights in 2, 4 or 8 bits: bytes, scales and perhaps zero points."""
APPEND_ROWS = "adrenoc.append_rows"
"""A cache [1, heads, rows, head] with the rows of some tokens from a given one on."""
RECURRENT = "adrenoc.recurrent"
"""All steps of an RNN, GRU or LSTM, of what their inputs add to the gates."""
INVERSE = "adrenoc.inverse"
"""The inverse of each matrix [..., rows, rows]."""
CACHED_ATTENTION = "adrenoc.cached_attention"
"""Queries, from a given row on, over the rows of keys and values up to their own."""

PLAIN: Mapping[str, Any] = {
    **dict.fromkeys(("first", "rotated", "interleaved", "normed", "bits", "context"), 0),
    "epsilon": 0.0,
}
"""Attributes of operators over caches that do no more than they have to."""
_SHAPE, _DTYPE = "result_shape", "result_dtype"
_NESTS = {
    N_BITS: n_bits_nest,
    APPEND_ROWS: append_rows_nest,
    CACHED_ATTENTION: cached_attention_nest,
    INVERSE: inverse_nest,
    RECURRENT: recurrent_nest,
}
"""Operator -> what lowers it to plain loop nests, where its family does not compute it."""


def call_own(
    name: str, inputs: Sequence[relax.Expr], *, shape: Sequence[int], **attrs: Any
) -> relax.Expr:
    """Return a call of one of our operators, whose result is of the first operand's type.
    Attributes are numbers, texts, or lists of numbers."""
    held = {**attrs, _SHAPE: [int(e) for e in shape], _DTYPE: str(inputs[0].ty.dtype)}
    return Call(Op.get(name), list(inputs), tvm.ir.make_node("ir.DictAttrs", **held), [])


def _result_type(call: Any, _builder: Any) -> Any:
    return relax.TensorType([int(d) for d in call.attrs[_SHAPE]], str(call.attrs[_DTYPE]))


def _register() -> None:
    for name in set(_NESTS).difference(map(str, Op.list_op_names())):
        registry._ffi_api.RegisterOp(name, "adrenoc's own")
        registry.register_op_attr(name, "FInferType", _result_type)
        registry.register_op_attr(name, "FPurity", True)
        registry.register_op_attr(name, "FLegalize", _NESTS[name])


_register()


_LANES = 4


@dataclass(frozen=True, kw_only=True)
class RecurrentLayer:
    """One direction of a layer, in ONNX's order of gates; what is computed runs on the CPU.

    Shapes:
        weights: [gates, units, depth]
        recurrence: [gates, units, units]
        bias: [gates, units], or None
        extra: [3, units] peepholes or [1, units], a GRU's bias of what is reset; or None"""

    cell: Cell
    weights: relax.Expr
    recurrence: relax.Expr
    bias: relax.Expr | None
    extra: relax.Expr | None
    reverse: bool
    reset_before: bool
    keeps_cell: bool

    @property
    def units(self) -> int:
        """Numbers of a state."""
        return int(self.recurrence.ty.shape[1])


def call_recurrent(
    emit: Emitter,
    layer: RecurrentLayer,
    x: relax.Expr,
    states: Sequence[relax.Expr],
    hold: Callable[[int, int], relax.Expr] | None = None,
) -> relax.Expr:
    """Return [batch, step, units] of x [batch, step, depth]; with `keeps_cell` the last cell after
    them.

    Each gate begins at a whole block of channels, so that none is read of two.  `hold` gives what
    is added to the gates, of their number and the width of each."""
    batch, steps, depth = (int(extent) for extent in x.ty.shape)
    gates, more = GATES[layer.cell.kind], -layer.units % _LANES
    width = gates * (layer.units + more)

    def lay(part: relax.Expr, *rest: int) -> relax.Expr:
        """Return [gates, units, ...] as the rows of all gates, filled up with zeros."""
        filled = [part, make_constant(np.zeros((gates, more, *rest), np.float32))]
        whole = relax.op.concat(filled, axis=1) if more else part
        return emit(relax.op.reshape(whole, [width, *rest]))

    weights = relax.op.permute_dims(lay(layer.weights, depth), [1, 0])
    projected = emit(relax.op.matmul(x, weights))
    if layer.bias is not None:
        projected = emit(relax.op.add(projected, lay(layer.bias)))
    if hold is not None:
        projected = emit(relax.op.add(projected, hold(gates, layer.units + more)))
    inputs = [projected, layer.recurrence, *([] if layer.extra is None else [layer.extra])]
    return emit(
        call_own(
            RECURRENT,
            [*inputs, *states],
            shape=(batch, steps + layer.keeps_cell, layer.units),
            kind=layer.cell.kind,
            activations=",".join(layer.cell.activations),
            clip=layer.cell.clip,
            clip_cell=layer.cell.clip_cell,
            extras=int(layer.extra is not None),
            states=len(states),
            reverse=int(layer.reverse),
            reset_before=int(layer.reset_before),
            keeps_cell=int(layer.keeps_cell),
        )
    )
