"""What a model says of how it rounds: whole numbers for floats, and halves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.check.runtimes import BLOCK_PRODUCT, import_runtime
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx.widen_halves import stores_halves

_QUANTISED_OPERATORS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_QUANTISED_NAMES = (
    "QLinear",
    "MatMulInteger",
    "ConvInteger",
    "DynamicQuantize",
    "QGemm",
    BLOCK_PRODUCT,
)
_MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity")
"""ONNX operators whose results are the numbers that they read."""


@dataclass(frozen=True, kw_only=True)
class Quantised:
    """What is known of a model that rounds: the quanta of its outputs, by name.

    A whole number counts quanta; a float output has one where it is converted last.
    """

    quanta: Mapping[str, float]


def read_quanta(model: Path) -> Quantised | None:
    """Read the quanta that a model states; None of a model that neither holds any nor stores
    halves.

    Raises:
        DependencyError: the package that reads this format is not installed.
    """
    if find_model_files(model).format == "tflite":
        return _quantised_tflite(model)
    return _quantised_onnx(model)


def _quantised_onnx(model: Path) -> Quantised | None:
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(model), load_external_data=False).graph
    kinds = {node.op_type for node in graph.node}
    rounds = any(k in _QUANTISED_OPERATORS or k.startswith(_QUANTISED_NAMES) for k in kinds)
    if not rounds and not stores_halves(graph):
        return None
    makers = {name: node for node in graph.node for name in node.output}
    constants = {c.name: c for c in graph.initializer if not c.external_data}
    quanta = {}
    for value in graph.output:
        floats = value.type.tensor_type.elem_type in (
            onnx.TensorProto.FLOAT,
            onnx.TensorProto.FLOAT16,
            onnx.TensorProto.UNDEFINED,  # a file need not say it
        )
        maker = makers.get(value.name)
        while maker is not None and maker.op_type in _MOVES:
            maker = makers.get(maker.input[0])
        if not floats:
            quanta[value.name] = 1.0
        elif maker is not None and maker.op_type == "DequantizeLinear":
            scale = constants.get(maker.input[1])
            if scale is not None:
                quanta[value.name] = float(numpy_helper.to_array(scale).max())
    return Quantised(quanta=quanta)


def _quantised_tflite(model: Path) -> Quantised | None:
    runtime = import_runtime("ai-edge-litert", "ai_edge_litert.interpreter", "TFLite")
    interpreter = runtime.Interpreter(model_path=str(model))
    details = {d["index"]: d for d in interpreter.get_tensor_details()}

    def is_quantised(detail: Mapping[str, Any]) -> bool:
        whole = np.dtype(detail["dtype"]).kind in "iu"
        return whole and len(detail["quantization_parameters"]["scales"]) > 0

    if not any(is_quantised(detail) for detail in details.values()):
        return None
    # LiteRT has no other way to ask which operator makes a tensor.
    converted = {
        op["outputs"][0]: op["inputs"][0]
        for op in interpreter._get_ops_details()
        if op["op_name"] == "DEQUANTIZE"
    }
    quanta = {}
    for output in interpreter.get_output_details():
        source = details.get(converted.get(output["index"], -1))
        if np.dtype(output["dtype"]).kind in "iu":
            quanta[output["name"]] = 1.0
        elif source is not None and is_quantised(source):
            quanta[output["name"]] = float(max(source["quantization_parameters"]["scales"]))
    return Quantised(quanta=quanta)
