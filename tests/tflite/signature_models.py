"""TFLite files that can be called in several ways."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.tflite.build import GraphBuilder, ModelBuilder, T, start


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


def handle(graph: GraphBuilder, name: str) -> int:
    """A variable of the file in one of its graphs."""
    options = {"sharedName": name, "container": ""}
    [made] = graph.op("VAR_HANDLE", [], [T(dtype="resource")], "VarHandleOptions", options)
    return made


def write_sharing(path: Path, first: np.ndarray, *, widened: bool = False) -> Path:
    """`add` adds its input to a variable, which begins as `first` and which `peek` multiplies its
    input with; where it is `widened`, `peek` takes it for another shape."""
    builder = ModelBuilder()
    add, peek, init = (builder.graph(name) for name in ("add", "peek", "init"))
    for graph in (add, peek):
        graph.op("CALL_ONCE", [], [], "CallOnceOptions", {"initSubgraphIndex": 2})
        shape = (1, 1, *first.shape) if widened and graph is peek else first.shape
        x = graph.add(T(data=np.ones(shape, np.float32)), f"{graph.name}_x:0")
        held = handle(graph, "sum")
        [value] = graph.op("READ_VARIABLE", [held], [T(shape=shape)])
        kind = "ADD" if graph is add else "MUL"
        [y] = graph.op(kind, [value, x], [T(shape=shape)], f"{kind.title()}Options")
        if graph is add:
            graph.op("ASSIGN_VARIABLE", [held, y], [])
        graph.tensors[y].name = f"{graph.name}_y".encode()
        builder.sign(graph, {"x": x}, {"y": y})
    value = init.add(T(data=first, is_constant=True))
    init.op("ASSIGN_VARIABLE", [handle(init, "sum"), value], [])
    path.write_bytes(builder.write())
    return path


def call_sharing(path: Path, calls: Sequence[tuple[str, np.ndarray]]) -> list[np.ndarray]:
    """What LiteRT gives for calls of signatures one after the other."""
    run = start(path.read_bytes())
    return [np.array(run.get_signature_runner(key)(x=x)["y"]) for key, x in calls]
