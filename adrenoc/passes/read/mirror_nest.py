"""Pads by reflection as a loop nest of their own.

TVM writes the place that an element of a reflected border comes from as m - |m - |i - p|| (m: the
last place, p: the pad before the first).  Magnitudes of integers become nested conditions, each of
which repeats the one within.  The lesser of d and 2m - d, with d = |i - p| as the greater of i - p
and p - i, is the same place in four instructions.

The form matters beyond its length: of an image that is read at 5 - |x|, NVIDIA's compiler (driver
580.159, optimising) gives zeros everywhere.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from adrenoc.base.tvmapi import Expr


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
