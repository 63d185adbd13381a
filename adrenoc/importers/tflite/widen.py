"""TFLite models of dynamic range with their weights as floats: what LiteRT is to compute of them.

Before -> after:
    conv_2d(float data, int8 weights)       conv_2d(float data, float32 weights)

LiteRT rounds the data to 8 bits there, a batch row at a time, to multiply integers.  The GPU keeps
the data as they are, which is nearer to the model that was trained and far from LiteRT by that
rounding, up to some percent behind many layers: a check against LiteRT's own result would tell
nothing of the kernels.

Source: TFLite schema version 3; LiteRT's hybrid kernels.
"""

from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.importers.tflite.file import TensorInfo, read_tflite
from adrenoc.importers.tflite.stored import serialise

_DATA = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL"), 0),
    **dict.fromkeys(("SVDF", "RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"), 0),
    **dict.fromkeys(("BIDIRECTIONAL_SEQUENCE_RNN", "LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"), 0),
    "BIDIRECTIONAL_SEQUENCE_LSTM": 0,
    "TRANSPOSE_CONV": 2,
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
    read = read_tflite(Path("its model"), content)
    for graph, known in zip(model.subgraphs, read.graphs, strict=True):
        floats: dict[int, int] = {}
        for operator in graph.operators:
            code, inputs = codes[operator.opcodeIndex], list(operator.inputs)
            if code not in data or known.tensors[inputs[data[code]]].dtype != "float32":
                continue
            for index in set(inputs) - {-1, *floats}:
                info, is_sparse = known.tensors[index], graph.tensors[index].sparsity is not None
                is_narrow = info.is_quantised and info.dtype in ("int4", "int8")
                if is_narrow and info.value is not None and not is_sparse:
                    floats[index] = _add_floats(model, graph, info, schema)
            operator.inputs = [floats.get(index, index) for index in inputs]
            changed |= operator.inputs != inputs
    return serialise(model) if changed else None


def _add_floats(model: Any, graph: Any, info: TensorInfo, schema: Any) -> int:
    """Add what a constant stands for as a tensor; returns its number."""
    zeros, scales = (info.lay_along(part).astype(np.float32) for part in (info.zeros, info.scales))
    real = (np.asarray(info.value) - zeros) * scales
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(real.astype(np.float32).tobytes(), np.uint8)
    model.buffers.append(buffer)
    made = schema.TensorT()
    made.name = f"{info.name}/floats".encode()
    made.type, made.shape = int(schema.TensorType.FLOAT32), list(info.shape)
    made.buffer = len(model.buffers) - 1
    graph.tensors.append(made)
    return len(graph.tensors) - 1
