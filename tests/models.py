"""Networks and small graphs for tests; made once a run, in memory or as files."""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from model_zoo import onnx_models, tflite_models


@lru_cache(maxsize=16)
def network(name: str, size: int = 64, width: float = 0.5, classes: int = 10) -> bytes:
    """The file content of a network of `scripts/make_model.py`."""
    made = {**onnx_models.MODELS, **tflite_models.MODELS}[name]
    model = made(size=size, width=width, classes=classes)
    return model if isinstance(model, bytes) else model.SerializeToString()


def write_network(folder: Path, name: str, **options) -> Path:
    suffix = ".tflite" if name in tflite_models.MODELS else ".onnx"
    path = folder / f"{name}{suffix}"
    path.write_bytes(network(name, **options))
    return path


def parse_nodes(text: str) -> list[onnx.NodeProto]:
    """Nodes in ONNX's own text: `a = MatMul(x, w) y = Softmax <axis = 1>(a)`."""
    return list(onnx.parser.parse_graph(f"nodes () => () {{ {text} }}").node)


def graph(
    nodes: Sequence[onnx.NodeProto] | str,
    inputs: dict[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    domains: Sequence[str] = (),
    dtype: int = onnx.TensorProto.FLOAT,
    dtypes: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A small ONNX model, of nodes or their text; constants become initialisers.

    `dtypes` are those of other inputs.
    """
    of_input = {name: dtype for name in inputs} | dict(dtypes or {})
    proto = helper.make_graph(
        parse_nodes(nodes) if isinstance(nodes, str) else list(nodes),
        "test",
        [helper.make_tensor_value_info(n, of_input[n], list(s)) for n, s in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    model = helper.make_model(proto, opset_imports=imports)
    model.ir_version = 8
    return model


def write(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def write_stepper(folder: Path, shape: tuple[int, ...]) -> Path:
    """A model with a state: y = 2 (h / 2 + x), and h becomes h / 2 + x."""
    nodes = "less = Mul(h, half) hn = Add(less, x) y = Mul(hn, two)"
    constants = {"half": np.float32(0.5).reshape(1), "two": np.float32(2).reshape(1)}
    made = graph(nodes, {"x": shape, "h": shape}, ["y", "hn"], constants)
    return write(made, folder, "step.onnx")


def write_conv_chain(folder: Path, layers: int, channels: int, side: int, shrink: float) -> Path:
    """Convolutions one after the other, a kernel each; their weights are divided by `shrink`."""
    rng = np.random.default_rng(3)
    names = [f"t{i}" for i in range(layers + 1)]
    form = (channels, channels, 3, 3)
    weights = {
        f"w{i}": (rng.standard_normal(form) / shrink).astype("float32") for i in range(layers)
    }
    nodes = [
        helper.make_node("Conv", [names[i], f"w{i}"], [names[i + 1]], pads=[1, 1, 1, 1])
        for i in range(layers)
    ]
    made = graph(nodes, {"t0": (1, channels, side, side)}, [names[-1]], weights)
    return write(made, folder, "chain.onnx")
