"""The same model as far as floats can tell: its constants one float step (ULP) away.

Before -> after:
    y = conv(x, w)        w up or down by its last digit, each number by chance
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from adrenoc.check.runtimes import import_runtime
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.tflite.float_weights import serialise

_MOST_BYTES = 1 << 29
"""Of a model whose constants are perturbed: larger ones would be written again for each draw."""
_OF_SHAPES = {"Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2)}
"""ONNX operator -> its floats that an extent is computed of: a step more is another model."""

Perturb = Callable[[np.ndarray], np.ndarray]


def perturb_array(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Step each float32 up or down by one ULP, by chance; zeros and all else stay."""
    if array.dtype != np.float32:
        return array
    up = random.random(array.shape) < 0.5
    infinity = np.float32(np.inf)
    with np.errstate(over="ignore"):  # the lowest float, which masks hold, stays
        steps = np.where(up, np.nextafter(array, infinity), np.nextafter(array, -infinity))
    held = (array == 0) | ~np.isfinite(array) | ~np.isfinite(steps)
    return np.where(held, array, steps).astype(np.float32)


def perturb_constants(model: Path, folder: Path, random: np.random.Generator) -> Path:
    """Copy a model with perturbed constants; the file itself where it cannot be rewritten.

    Raises:
        DependencyError: what reads a TFLite file is not installed.
    """
    files = find_model_files(model)
    if files.data or model.stat().st_size > _MOST_BYTES:
        return model

    def perturb(array: np.ndarray) -> np.ndarray:
        return perturb_array(array, random)

    write = _tflite if files.format == "tflite" else _onnx
    # Of onnxruntime's own format it is ONNX, which onnxruntime tells by the name.
    copy = folder / (model.with_suffix(".onnx") if model.suffix == ".ort" else model).name
    copy.write_bytes(write(model, perturb))
    return copy


def _onnx(model: Path, perturb: Perturb) -> bytes:
    import onnx
    from onnx import numpy_helper

    from adrenoc.importers.onnx.load import load_onnx

    proto, _ = load_onnx(find_model_files(model))
    held = {
        node.input[place]
        for node in proto.graph.node
        for place in _OF_SHAPES.get(node.op_type, ())
        if place < len(node.input)
    }
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.name not in held:
            value = perturb(numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    return bytes(proto.SerializeToString())


def _tflite(model: Path, perturb: Perturb) -> bytes:
    """Constants in float, and the scales of tensors, of which equal ones stay equal.

    LiteRT refuses operators that only move data between two scales, and other scales than the
    powers of two that the format says of a sigmoid or a softmax.
    """
    schema = import_runtime("ai-edge-litert", "ai_edge_litert.schema_py_generated", "TFLite")
    made = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model.read_bytes(), 0))
    tensors = [tensor for graph in made.subgraphs for tensor in graph.tensors]
    known: dict[float, float] = {}
    for tensor in tensors:
        scales = getattr(tensor.quantization, "scale", None)
        if scales is not None and len(scales):
            for scale in {float(s) for s in scales} - {*known}:
                is_power = math.frexp(scale)[0] == 0.5
                known[scale] = (
                    scale if is_power else float(perturb(np.array([scale], np.float32))[0])
                )
            tensor.quantization.scale = [known[float(s)] for s in scales]
    floats = (t.buffer for t in tensors if t.type == schema.TensorType.FLOAT32)
    for number in dict.fromkeys(floats):
        data = made.buffers[number].data
        if data is not None and len(data):
            value = perturb(np.frombuffer(bytes(data), np.float32))
            made.buffers[number].data = np.frombuffer(value.tobytes(), np.uint8)
    return serialise(made)
