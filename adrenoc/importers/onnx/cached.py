"""Attention over keys and values of earlier tokens, as onnxruntime's own domain has it.

Before -> after:
    y, keys, values = com.microsoft.GroupQueryAttention(qkv, past keys, past values, ...)

    keys = adrenoc.AppendRows(past keys, qkv, row)      rotated where the operator rotates inside
    values = adrenoc.AppendRows(past values, qkv, row)
    y = adrenoc.CachedAttention(qkv, row, keys, values)

Norms of the heads of queries and keys (`q_norm_weight`) are computed where these rotate.  `row` is
the number of the first new row, which is how many tokens there were before.

Source: onnxruntime's ContribOperators reference: GroupQueryAttention, and version 1.31 of it tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.writer import Writer
from adrenoc.importers.relax.cache_constants import NIBBLE

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
    _check_covered(write)
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
    """In how many bits the caches keep their numbers, 0 in floats."""
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


def _check_covered(write: Writer) -> None:
    """Refuse what would be another result."""
    given = [name for index, name in _NOT_HERE.items() if write.input(index)]
    if write.number("sliding_window_cache", 0) and write.number("local_window_size", -1) < 1:
        given.append("sliding_window_cache without a window")
    if write.output(3):
        given.append("output_qk")
    write.refuse_odd(_PLAIN_ATTRIBUTES, *given)


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
    """Return how many rows there may be of caches that hold the last ones; 0 where they hold
    all."""
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
    """[1, heads, rows, head]: the rows that were given, or as many as there are tokens then."""
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


CACHED: dict[str, Callable[[Writer], None]] = {"GroupQueryAttention": _group_query_attention}
