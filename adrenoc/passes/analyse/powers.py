"""Squares and other powers in scalar expressions: what leaves the range of half on both sides.

Half holds the square of 256 no more, and has of the square of 0.001 four bits left.
"""

from __future__ import annotations

from typing import Any

from tvm_ffi.structural import structural_equal, structural_map

from adrenoc.base.tvmapi import Call, tirx, tvm
from adrenoc.ir.body import Body, find_loaded_buffers

EXPONENTIALS = ("tirx.exp", "tirx.exp2", "tirx.exp10")
_POW = "tirx.pow"


def unify_reads(body: Body) -> Any:
    """The body's expression with each tensor read under one name: `x * x` reads x under two."""
    names = list(body.sources.items())
    buffers = {name: buffer for buffer, name in names}

    def one_name(load: Any) -> Any:
        name = next((n for b, n in names if b.same_as(load.source)), None)
        return load if name is None else tirx.BufferLoad(buffers[name], list(load.indices))

    return structural_map(body.value, (tvm.ir.TensorLoad, one_name))


def is_power(part: Any) -> bool:
    """Whether a part of such an expression multiplies data by itself, or raises it beyond it."""
    if isinstance(part, tirx.Mul):
        return structural_equal(part.a, part.b) and bool(find_loaded_buffers(part.a))
    if not isinstance(part, Call) or part.op.name != _POW:
        return False
    base, exponent = part.args
    if not find_loaded_buffers(base):
        return bool(find_loaded_buffers(exponent))
    return not isinstance(exponent, tirx.FloatImm) or abs(exponent.value) > 1
