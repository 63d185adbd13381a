"""Attention as onnxruntime's own domain has it, in standard operators and adrenoc's.

Before -> after, in matrix products and a softmax:
    y = com.microsoft.MultiHeadAttention(q, k, v)    y = Softmax(q k^T / sqrt(d)) v by head

Before -> after, with `cos` and `sin` the rows of the tables at the positions:
    y = com.microsoft.RotaryEmbedding(x, positions, cosines, sines)

    a, b = the halves of each head of x (or its even and odd numbers)
    y = Concat(a * cos - b * sin, b * cos + a * sin, what is not rotated)

Before -> after, over keys and values of earlier tokens:
    y, keys, values = com.microsoft.GroupQueryAttention(qkv, past keys, past values, ...)

    keys = adrenoc.AppendRows(past keys, qkv, row)      rotated where the operator rotates inside
    values = adrenoc.AppendRows(past values, qkv, row)
    y = adrenoc.CachedAttention(qkv, row, keys, values)

Norms of the heads of queries and keys (`q_norm_weight`) are computed where these rotate.  `row` is
the number of the first new row, which is how many tokens there were before.

Source: onnxruntime's ContribOperators reference, and version 1.31 of it tried.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.importers.imported import check_grown
from adrenoc.importers.onnx.graph import Writer
from adrenoc.importers.relax.own import NIBBLE

PLAIN_ROTATION = {"is_packed_batching": (0,), "scale": (1.0,)}
"""Attribute -> the one value that is covered, its default."""


@dataclass(frozen=True, kw_only=True)
class _Form:
    """Extents: `heads` is the axis that heads lie along, once they are apart."""

    batch: int
    tokens: int
    count: int
    head: int
    rotated: int
    heads: int

    def apart(self, *inner: int) -> tuple[int, ...]:
        """Return the shape with heads apart, and `inner` in place of a head's numbers."""
        middle = (self.count, self.tokens) if self.heads == 1 else (self.tokens, self.count)
        return (self.batch, *middle, *inner)


