"""RotaryEmbedding of onnxruntime's own domain, in standard operators.

Before -> after:
    y = com.microsoft.RotaryEmbedding(x, positions, cosines, sines)

    a, b = the halves of each head of x (or its even and odd numbers)
    y = Concat(a * cos - b * sin, b * cos + a * sin, what is not rotated)

`cos` and `sin` are the rows of the tables at the positions.

Source: onnxruntime's ContribOperators reference, and version 1.31 of it tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.writer import Writer

PLAIN_ROTATION = {"is_packed_batching": 0, "scale": 1.0}
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
    odd = [n for n, plain in PLAIN_ROTATION.items() if write.number(n, plain) != plain]
    if odd:
        raise RefusedError(f"it has {odd[0]} {write.attrs[odd[0]]}, which is not covered")
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


ROTARY: dict[str, Callable[[Writer], None]] = {"RotaryEmbedding": _rotary_embedding}
