"""What onnxruntime's dynamic quantisation makes of recurrent, attention and embedding operators.

Before -> after:
    y = com.microsoft.DynamicQuantizeLSTM(x, W, R, ...)     y = LSTM(x, (W - zero) * scale, ...)

onnxruntime rounds the data of each run to bytes, to multiply integers.  Where the weights are
constants they are opened once and the data stays float, which rounds nothing.

Source: onnxruntime's ContribOperators reference.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.attention import attend
from adrenoc.importers.onnx.contrib_quantised import scale_product
from adrenoc.importers.onnx.open_layers import Quanta
from adrenoc.importers.onnx.writer import Writer

DOMAIN = "com.microsoft"


def _lstm(write: Writer) -> None:
    """The weights lie as [directions, input, 4 hidden], the transpose of the standard's."""
    arrays = [write.array(_open(write, *places)) for places in ((1, 8, 9), (2, 10, 11))]
    rest = [write.input(index) for index in range(3, 8)]
    write("LSTM", write.input(0), *arrays, *rest, out=write.node.output[0], **write.attrs)
    write.nodes[-1].output[:] = write.node.output


def _open(write: Writer, index: int, scale: int, zero: int) -> np.ndarray:
    """Return the floats that constant quanta stand for."""
    quanta, steps = write.value(write.input(index)), write.value(write.input(scale))
    zeros = write.value(write.input(zero)) if write.input(zero) else None
    if quanta is None or steps is None or (zeros is None and write.input(zero)):
        raise RefusedError("its weights are no constants")
    return Quanta(values=quanta, scales=steps, zeros=zeros).open()


def _attention(write: Writer) -> None:
    """Its projection is a product of integers; scores and mix are floats."""
    x, weight, bias, x_scale, scale, mask, x_zero, zero, past = (
        write.input(index) for index in range(9)
    )
    if past or write.output(1):
        raise RefusedError("it keeps past keys and values, whose length grows at run time")
    zeros = [x_zero, zero] if zero else [x_zero] if x_zero else []
    projected = f"{write.result}/projected"
    product = write("MatMulInteger", x, weight, *zeros)
    scale_product(write, product, (x_scale, scale), bias, out=projected)
    batch, length, _ = write.shape(x)
    hidden = write.shape(weight)[1] // 3
    attend(write, projected, (batch, length), [hidden] * 3, mask=mask)


def _embed_layer_normalization(write: Writer) -> None:
    """Tables and factors of bytes, opened; the rest is EmbedLayerNormalization."""
    tables = []
    for index, scale, zero in ((2, 8, 13), (3, 9, 14), (4, 10, 15), (5, 11, 16), (6, 12, 17)):
        if not write.input(index):
            tables.append("")
            continue
        zeros = [write.input(zero)] if write.input(zero) else []
        tables.append(write("DequantizeLinear", write.input(index), write.input(scale), *zeros))
    ids, segments, mask = (write.input(index) for index in (0, 1, 7))
    operands = [ids, segments, *tables, mask]
    write("EmbedLayerNormalization", *operands, out=write.result, domain=DOMAIN, **write.attrs)
    write.nodes[-1].output[:] = write.node.output


DYNAMIC: dict[str, Callable[[Writer], None]] = {
    "DynamicQuantizeLSTM": _lstm,
    "QAttention": _attention,
    "QEmbedLayerNormalization": _embed_layer_normalization,
}
