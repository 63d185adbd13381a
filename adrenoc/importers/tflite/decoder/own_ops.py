"""Operators that rewrites put into a decoder's graph, and what they are in Relax."""

from __future__ import annotations

import numpy as np
from tvm import relax

from adrenoc.importers.relax import own
from adrenoc.importers.relax.values import dtype_of, make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import Node, Result

APPEND, ATTEND, PRODUCT = "adrenoc.AppendRows", "adrenoc.CachedAttention", "adrenoc.NBits"

_PLAIN = {
    "first": 0,
    "rotated": 0,
    "interleaved": 0,
    "normed": 0,
    "epsilon": 0.0,
    "bits": 0,
    "context": 0,
}
"""What the operators can do beside, and rewrites of TFLite ask for nowhere yet."""
_BYTE_BITS = 8


def _append_rows(node: Node) -> Result:
    """Inputs: the cache, its new rows as [1, tokens, heads * numbers], the first row's number."""
    cache, x, position = (node.data(index) for index in range(3))
    return own.call_own(
        own.APPEND_ROWS, [cache, x, position], shape=node.shape(), dtype=dtype_of(cache), **_PLAIN
    )


def _cached_attention(node: Node) -> Result:
    """Inputs: queries as [1, tokens, heads * numbers], the first one's row, keys, values."""
    q, *others = (node.data(index) for index in range(4))
    options = {name: node.option(name) for name in ("heads", "scale", "cap", "window")}
    return own.call_own(
        own.CACHED_ATTENTION,
        [q, *others],
        shape=node.shape(),
        dtype=dtype_of(q),
        sunk=0,
        biased=0,
        **_PLAIN,
        **options,
    )


def _n_bits(node: Node) -> Result:
    """FULLY_CONNECTED whose weights stay in their few bits."""
    info = node.info(1)
    bits = 4 if info.dtype == "int4" else _BYTE_BITS
    codes = np.asarray(info.value).astype(np.int16) + (1 << (bits - 1))
    units, depth = codes.shape
    block = info.block or depth
    packed = codes.astype(np.uint8)
    if bits < _BYTE_BITS:
        packed = packed[:, 0::2] | packed[:, 1::2] << np.uint8(bits)
    shape = node.shape()
    rows = int(np.prod(shape)) // depth
    keep = bool(node.option("KeepNumDims", False)) and shape[-1] == depth
    x = node.data()
    if not keep:
        x = node.emit(relax.op.reshape(x, [rows, depth]))
    product = own.call_own(
        own.N_BITS,
        [
            x,
            make_constant(packed.reshape(units, depth // block, block * bits // _BYTE_BITS)),
            make_constant(info.scales.reshape(units, -1)),
        ],
        shape=[*shape[:-1], units] if keep else [rows, units],
        dtype=dtype_of(x),
        block=block,
        bits=bits,
        zero=float(1 << (bits - 1)),
        zeros=0,
    )
    if node.has(2):
        product = node.emit(product) + node.real(2)
    result = node.activate(product)
    return relax.op.reshape(node.emit(result), list(node.results[0].shape))


DECODER_OPS: dict[str, Convert] = {
    APPEND: _append_rows,
    ATTEND: _cached_attention,
    PRODUCT: _n_bits,
}
