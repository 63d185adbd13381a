"""TFLite files that can be called in several ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.tflite.build import ModelBuilder, T


def write_shared(path: Path) -> Path:
    """Two signatures of unlike inputs and outputs, with one constant in common."""
    builder, weights = ModelBuilder(), np.random.default_rng(3).standard_normal((16, 64))
    weights = weights.astype(np.float32)
    for name, rows in {"wide": 3, "tall": 1}.items():
        graph = builder.graph(name)
        x = graph.add(T(data=np.ones((rows, 64), np.float32)), f"{name}_x:0")
        held = graph.add(T(is_constant=True, data=weights))
        options = {"weightsFormat": 0}
        outputs = graph.op(
            "FULLY_CONNECTED", [x, held], [T(shape=(rows, 16))], "FullyConnectedOptions", options
        )
        if name == "wide":
            outputs += graph.op("RELU", outputs, [T(shape=(rows, 16))])
        for place, index in enumerate(outputs):
            graph.tensors[index].name = f"{name}_y{place}".encode()
        builder.sign(graph, {"x": x}, {f"y{place}": index for place, index in enumerate(outputs)})
    path.write_bytes(builder.write())
    return path