def _rotary_embedding(write: Writer) -> None:
    write.refuse_odd(PLAIN_ROTATION)
    form = _read_form(write)
    x = write.reshape(write.input(0), *form.apart(form.head))
    cos, sin = (_rows_at(write, form, table) for table in (2, 3))
    part, *rest = write.split(x, [s for s in (form.rotated, form.head - form.rotated) if s], 3)
    interleaved = bool(write.number("interleaved", 0))
    a, b = _pairs(write, form, part, interleaved=interleaved)
    turned = [
        write("Sub", write("Mul", a, cos), write("Mul", b, sin)),
        write("Add", write("Mul", b, cos), write("Mul", a, sin)),
    ]
    if interleaved:
        beside = [write.reshape(one, *form.apart(form.rotated // 2, 1)) for one in turned]
        turned = [write.reshape(write("Concat", *beside, axis=4), *form.apart(form.rotated))]
    whole = [*turned, *rest]
    y = write("Concat", *whole, axis=3) if len(whole) > 1 else whole[0]
    write.reshape(y, *write.shape(write.input(0)), out=write.result)


def _read_form(write: Writer) -> _Form:
    shape, table = write.shape(write.input(0)), write.shape(write.input(2))
    count = int(write.number("num_heads", 0))
    rotated = 2 * table[-1]
    if int(write.number("rotary_embedding_dim", 0)) not in (0, rotated):
        raise RefusedError(f"it rotates {rotated} numbers by its cosines, by attribute others")
    if len(shape) == 4:
        batch, count, tokens, head = shape
        heads = 1
    elif len(shape) == 3:
        batch, tokens, width = shape
        count = count or width // rotated
        head, heads = width // count, 2
    else:
        raise RefusedError(f"its operand has {len(shape)} axes, expected 3 or 4")
    if count * head != (shape[1] * head if heads == 1 else shape[2]) or head < rotated:
        raise RefusedError(f"its heads do not fit {list(shape)} with {rotated} rotated")
    return _Form(batch=batch, tokens=tokens, count=count, head=head, rotated=rotated, heads=heads)


def _rows_at(write: Writer, form: _Form, table: int) -> str:
    """Return the rows of a table at the positions, in a shape that broadcasts over heads."""
    positions = write.input(1)
    given = write.shape(positions)
    if given == (1,):  # the first token's
        dtype = np.dtype(write.dtype(positions))
        positions = write("Add", positions, write.array(np.arange(form.tokens, dtype=dtype)))
    elif given != (form.batch, form.tokens):
        raise RefusedError(
            f"its positions have the shape {list(given)}, expected [1] or "
            f"{[form.batch, form.tokens]}"
        )
    rows = write("Gather", write.input(table), positions, axis=0)
    batch = 1 if given == (1,) else form.batch
    middle = (1, form.tokens) if form.heads == 1 else (form.tokens, 1)
    return write.reshape(rows, batch, *middle, form.rotated // 2)


def _pairs(write: Writer, form: _Form, x: str, *, interleaved: bool) -> list[str]:
    """Return the first and the second numbers of all pairs."""
    half = form.rotated // 2
    if not interleaved:
        return write.split(x, [half, half], 3)
    apart = write.reshape(x, *form.apart(half, 2))
    return [write.reshape(one, *form.apart(half)) for one in write.split(apart, [1, 1], 4)]


_FAR = -10000.0
"""What the operators add where a mask is zero, unless told otherwise."""
_SHARED = "its caches are longer than what they hold (past_sequence_length)"


def _attention(write: Writer) -> None:
    x, weight = write.input(0), write.input(1)
    if write.input(6):
        raise RefusedError(_SHARED)
    if write.number("do_rotary", 0):
        raise RefusedError("it rotates inside (do_rotary)")
    batch, length, _ = write.shape(x)
    total = write.shape(weight)[1]
    given = write.attrs.get("qkv_hidden_sizes")
    sizes = [int(v) for v in given] if given else [total // 3] * 3
    projected = write("MatMul", x, weight)
    if write.input(2):
        projected = write("Add", projected, write.input(2))
    attend(
        write,
        projected,
        (batch, length),
        sizes,
        mask=write.input(3),
        bias=write.input(5),
        past=write.input(4),
        present=write.output(1),
    )


def attend(
    write: Writer,
    projected: str,
    extents: tuple[int, int],
    sizes: list[int],
    *,
    mask: str,
    bias: str = "",
    past: str = "",
    present: str = "",
) -> None:
    """Write attention of queries, keys and values [batch, length, sum of sizes] in one tensor.

    `past` holds the keys and the values before them, [2, batch, heads, past, head], and `present`
    is the name that both are wanted by together with the new ones."""
    batch, length = extents
    q, k, v = (_split_heads(write, p, batch, length) for p in write.split(projected, sizes, 2))
    total = length
    if past:
        _, _, heads, before, head = write.shape(past)
        total += before
        k, v = (
            write("Concat", write.reshape(half, batch, heads, before, head), new, axis=2)
            for half, new in zip(write.split(past, [1, 1], 0), (k, v), strict=True)
        )
    if present:
        heads = int(write.number("num_heads", 1))
        both = (write.reshape(x, 1, batch, heads, total, -1) for x in (k, v))
        write("Concat", *both, out=present, axis=0)
    _heads(write, [q, k, v], (batch, length, total), sizes[0], mask=mask, bias=bias)


def _multi_head_attention(write: Writer) -> None:
    query, key, value, bias = (write.input(index) for index in range(4))
    if any(write.input(index) for index in (8, 9)):
        raise RefusedError(_SHARED)
    if write.output(3):
        raise RefusedError("it gives its scores, too")
    if len(write.shape(query)) != 3 or not key or not value:
        raise RefusedError("query, key and value come packed in one tensor")
    batch, length, hidden = write.shape(query)
    apart = len(write.shape(key)) == 4  # [batch, heads, length, head]: already split
    total = write.shape(value)[-2]
    parts = [query, key, value]
    if bias:
        own = write.split(bias, [hidden, hidden, write.shape(bias)[0] - 2 * hidden], 0)
        parts = [
            write("Add", part, b) if len(write.shape(name)) == 3 else part
            for part, name, b in zip(parts, (query, key, value), own, strict=True)
        ]
    extents = (length, total, total)
    split = [
        part if apart and index else _split_heads(write, part, batch, extents[index])
        for index, part in enumerate(parts)
    ]
    for index, (past, present) in enumerate(((6, 1), (7, 2)), start=1):
        if write.input(past):
            total = write.shape(write.input(past))[2] + extents[index]
            split[index] = write("Concat", write.input(past), split[index], axis=2)
        if write.output(present):
            write("Identity", split[index], out=write.output(present))
    mask, bias = write.input(4), write.input(5)
    _heads(write, split, (batch, length, total), hidden, mask=mask, bias=bias)


def _split_heads(write: Writer, x: str, batch: int, length: int) -> str:
    """Reshape [batch, length, heads * head] to [batch, heads, length, head]."""
    heads = int(write.number("num_heads", 1))
    return write("Transpose", write.reshape(x, batch, length, heads, -1), perm=[0, 2, 1, 3])


def _heads(
    write: Writer, parts: list[str], extents: Sequence[int], hidden: int, *, mask: str, bias: str
) -> None:
    """Write Softmax(q k^T * scale + mask) v for all heads, joined again."""
    (q, k, v), (batch, length, total) = parts, extents
    mask = _mask(write, mask, batch, length, total)
    scale = write.number("scale", 0.0) or 1 / math.sqrt(hidden / write.number("num_heads", 1))
    scores = write("MatMul", q, write("Transpose", k, perm=[0, 1, 3, 2]))
    scores = write("Mul", scores, write.constant(scale))
    if bias:
        scores = write("Add", scores, bias)
    if mask:
        scores = write("Add", scores, mask)
    if write.number("unidirectional", 0):
        dtype = write.float_dtype
        check_grown(length * total)
        later = np.triu(np.ones((length, total), bool), total - length + 1)
        far = np.finfo(dtype).min
        hidden_ones = write.array(np.where(later, far, 0).astype(dtype))
        scores = write("Add", scores, hidden_ones)
    weighted = write("MatMul", write("Softmax", scores, axis=3), v)
    joined = write("Transpose", weighted, perm=[0, 2, 1, 3])
    write.reshape(joined, batch, length, -1, out=write.result)


def _mask(write: Writer, mask: str, batch: int, length: int, total: int) -> str:
    """Return what a mask adds to scores [batch, heads, length, total]; empty where none is."""
    if not mask:
        return ""
    shape = write.shape(mask)
    if shape == (batch, total):
        kept = write.reshape(mask, batch, 1, 1, total)
    elif shape == (batch, length, total):
        kept = write.reshape(mask, batch, 1, length, total)
    elif shape == (batch,):
        numbers = write.array(np.arange(total, dtype=np.dtype(write.dtype(mask))))
        kept = write("Less", numbers, write.reshape(mask, batch, 1, 1, 1))
    else:
        raise RefusedError(
            f"its mask has the shape {list(shape)}; expected {[batch, total]}, "
            f"{[batch, length, total]} or {[batch]}"
        )
    far = write.constant(write.number("mask_filter_value", _FAR))
    return write("Where", write("Cast", kept, to=9), write.constant(0.0), far)


APPEND_ROWS = "adrenoc.AppendRows"
"""Our own operator: cache [1, heads, rows, head], x, first row [1], perhaps cosines and sines, and
perhaps the weights of a norm of each head."""
CACHED_ATTENTION = "adrenoc.CachedAttention"
"""Our own operator: x, first row [1], keys, values; perhaps tables and weights as above."""

FIRST_ROW = "adrenoc_first_row"
"""Attribute of a GroupQueryAttention whose length is the number of its first row."""

BY_DISTANCE = "adrenoc_bias_by_distance"
"""Attribute of one whose attention_bias is a constant [heads, rows], by how many rows a row lies
before the token."""

_PAST, _LENGTH, _TOTAL, _TABLES, _NORMS = (3, 4), 5, 6, (7, 8), (14, 15)
BIAS, SINKS = 10, 11
"""Inputs of a GroupQueryAttention."""
_SCALES = (12, 13)
_NOT_HERE = {9: "position_ids"}
"""Inputs that nothing here computes with."""
_QUANTA = ("k_quant_type", "v_quant_type")
_KEPT = {8: np.dtype(np.int8), NIBBLE: np.dtype(np.uint8)}
"""Bits of a number in a cache -> dtype of the cache."""
_PLAIN_ATTRIBUTES = {
    "causal": (1,),
    "qk_output": (0,),
    "sliding_window_cache": (0, 1),
    "smooth_softmax": (0, -1, 1),
}
"""Attribute -> the values that are covered, the default among them.  A cache that slides holds the
rows of the window: what a token sees is the same in one of all rows."""


@dataclass(frozen=True, kw_only=True)
class _Heads:
    """How queries, keys and values lie: each in a tensor, from a channel on."""

    parts: tuple[tuple[str, int], ...]
    queries: int
    kept: int
    size: int
    tokens: int
    bits: int
    """Of what the caches keep; 0 of floats."""

    @property
    def width(self) -> int:
        """Elements of a row of a head in a cache."""
        return self.size // 2 if self.bits == NIBBLE else self.size


def _group_query_attention(write: Writer) -> None:
    given = [name for index, name in _NOT_HERE.items() if write.input(index)]
    if write.number("sliding_window_cache", 0) and write.number("local_window_size", -1) < 1:
        given.append("sliding_window_cache without a window")
    if write.output(3):
        given.append("output_qk")
    write.refuse_odd(_PLAIN_ATTRIBUTES, *given)
    heads = _read_heads(write)
    row = _first_row(write, heads.tokens)
    context = _count_beyond(write)
    rotation, tables = _read_rotation(write, heads, context)
    caches, scales = [], []
    for number, (past, (x, first)) in enumerate(zip(_PAST, heads.parts[1:], strict=True)):
        turned = rotation if number == 0 else {"rotated": 0, "interleaved": 0}
        gains, normed = _read_norm(write, heads, _NORMS[1] if number == 0 else None)
        scales.append(_read_scales(write, heads, number))
        caches.append(
            write.own(
                APPEND_ROWS,
                _with_room(write, past, heads),
                x,
                row,
                *(tables if number == 0 else []),
                *gains,
                *scales[-1],
                shape=_cache_shape(write, past, heads),
                out=write.output(1 + number),
                like=write.input(past),
                first=first,
                bits=heads.bits,
                context=context,
                **turned,
                **normed,
            )
        )
    q, first = heads.parts[0]
    window = int(write.number("local_window_size", -1))
    gains, normed = _read_norm(write, heads, _NORMS[0])
    sinks, bias = _read_sinks(write, heads), _read_bias(write, heads)
    write.own(
        CACHED_ATTENTION,
        q,
        row,
        *caches,
        *tables,
        *gains,
        *sinks,
        *bias,
        *(name for names in scales for name in names),
        shape=(*write.shape(q)[:2], heads.queries * heads.size),
        out=write.result,
        like=q,
        heads=heads.queries,
        first=first,
        scale=write.number("scale", 0.0) or heads.size**-0.5,
        cap=write.number("softcap", 0.0),
        window=max(window, 0),
        sunk=len(sinks),
        biased=len(bias),
        bits=heads.bits,
        context=context,
        **rotation,
        **normed,
    )


def _read_heads(write: Writer) -> _Heads:
    query, key, value = (write.input(index) for index in range(3))
    queries, kept = int(write.number("num_heads", 0)), int(write.number("kv_num_heads", 0))
    if len(write.shape(query)) != 3 or bool(key) != bool(value) or not queries or not kept:
        raise RefusedError("its queries, keys and values are in no form that is known")
    batch, tokens, width = write.shape(query)
    if batch != 1:
        raise RefusedError(f"a batch of {batch}, expected 1: a bundle keeps one cache")
    size = width // (queries if key else queries + 2 * kept)
    starts = (0, queries * size, (queries + kept) * size)
    parts = [(query, 0), (key, 0), (value, 0)] if key else [(query, at) for at in starts]
    if any(not write.input(past) for past in _PAST):
        raise RefusedError("it has no past keys and values")
    return _Heads(
        parts=tuple(parts),
        queries=queries,
        kept=kept,
        size=size,
        tokens=tokens,
        bits=_read_bits(write),
    )


def _read_bits(write: Writer) -> int:
    """Return in how many bits the caches keep their numbers, 0 in floats."""
    kinds = [write.text(name, "NONE") for name in _QUANTA]
    if set(kinds) == {"NONE"}:
        return 0
    bits = int(write.number("kv_cache_bit_width", 8))
    seen = [np.dtype(write.dtype(write.input(past))) for past in _PAST]
    if "NONE" in kinds or seen != [_KEPT.get(bits)] * len(seen):
        raise RefusedError(
            f"its caches of {seen[0]} and {seen[1]} are {kinds[0]} and {kinds[1]} in {bits} bits, "
            "expected both in int8 of 8 bits or in uint8 of 4"
        )
    return bits


def _read_scales(write: Writer, heads: _Heads, number: int) -> list[str]:
    """Return the scales of all channels of a cache, where it keeps whole numbers."""
    if not heads.bits:
        return []
    value = write.value(write.input(_SCALES[number]))
    channels = heads.kept * heads.size
    if value is None or value.size not in (1, channels):
        raise RefusedError(
            f"its scales '{write.input(_SCALES[number])}' are no constant of 1 or {channels} "
            "numbers"
        )
    flat = np.broadcast_to(value.reshape(-1), (channels,))
    return [write.array(np.ascontiguousarray(flat, np.float32))]


def _first_row(write: Writer, tokens: int) -> str:
    """Return how many tokens there were before: `seqlens_k` is one less than there are in all."""
    length = write.input(_LENGTH)
    if write.shape(length) not in ((1,), (1, 1)):
        raise RefusedError(f"seqlens_k has the shape {list(write.shape(length))}, expected [1]")
    flat = length if write.shape(length) == (1,) else write.reshape(length, 1)
    if tokens == 1 or write.number(FIRST_ROW, 0):
        return flat
    return write("Sub", flat, write.array(np.array([tokens - 1], np.int32)))


def _count_beyond(write: Writer) -> int:
    """Return how many rows caches that hold the last ones may have; 0 where they hold all."""
    total = write.value(write.input(_TOTAL))
    rows = 0 if total is None else int(total.reshape(-1)[0])
    slides = bool(write.number("sliding_window_cache", 0))
    return rows if slides and rows > write.shape(write.input(_PAST[0]))[2] > 0 else 0


def _read_rotation(write: Writer, heads: _Heads, context: int) -> tuple[dict[str, Any], list[str]]:
    if not write.number("do_rotary", 0):
        return {"rotated": 0, "interleaved": 0}, []
    tables = [write.input(index) for index in _TABLES]
    values = [write.value(name) for name in tables]
    if any(value is None or value.ndim != 2 for value in values):
        raise RefusedError("its cosines and sines are computed, expected constants")
    rows, half = values[0].shape if values[0] is not None else (0, 0)
    needed = context or _cache_shape(write, _PAST[0], heads)[2]
    if rows < needed or 2 * half > heads.size:
        raise RefusedError(
            f"its cosines are {rows} x {half}, for a cache of {needed} rows of {heads.size}"
        )
    kept = [write.array(value[:needed]) for value in values if value is not None]
    interleaved = int(write.number("rotary_interleaved", 0))
    return {"rotated": 2 * half, "interleaved": interleaved}, kept


def _read_norm(
    write: Writer, heads: _Heads, position: int | None
) -> tuple[list[str], dict[str, Any]]:
    """Return the weights of a norm of each head, and what the operator is told of it."""
    name = "" if position is None else write.input(position)
    if not name:
        return [], {"normed": 0, "epsilon": 0.0}
    value = write.value(name)
    if value is None or value.shape != (heads.size,):
        raise RefusedError(f"the norm of its heads is by '{name}', expected {heads.size} gains")
    return [name], {"normed": 1, "epsilon": write.number("qk_norm_epsilon", 1e-6)}


def _read_sinks(write: Writer, heads: _Heads) -> list[str]:
    """Return a score of each head that no row has, where the softmax takes one in."""
    name = write.input(SINKS)
    if not name:
        smooth = write.number("smooth_softmax", 0) == 1
        return [write.array(np.zeros(heads.queries, np.float32))] if smooth else []
    value = write.value(name)
    if value is None or value.size != heads.queries:
        raise RefusedError(f"its head_sink '{name}' is no constant of {heads.queries} numbers")
    return [write.array(value.reshape(-1).astype(np.float32))]


def _read_bias(write: Writer, heads: _Heads) -> list[str]:
    """Return what is added to scores, where that is a constant of how far rows lie apart."""
    name = write.input(BIAS)
    if not name:
        return []
    value = write.value(name)
    if not write.number(BY_DISTANCE, 0) or value is None or len(value) != heads.queries:
        raise RefusedError(
            f"its attention_bias '{name}' is no constant of how far a row lies before the token"
        )
    return [name]


def _cache_shape(write: Writer, past: int, heads: _Heads) -> tuple[int, ...]:
    """Return [1, heads, rows, head]: the rows given, or as many as there are tokens then."""
    given = write.shape(write.input(past))
    total = write.value(write.input(_TOTAL))
    if len(given) != 4 or given[1] != heads.kept or given[3] != heads.width:
        raise RefusedError(f"a past of the shape {list(given)} for {heads.kept} heads")
    slides = _count_beyond(write) > 0
    rows = given[2] if total is None or slides else max(given[2], int(total.reshape(-1)[0]))
    return (1, heads.kept, rows, heads.width)


def _with_room(write: Writer, past: int, heads: _Heads) -> str:
    """Return the past with room for the new rows, where it has none yet."""
    name = write.input(past)
    given, wanted = write.shape(name), _cache_shape(write, past, heads)
    missing = wanted[2] - given[2]
    if not missing:
        return name
    zeros = write.array(
        np.zeros((1, heads.kept, missing, heads.width), np.dtype(write.dtype(name)))
    )
    return zeros if not given[2] else write("Concat", name, zeros, axis=2)


ATTENTION: dict[str, Callable[[Writer], None]] = {
    "Attention": _attention,
    "GroupQueryAttention": _group_query_attention,
    "MultiHeadAttention": _multi_head_attention,
    "RotaryEmbedding": _rotary_embedding,
}
