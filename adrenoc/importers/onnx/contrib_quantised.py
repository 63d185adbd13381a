"""Quantised operators of onnxruntime's own domain, as floats between two quantisations.

Before -> after:
    y = com.microsoft.QLinearSigmoid(x, ...)                y = Quantize(Sigmoid(Dequantize(x)))
    y = com.microsoft.DynamicQuantizeLSTM(x, W, R, ...)     y = LSTM(x, (W - zero) * scale, ...)

onnxruntime defines them so, but for sums and products: those count in quanta, and one factor at the
end does what three scales would.  What runs as integers on the GPU is decided later, for these and
for models that are written this way from the start.

Of recurrent, attention and embedding layers, onnxruntime rounds the data of each run, and the state
of each step, to bytes whose range is that of all their numbers.  Where the weights are constants
they are opened once and the data stays float: nearer to the model that was trained, and off from
onnxruntime by that rounding.  A check against its own result would tell nothing of the kernel.

Source: onnxruntime's ContribOperators reference.
"""

import contextlib
from collections.abc import Callable

import numpy as np
import onnx
from onnx.numpy_helper import from_array

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.attention import attend
from adrenoc.importers.onnx.graph import MICROSOFT, OnnxGraph, array_of
from adrenoc.importers.onnx.writer import Writer

OPENED = "DynamicQuantizeLSTM"
_WEIGHTS = ((1, 8, 9), (2, 10, 11))
"""A byte layer's weights and recurrence: the inputs that are quanta, scales and zero points."""


def _float(write: Writer, first: int) -> str:
    """Return the numbers that inputs `first` (quanta), +1 (scale) and +2 (zero point) stand for."""
    return write("DequantizeLinear", *map(write.input, range(first, first + 3)))


def _quanta(write: Writer, x: str, scale: int, source: int = 0) -> None:
    """Write the result in the dtype of input `source`; its zero point follows its scale."""
    zero = _zero_of(write, scale + 1, source)
    write("QuantizeLinear", x, write.input(scale), zero, out=write.result)


def _numbers(write: Writer, *indices: int) -> list[np.float32]:
    """Return scales and zero points, each of which is one constant number, and 0 if left out."""
    held = [write.value(write.input(i)) if write.input(i) else np.zeros(()) for i in indices]
    if any(value is None or value.size != 1 for value in held):
        raise RefusedError("a scale or zero point of it is not one constant number")
    return [np.float32(value.reshape(())) for value in held if value is not None]


def _whole(write: Writer, index: int) -> str:
    """Return integers as floats."""
    return write("Cast", write.input(index), to=1)


def _quantise(write: Writer, x: str, zero: str) -> None:
    """Write the result: `x` in quanta, to the nearest integers."""
    write("QuantizeLinear", x, write.array(np.array(1, np.float32)), zero, out=write.result)


def _zero_of(write: Writer, index: int, source: int = 0) -> str:
    """Return a zero point, or a zero in the dtype of input `source` where it is left out."""
    if write.input(index):
        return write.input(index)
    return write.array(np.zeros((), np.dtype(write.dtype(write.input(source)))))


def _add(write: Writer) -> None:
    """Write one factor an operand, one offset, one rounding: as onnxruntime does on x86."""
    a_scale, a_zero, b_scale, b_zero, scale, zero = _numbers(write, 1, 2, 4, 5, 6, 7)
    a_factor, b_factor = a_scale / scale, b_scale / scale
    offset = zero - (a_factor * a_zero + b_factor * b_zero)
    b = write("Mul", _whole(write, 3), write.array(np.asarray(b_factor)))
    b = write("Add", b, write.array(np.asarray(offset)))
    a = write("Mul", _whole(write, 0), write.array(np.asarray(a_factor)))
    # The sum holds the zero point already: half of an odd number of quanta is even with it.
    none = write.array(np.zeros((), np.dtype(write.dtype(_zero_of(write, 7)))))
    _quantise(write, write("Add", a, b), none)


