"""What a model says of how it rounds: whole numbers for floats, and halves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adrenoc.check.lite_calls import list_tensors
from adrenoc.check.runtimes import import_runtime
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx.load import read_proto
from adrenoc.importers.onnx.unsigned_products import MOVES
from adrenoc.importers.onnx.widen_halves import stores_halves

if TYPE_CHECKING:
    import onnx

_QUANTISED_OPERATORS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_QUANTISED_NAMES = (
    "QLinear",
    "MatMulInteger",
    "ConvInteger",
    "DynamicQuantize",
    "QGemm",
)
_SCALE_OF_QGEMM = 7
"""The input that says the scale of what comes out; floats do where it is absent."""


@dataclass(frozen=True, kw_only=True)
class Quantised:
    """What is known of a model that rounds: the quanta of its outputs, and of its `tensors`, by
    name.

    A whole number counts quanta; a float has one where it is converted last.
    """

    quanta: Mapping[str, float]
    tensors: Mapping[str, float]


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

    graph = read_proto(model).graph
    kinds = {node.op_type for node in graph.node}
    rounds = any(k in _QUANTISED_OPERATORS or k.startswith(_QUANTISED_NAMES) for k in kinds)
    if not rounds and not stores_halves(graph):
        return None
    constants = {c.name: c for c in graph.initializer if not c.external_data}
    tensors: dict[str, float] = {}
    for node in graph.node:
        step = 0.0
        if node.op_type in MOVES:
            step = tensors.get(node.input[0], 0.0)
        elif _makes_quanta(node):
            step = 1.0
        elif node.op_type == "DequantizeLinear" and node.input[1] in constants:
            step = float(numpy_helper.to_array(constants[node.input[1]]).max())
        if step:
            tensors[node.output[0]] = step
    quanta = {}
    for value in graph.output:
        floats = value.type.tensor_type.elem_type in (
            onnx.TensorProto.FLOAT,
            onnx.TensorProto.FLOAT16,
            onnx.TensorProto.UNDEFINED,  # a file need not say it
        )
        if not floats:
            quanta[value.name] = 1.0
        elif value.name in tensors:
            quanta[value.name] = tensors[value.name]
    return Quantised(quanta=quanta, tensors={**tensors, **quanta})


def _makes_quanta(node: onnx.NodeProto) -> bool:
    """Return whether the first output holds whole numbers that stand for floats."""
    if node.op_type == "QGemm":
        return len(node.input) > _SCALE_OF_QGEMM and bool(node.input[_SCALE_OF_QGEMM])
    return node.op_type.endswith("QuantizeLinear") or node.op_type.startswith("QLinear")


def _quantised_tflite(model: Path) -> Quantised | None:
    runtime = import_runtime("ai-edge-litert", "ai_edge_litert.interpreter", "TFLite")
    content, _ = find_model_files(model).read()
    interpreter = runtime.Interpreter(model_content=content)
    details = list_tensors(interpreter)

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
    tensors = {}
    for index, detail in details.items():
        source = details.get(converted.get(index, -1))
        if is_quantised(detail):
            tensors[detail["name"]] = 1.0
        elif source is not None and is_quantised(source):
            tensors[detail["name"]] = float(max(source["quantization_parameters"]["scales"]))
    outputs = [details[d["index"]] for d in interpreter.get_output_details()]
    whole = {d["name"]: 1.0 for d in outputs if np.dtype(d["dtype"]).kind in "iu"}
    stated = {d["name"]: tensors[d["name"]] for d in outputs if d["name"] in tensors}
    return Quantised(quanta={**stated, **whole}, tensors={**tensors, **whole})
