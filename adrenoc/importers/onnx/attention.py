"""Attention as onnxruntime fuses it, in matrix products and a softmax.

Before -> after:
    y = com.microsoft.MultiHeadAttention(q, k, v)    y = Softmax(q k^T / sqrt(d)) v by head

RotaryEmbedding of onnxruntime's own domain, in standard operators.

Before -> after:
    y = com.microsoft.RotaryEmbedding(x, positions, cosines, sines)

    a, b = the halves of each head of x (or its even and odd numbers)
    y = Concat(a * cos - b * sin, b * cos + a * sin, what is not rotated)

`cos` and `sin` are the rows of the tables at the positions.

Source: onnxruntime's ContribOperators reference: Attention, MultiHeadAttention; onnxruntime's
ContribOperators reference, and version 1.31 of it tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.importers.imported import check_grown
from adrenoc.importers.onnx.writer import Writer

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
    """Attention of queries, keys and values [batch, length, sum of sizes] in one tensor.

    `past` holds the keys and the values before them, [2, batch, heads, past, head], and `present`
    is the name that both are wanted by together with the new ones.

    Raises:
        RefusedError: the mask has a shape that says nothing here.
    """
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
    _heads(
        write,
        q,
        k,
        v,
        mask=_mask(write, mask, batch, length, total),
        bias=bias,
        causal=bool(write.number("unidirectional", 0)),
        shapes=(batch, length, total, sizes[0], sizes[2]),
    )


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
    if apart:
        _, heads, total, head = write.shape(value)
        hidden_v = heads * head
    else:
        _, total, hidden_v = write.shape(value)
    parts = [query, key, value]
    if bias:
        own = write.split(bias, [hidden, hidden, hidden_v], 0)
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
    _heads(
        write,
        *split,
        mask=_mask(write, write.input(4), batch, length, total),
        bias=write.input(5),
        causal=bool(write.number("unidirectional", 0)),
        shapes=(batch, length, total, hidden, hidden_v),
    )


def _split_heads(write: Writer, x: str, batch: int, length: int) -> str:
    """[batch, length, heads * head] to [batch, heads, length, head]."""
    heads = int(write.number("num_heads", 1))
    return write("Transpose", write.reshape(x, batch, length, heads, -1), perm=[0, 2, 1, 3])


def _heads(
    write: Writer,
    q: str,
    k: str,
    v: str,
    *,
    mask: str,
    bias: str,
    causal: bool,
    shapes: tuple[int, int, int, int, int],
) -> None:
    """Softmax(q k^T * scale + mask) v for all heads, joined again."""
    batch, length, total, hidden, hidden_v = shapes
    scale = write.number("scale", 0.0) or 1 / math.sqrt(hidden / write.number("num_heads", 1))
    scores = write("MatMul", q, write("Transpose", k, perm=[0, 1, 3, 2]))
    scores = write("Mul", scores, write.constant(scale))
    if bias:
        scores = write("Add", scores, bias)
    if mask:
        scores = write("Add", scores, mask)
    if causal:
        dtype = write.float_dtype
        check_grown(length * total)
        later = np.triu(np.ones((length, total), bool), total - length + 1)
        far = np.finfo(dtype).min
        hidden_ones = write.array(np.where(later, far, 0).astype(dtype))
        scores = write("Add", scores, hidden_ones)
    weighted = write("MatMul", write("Softmax", scores, axis=3), v)
    joined = write("Transpose", weighted, perm=[0, 2, 1, 3])
    write.reshape(joined, batch, length, hidden_v, out=write.result)


def _mask(write: Writer, mask: str, batch: int, length: int, total: int) -> str:
    """Return what a mask adds to the scores [batch, heads, length, total]; empty where there is
    none."""
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


ATTENTION: dict[str, Callable[[Writer], None]] = {
    "Attention": _attention,
    "MultiHeadAttention": _multi_head_attention,
    "RotaryEmbedding": _rotary_embedding,
}
