"""Our own operators of Relax as plain loop nests: slower than their kernels, and just as right."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

_BITS = 4


def n_bits_nest(builder: Any, call: Any) -> Any:
    """Open each weight where it is read."""
    block, zero = int(call.attrs["block"]), float(call.attrs["zero"])
    has_zeros = bool(call.attrs["zeros"])

    def compute(x: Any, packed: Any, scales: Any, *zeros: Any) -> Any:
        k = te.reduce_axis((0, x.shape[-1]), "k")

        def weight(n: Any) -> Any:
            at = tirx.floordiv(k, block)
            byte = packed[n, at, tirx.floordiv(tirx.floormod(k, block), 2)].astype("int32")
            low, high = tirx.floormod(byte, 1 << _BITS), tirx.floordiv(byte, 1 << _BITS)
            code = te.if_then_else(tirx.floormod(k, 2) == 0, low, high).astype(str(x.dtype))
            middle = (
                zeros[0][n, at].astype(str(x.dtype)) if has_zeros else tirx.const(zero, x.dtype)
            )
            return (code - middle) * scales[n, at].astype(str(x.dtype))

        def total(*at: Any) -> Any:
            read = (*at[:-1], k)
            return te.sum(x[read] * weight(at[-1]), axis=k)

        return te.compute((*x.shape[:-1], packed.shape[0]), total, name="n_bits")

    return builder.call_te(compute, *call.args, primfunc_name_hint="n_bits")