def _mul(write: Writer) -> None:
    """Write the product of integers times one factor, plus the zero point; rounded then."""
    a_scale, a_zero, b_scale, b_zero, scale, zero = _numbers(write, 1, 2, 4, 5, 6, 7)
    a = write("Sub", _whole(write, 0), write.array(np.asarray(a_zero)))
    b = write("Sub", _whole(write, 3), write.array(np.asarray(b_zero)))
    scaled = write("Mul", write("Mul", a, b), write.array(np.asarray(a_scale * b_scale / scale)))
    none = write.array(np.zeros((), np.dtype(write.dtype(_zero_of(write, 7)))))
    _quantise(write, write("Add", scaled, write.array(np.asarray(zero))), none)


def _global_pool(write: Writer) -> None:
    """Write the sum of integers times one factor."""
    x_scale, x_zero, scale = _numbers(write, 1, 2, 3)
    shape = write.shape(write.input(0))
    first = 1 if write.number("channels_last", 0) else 2
    axes = list(range(first, first + len(shape) - 2))
    count = np.float32(np.prod([shape[axis] for axis in axes]))
    centred = write("Sub", _whole(write, 0), write.array(np.asarray(x_zero)))
    total = write.total(centred, *axes, keepdims=1)
    factor = x_scale / (scale * count)
    _quantise(write, write("Mul", total, write.array(np.asarray(factor))), _zero_of(write, 4))


def _unary(op: str, *attributes: str) -> Callable[[Writer], None]:
    def rewrite(write: Writer) -> None:
        kept = {name: write.attrs[name] for name in attributes if name in write.attrs}
        _quanta(write, write(op, _float(write, 0), **kept), 3)

    return rewrite


