"""Caches of a decoder's call: where the new rows of each go, and which of its axes are rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.base.text.spelling import list_first
from adrenoc.importers.tflite.decoder.roles import HINT, Call
from adrenoc.importers.tflite.file import Operator

UPDATE = "DYNAMIC_UPDATE_SLICE"


@dataclass(frozen=True, kw_only=True)
class DecoderCache:
    """A cache before and after a call, its new rows, and the axes of rows, heads and numbers."""

    name: str
    before: int
    after: int
    update: int
    starts: int
    axes: tuple[int, int, int]
    heads: int
    rows: int
    head: int
    dtype: str


def find_caches(call: Call) -> dict[str, DecoderCache]:
    """Return the caches of a call by name.

    Raises:
        UnsupportedOperatorError: some are not written row by row, each named.
    """
    makers = {index: one for one in call.graph.operators for index in one.outputs}
    found, odd = {}, []
    for name, (before, after) in call.caches.items():
        maker = makers.get(after)
        axis = None if maker is None else _axis_of_rows(call, maker, before)
        if maker is None or axis is None:
            odd.append(f"'{name}' is made by {'nothing' if maker is None else maker.kind}")
            continue
        info = call.graph.tensors[before]
        heads, head = (a for a in range(1, len(info.shape)) if a != axis)
        found[name] = DecoderCache(
            name=name,
            before=before,
            after=after,
            update=maker.inputs[1],
            starts=maker.inputs[2],
            axes=(axis, heads, head),
            heads=info.shape[heads],
            rows=info.shape[axis],
            head=info.shape[head],
            dtype=info.dtype,
        )
    if odd:
        raise UnsupportedOperatorError(
            f"caches of the signature '{call.key}' that no rows are added to: "
            f"{list_first(odd, between=', ')}; expected {UPDATE} of each, as [1, rows, heads, "
            "numbers] or with the rows at another axis",
            hint=HINT,
        )
    return found


def _axis_of_rows(call: Call, maker: Operator, before: int) -> int | None:
    """Return the one axis at which less is written than there is; None of anything else."""
    if maker.kind != UPDATE or maker.inputs[0] != before:
        return None
    whole, part = (call.graph.tensors[index].shape for index in maker.inputs[:2])
    axes = [a for a, (d, u) in enumerate(zip(whole, part, strict=False)) if d != u]
    shaped = len(whole) == len(part) == 4 and whole[0] == 1
    if not shaped or len(axes) != 1 or axes[0] == 0 or part[axes[0]] != call.length:
        return None
    return axes[0]


def check_starts(cache: DecoderCache, starts: np.ndarray | None, past: int) -> str:
    """Return why the new rows do not go right behind the past; empty where they do."""
    expected = [past if axis == cache.axes[0] else 0 for axis in range(4)]
    if starts is None:
        return f"where '{cache.name}' is written is computed of data"
    if list(starts.reshape(-1)) != expected:
        return f"'{cache.name}' is written at {list(starts.reshape(-1))}, expected {expected}"
    return ""
