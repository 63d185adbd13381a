"""An inverse as plain loops, for where its family does not compute it."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812 - as TVM's own do

from adrenoc.base.tvmapi import decl_buffer


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