def _average_pool(write: Writer) -> None:
    x, last = _float(write, 0), bool(write.number("channels_last", 0))
    rank = len(write.shape(write.input(0)))
    if last:
        x = write("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    kept = {name: value for name, value in write.attrs.items() if name != "channels_last"}
    pooled = write("AveragePool", x, **kept)
    if last:
        pooled = write("Transpose", pooled, perm=[0, *range(2, rank), 1])
    _quanta(write, pooled, 3)


def _concat(write: Writer) -> None:
    parts = [_float(write, first) for first in range(2, len(write.node.input), 3)]
    joined = write("Concat", *parts, axis=int(write.number("axis", 0)))
    _quanta(write, joined, 0, source=2)


def _softmax(write: Writer) -> None:
    axis, rank = int(write.number("axis", -1)), len(write.shape(write.input(0)))
    if write.number("opset", 13) < 13 and axis % rank != rank - 1:
        raise RefusedError("it normalises over all axes from one on, as opsets below 13 do")
    _quanta(write, write("Softmax", _float(write, 0), axis=axis), 3)


def _gemm(write: Writer) -> None:
    """Write a product of integers, with the bias in its units; then one factor a column."""
    transposes = {n: write.attrs[n] for n in ("transA", "transB") if n in write.attrs}
    a = _whole(write, 0)
    if write.input(2):
        a = write("Sub", a, _whole(write, 2))
    b = _whole(write, 3)
    if write.input(5):
        b_zero = _whole(write, 5)
        if write.shape(write.input(5)) and transposes.get("transB"):
            b_zero = write.reshape(b_zero, -1, 1)
        b = write("Sub", b, b_zero)
    bias = _whole(write, 6) if write.input(6) else ""
    steps = write("Mul", write.input(1), write.input(4))
    alpha = write.number("alpha", 1.0)
    if alpha != 1.0:
        # Not as Gemm's own factor: the bias counts in products of the two scales and alpha.
        steps = write("Mul", steps, write.array(np.float32(alpha)))
    total = write("Gemm", a, b, bias, **transposes)
    if not write.input(7):
        write("Mul", total, steps, out=write.result)
        return
    y = write("Mul", total, write("Div", steps, write.input(7)))
    _quantise(write, y, _zero_of(write, 8))


def _matmul_integer_to_float(write: Writer) -> None:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (write.input(index) for index in range(7))
    product = write("MatMulInteger", a, b, a_zero, b_zero)
    _scale_product(write, product, (a_scale, b_scale), bias, out=write.result)


def _dynamic_quantize_matmul(write: Writer) -> None:
    a, b, b_scale, b_zero, bias = (write.input(index) for index in range(5))
    quanta, scale, zero = (f"{write.result}/dynamic{index}" for index in range(3))
    write("DynamicQuantizeLinear", a, out=quanta)
    write.nodes[-1].output.extend([scale, zero])
    product = write("MatMulInteger", quanta, b, zero, b_zero)
    _scale_product(write, product, (scale, b_scale), bias, out=write.result)


def _scale_product(
    write: Writer, product: str, scales: tuple[str, str], bias: str, *, out: str
) -> None:
    """Write the floats `out` that a product of integers stands for, with a bias if there is one."""
    whole = write("Cast", product, to=1)
    factor = write("Mul", *scales)
    result = write("Mul", whole, factor, out="" if bias else out)
    if bias:
        write("Add", result, bias, out=out)


def _open_weights(quanta: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None) -> np.ndarray:
    """Return the floats [directions, columns, rows], as LSTM takes them, of constant quanta
    [directions, rows, columns] with a scale and a zero point for a direction or for each column."""

    def spread(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float32).reshape(*values.shape[:1], 1, -1)

    floats = quanta.astype(np.float32)
    if zeros is not None:
        floats = floats - spread(zeros)
    return np.ascontiguousarray(np.swapaxes(floats * spread(scales), 1, 2))


def open_layers(model: onnx.ModelProto) -> None:
    """Put layers of floats in place of those of bytes whose weights are initialisers."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != OPENED:
            continue
        given = {name: array_of(held[name]) for name in node.input if name in held}
        graph = OnnxGraph(nodes=[], inputs=[], outputs=[], opset=1, constants=dict(given))
        write = Writer(node, graph)
        with contextlib.suppress(RefusedError):
            _lstm(write)
            node.CopyFrom(write.nodes[0])
            made = ((name, graph.constants[name]) for name in graph.constants.keys() - given)
            model.graph.initializer.extend(from_array(value, name) for name, value in made)


def _lstm(write: Writer) -> None:
    """The weights lie as [directions, input, 4 hidden], the transpose of the standard's."""
    arrays = []
    for places in _WEIGHTS:
        quanta, steps, zeros = (write.value(write.input(place)) for place in places)
        if quanta is None or steps is None or (zeros is None and write.input(places[2])):
            raise RefusedError("its weights are no constants")
        arrays.append(write.array(_open_weights(quanta, steps, zeros)))
    rest = [write.input(index) for index in range(3, 8)]
    write("LSTM", write.input(0), *arrays, *rest, out=write.node.output[0], **write.attrs)
    write.nodes[-1].output[:] = write.node.output


def _attention(write: Writer) -> None:
    """Its projection is a product of integers; scores and mix are floats."""
    x, weight, bias, x_scale, scale, mask, x_zero, zero, past = (
        write.input(index) for index in range(9)
    )
    if past or write.output(1):
        raise RefusedError("it keeps past keys and values, whose length grows at run time")
    projected = f"{write.result}/projected"
    product = write("MatMulInteger", x, weight, x_zero, zero)
    _scale_product(write, product, (x_scale, scale), bias, out=projected)
    batch, length, _ = write.shape(x)
    hidden = write.shape(weight)[1] // 3
    attend(write, projected, (batch, length), [hidden] * 3, mask=mask)


def _embed_layer_normalization(write: Writer) -> None:
    """Tables and factors of bytes, opened; the rest is EmbedLayerNormalization."""
    tables = []
    for places in ((2, 8, 13), (3, 9, 14), (4, 10, 15), (5, 11, 16), (6, 12, 17)):
        held = [write.input(place) for place in places]
        tables.append(write("DequantizeLinear", *held) if held[0] else "")
    ids, segments, mask = (write.input(index) for index in (0, 1, 7))
    operands = [ids, segments, *tables, mask]
    write("EmbedLayerNormalization", *operands, out=write.result, domain=MICROSOFT, **write.attrs)
    write.nodes[-1].output[:] = write.node.output


QUANTISED: dict[str, Callable[[Writer], None]] = {
    "DynamicQuantizeLSTM": _lstm,
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "QAttention": _attention,
    "QEmbedLayerNormalization": _embed_layer_normalization,
    "QGemm": _gemm,
    "QLinearAdd": _add,
    "QLinearAveragePool": _average_pool,
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _global_pool,
    "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
    "QLinearMul": _mul,
    "QLinearReduceMean": _unary("ReduceMean", "axes", "keepdims"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _softmax,
}
