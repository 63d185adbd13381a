"""Takes conversions at the borders out of a TFLite graph.

*Before -> after*: float32 x -> QUANTIZE -> int8 q ... int8 r -> DEQUANTIZE -> float32 y becomes
q ... r, under the names x and y; the same for uint8, and with int16 in place of int8.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from adrenoc.firmware.mcu.network import WIDTHS
from adrenoc.importers.tflite.file import GraphInfo, TensorInfo

_SHIFT = 128
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")


def strip_borders(graph: GraphInfo) -> tuple[GraphInfo, dict[int, str]]:
    """Return the graph without them, and by tensor what the file has there: "float32" or
    "uint8"."""
    readers = Counter(index for o in graph.operators for index in o.inputs)
    tensors, dtypes = list(graph.tensors), {}
    gone: set[int] = set()
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    for number, operator in enumerate(graph.operators):
        if operator.kind not in _CONVERSIONS or operator.custom:
            continue
        source, result = operator.inputs[0], operator.outputs[0]
        pair = tensors[source], tensors[result]
        if source in inputs and readers[source] == 1 and _converts(*pair):
            inner, ends, end = result, inputs, source
        elif result in outputs and not readers[result] and _converts(*pair[::-1]):
            inner, ends, end = source, outputs, result
        else:
            continue
        if inner in dtypes or ends.count(end) != 1 or inner in (*inputs, *outputs):
            continue
        ends[ends.index(end)] = inner
        dtypes[inner] = tensors[end].dtype
        tensors[inner] = replace(tensors[inner], name=tensors[end].name)
        gone.add(number)
    stripped = replace(
        graph,
        tensors=tuple(tensors),
        operators=tuple(o for n, o in enumerate(graph.operators) if n not in gone),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )
    return stripped, dtypes


def _converts(outer: TensorInfo, inner: TensorInfo) -> bool:
    """Return whether a border stands for the integers behind it, number by number."""
    if inner.dtype not in WIDTHS or inner.scales.size != 1 or outer.value is not None:
        return False
    if outer.dtype == "float32":
        return True
    same = outer.scales.size == 1 and outer.scale == inner.scale
    return (
        outer.dtype == "uint8"
        and inner.dtype == "int8"
        and same
        and outer.zero == inner.zero + _SHIFT
    )
