"""Quantised operators of onnxruntime's own domain, as floats between two quantisations.

Before -> after:
    y = com.microsoft.QLinearSigmoid(x, ...)    y = Quantize(Sigmoid(Dequantize(x)))

onnxruntime defines them so; what runs as integers on the GPU is decided later, for these and for
models that are written this way from the start.

Source: onnxruntime's ContribOperators reference.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adrenoc.importers.onnx_writer import CannotWriteError, Writer


def _float(write: Writer, first: int, axis: int | None = None) -> str:
    """The numbers that inputs `first` (quanta), +1 (scale) and +2 (zero point) stand for.

    `axis` is that of scales a channel.
    """
    operands = [write.input(first), write.input(first + 1), *_zero(write, first + 2)]
    scales = write.value(write.input(first + 1))
    if axis is None or scales is None or scales.ndim == 0 or scales.size == 1:
        return write("DequantizeLinear", *operands)
    return write("DequantizeLinear", *operands, axis=axis)


def _zero(write: Writer, index: int) -> list[str]:
    return [write.input(index)] if write.input(index) else []


def _quanta(write: Writer, x: str, scale: int, source: int = 0) -> None:
    """The result, in the dtype of input `source`; its zero point follows its scale."""
    zero = write.input(scale + 1)
    if not zero:
        zero = write.array(np.zeros((), np.dtype(write.dtype(write.input(source)))))
    write("QuantizeLinear", x, write.input(scale), zero, out=write.result)


def _binary(op: str) -> Callable[[Writer], None]:
    def rewrite(write: Writer) -> None:
        _quanta(write, write(op, _float(write, 0), _float(write, 3)), 6)

    return rewrite


def _unary(op: str, *attributes: str) -> Callable[[Writer], None]:
    def rewrite(write: Writer) -> None:
        kept = {name: write.attrs[name] for name in attributes if name in write.attrs}
        _quanta(write, write(op, _float(write, 0), **kept), 3)

    return rewrite


def _leaky_relu(write: Writer) -> None:
    alpha = write.number("alpha", 0.01)
    _quanta(write, write("LeakyRelu", _float(write, 0), alpha=alpha), 3)


def _pool(op: str) -> Callable[[Writer], None]:
    own = {"channels_last"}

    def rewrite(write: Writer) -> None:
        x, last = _float(write, 0), bool(write.number("channels_last", 0))
        rank = len(write.shape(write.input(0)))
        if last:
            x = write("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
        kept = {name: value for name, value in write.attrs.items() if name not in own}
        pooled = write(op, x, **kept)
        if last:
            pooled = write("Transpose", pooled, perm=[0, *range(2, rank), 1])
        _quanta(write, pooled, 3)

    return rewrite


def _concat(write: Writer) -> None:
    parts = [_float(write, first) for first in range(2, len(write.node.input), 3)]
    joined = write("Concat", *parts, axis=int(write.number("axis", 0)))
    _quanta(write, joined, 0, source=2)


def _softmax(write: Writer) -> None:
    axis, rank = int(write.number("axis", -1)), len(write.shape(write.input(0)))
    if write.number("opset", 13) < 13 and axis % rank != rank - 1:
        raise CannotWriteError("it normalises over all axes from one on, as opsets below 13 do")
    _quanta(write, write("Softmax", _float(write, 0), axis=axis), 3)


def _gemm(write: Writer) -> None:
    names = ("alpha", "transA", "transB")
    attrs = {name: write.attrs[name] for name in names if name in write.attrs}
    columns = 0 if write.number("transB", 0) else 1
    operands = [_float(write, 0), _float(write, 3, axis=columns)]
    if write.input(6):
        # The bias counts in products of the two scales (and alpha, which Gemm does not apply).
        steps = write("Mul", write.input(1), write.input(4))
        steps = write("Mul", steps, write.array(np.float32(write.number("alpha", 1.0))))
        whole = write("Cast", write.input(6), to=1)
        operands.append(write("Mul", whole, steps))
    if not write.input(7):
        write("Gemm", *operands, out=write.result, **attrs)
        return
    _quanta(write, write("Gemm", *operands, **attrs), 7)


def _matmul_integer_to_float(write: Writer) -> None:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (write.input(index) for index in range(7))
    zeros = [a_zero or "", b_zero] if b_zero else [a_zero] if a_zero else []
    _scaled_product(write, write("MatMulInteger", a, b, *zeros), (a_scale, b_scale), bias)


def _dynamic_quantize_matmul(write: Writer) -> None:
    a, b, b_scale, b_zero, bias = (write.input(index) for index in range(5))
    quanta, scale, zero = (f"{write.result}/dynamic{index}" for index in range(3))
    write("DynamicQuantizeLinear", a, out=quanta)
    write.nodes[-1].output.extend([scale, zero])
    product = write("MatMulInteger", quanta, b, zero, *([b_zero] if b_zero else []))
    _scaled_product(write, product, (scale, b_scale), bias)


def _scaled_product(write: Writer, product: str, scales: tuple[str, str], bias: str) -> None:
    whole = write("Cast", product, to=1)
    factor = write("Mul", *scales)
    result = write("Mul", whole, factor, out="" if bias else write.result)
    if bias:
        write("Add", result, bias, out=write.result)


QUANTISED: dict[str, Callable[[Writer], None]] = {
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _pool("AveragePool"),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _pool("GlobalAveragePool"),
    "QLinearLeakyRelu": _leaky_relu,
    "QLinearMul": _binary("Mul"),
    "QLinearReduceMean": _unary("ReduceMean", "axes", "keepdims"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _softmax,
}
