"""TFLite files that can be called in several ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.tflite.build import ModelBuilder, T


def write_shared(path: Path) -> Path:
    """Two signatures of unlike inputs and outputs, with one constant in common."""
    builder, weights = ModelBuilder(), np.random.default_rng(3).standard_normal((16, 64))
    sizes = {"wide": 3, "tall": 1}
    for name, rows in sizes.items():
        graph = builder.graph(name)
        x = graph.add(T(data=np.ones((rows, 64), np.float32)), f"{name}_x:0")
        held = graph.add(T(is_constant=True, data=weights.astype(np.float32)))
        options = {"weightsFormat": 0}
        (made,) = graph.op(
            "FULLY_CONNECTED", [x, held], [T(shape=(rows, 16))], "FullyConnectedOptions", options
        )
        graph.outputs = [made]
        if name == "wide":
            graph.outputs += graph.op("RELU", [made], [T(shape=(rows, 16))])
    model = schema.ModelT.InitFromPackedBuf(builder.write(), 0)
    model.signatureDefs = []
    for number, (name, graph) in enumerate(zip(sizes, model.subgraphs, strict=True)):
        made = schema.SignatureDefT()
        made.signatureKey, made.subgraphIndex = name.encode(), number
        made.inputs, made.outputs = map_name("x", graph.inputs[0]), []
        for place, index in enumerate(graph.outputs):
            graph.tensors[index].name = f"{name}_y{place}".encode()
            made.outputs += map_name(f"y{place}", index)
        model.signatureDefs.append(made)
    writer = flatbuffers.Builder(1024)
    writer.Finish(model.Pack(writer), b"TFL3")
    path.write_bytes(bytes(writer.Output()))
    return path


def map_name(name: str, index: int) -> list[Any]:
    """An argument of a signature: its name, and which tensor it is."""
    made = schema.TensorMapT()
    made.name, made.tensorIndex = name.encode(), index
    return [made]
