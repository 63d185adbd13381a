"""TFLite models of dynamic range with their weights as floats: what LiteRT is to compute of them.

Before -> after:
    conv_2d(float data, int8 weights)       conv_2d(float data, float32 weights)

LiteRT rounds the data to 8 bits there, a batch row at a time, to multiply integers.  The GPU keeps
the data as they are, which is nearer to the model that was trained and far from LiteRT by that
rounding, up to some percent behind many layers: a check against LiteRT's own result would tell
nothing of the kernels.

Source: TFLite schema version 3; LiteRT's hybrid kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adrenoc.importers.tflite.stored import decode_stored

_DATA = {
    "CONV_2D": 0,
    "DEPTHWISE_CONV_2D": 0,
    "TRANSPOSE_CONV": 2,
    "FULLY_CONNECTED": 0,
    "BATCH_MATMUL": 0,
    "SVDF": 0,
    "RNN": 0,
    "LSTM": 0,
    "UNIDIRECTIONAL_SEQUENCE_RNN": 0,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 0,
    "BIDIRECTIONAL_SEQUENCE_RNN": 0,
    "BIDIRECTIONAL_SEQUENCE_LSTM": 0,
}
"""Operators that take data in float with weights in 4 or 8 bits -> the input that is the data."""


def widen_weights(content: bytes, schema: Any) -> bytes | None:
    """Return the model with the weights of hybrid operators as floats; None where it has none.

    `schema` is LiteRT's module of the file's schema.
    """
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    for buffer in model.buffers:
        held = buffer.data is not None and len(buffer.data) > 0
        if buffer.offset > 1 and not held:  # behind the tables, which are written anew
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
        buffer.offset = buffer.size = 0
    data = {getattr(schema.BuiltinOperator, name): index for name, index in _DATA.items()}
    codes = [max(c.builtinCode, c.deprecatedBuiltinCode) for c in model.operatorCodes]
    changed = False
    for graph in model.subgraphs:
        floats: dict[int, int] = {}
        for operator in graph.operators:
            code, inputs = codes[operator.opcodeIndex], list(operator.inputs)
            if code not in data or graph.tensors[inputs[data[code]]].type != _float(schema):
                continue
            for index in set(inputs) - {-1, *floats}:
                if _is_bytes(model, graph, index, schema):
                    floats[index] = _add_floats(model, graph, index, schema)
            operator.inputs = [floats.get(index, index) for index in inputs]
            changed |= operator.inputs != inputs
    return serialise(model) if changed else None


def _float(schema: Any) -> int:
    return int(schema.TensorType.FLOAT32)


def _is_bytes(model: Any, graph: Any, index: int, schema: Any) -> bool:
    """Return whether a tensor is a dense constant of 4 or 8 bits that stand for real numbers."""
    tensor = graph.tensors[index]
    quanta = tensor.quantization
    scales = getattr(quanta, "scale", None)
    scaled = scales is not None and len(scales) > 0
    data = model.buffers[tensor.buffer].data
    dense = (scaled or _has_blocks(quanta, schema)) and tensor.sparsity is None
    is_narrow = tensor.type in (schema.TensorType.INT8, schema.TensorType.INT4)
    return bool(dense and is_narrow and data is not None and len(data))


def _has_blocks(quanta: Any, schema: Any) -> bool:
    """Return whether each block of a row has a scale of its own."""
    blockwise = schema.QuantizationDetails.BlockwiseQuantization
    return quanta is not None and bool(quanta.detailsType == blockwise)


def _add_floats(model: Any, graph: Any, index: int, schema: Any) -> int:
    """Add what a constant stands for as a tensor; returns its number."""
    tensor = graph.tensors[index]
    shape = tuple(int(extent) for extent in tensor.shape)
    raw = np.frombuffer(bytes(model.buffers[tensor.buffer].data), np.uint8)
    dtype = "int4" if tensor.type == schema.TensorType.INT4 else "int8"
    stored = decode_stored(raw, dtype, shape, str(tensor.name))
    scales, offsets = _scales_of(model, graph, tensor, schema)
    real = (stored - offsets) * scales
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(real.astype(np.float32).tobytes(), np.uint8)
    model.buffers.append(buffer)
    made = schema.TensorT()
    made.name = b"".join((tensor.name or b"", b"/floats"))
    made.type, made.shape = _float(schema), tensor.shape
    made.buffer = len(model.buffers) - 1
    graph.tensors.append(made)
    return len(graph.tensors) - 1


def _scales_of(model: Any, graph: Any, tensor: Any, schema: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scales and zero points of a constant, in shapes that meet its own."""
    quanta = tensor.quantization
    if _has_blocks(quanta, schema):
        blocks = quanta.details
        held = graph.tensors[blocks.scales]
        dtype = np.float16 if held.type == schema.TensorType.FLOAT16 else np.float32
        steps = np.frombuffer(bytes(model.buffers[held.buffer].data), dtype)
        wide = steps.astype(np.float32).reshape(*tensor.shape[:-1], -1)
        return np.repeat(wide, blocks.blockSize, axis=-1), np.zeros((), np.float32)
    zeros = [0] if quanta.zeroPoint is None else quanta.zeroPoint
    along = [-1 if a == quanta.quantizedDimension else 1 for a in range(len(tensor.shape))]
    scales, offsets = (
        values.reshape(along if values.size > 1 else ())
        for values in (np.asarray(quanta.scale, np.float32), np.asarray(zeros, np.float32))
    )
    return scales, offsets


def serialise(model: Any) -> bytes:
    """Return the file of a model that was read into LiteRT's objects."""
    import flatbuffers

    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
