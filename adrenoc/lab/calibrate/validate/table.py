"""The layers that are measured: rows of `targets/validation.toml`, each as a small ONNX model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from adrenoc.base.files.read import data_folder, read_toml


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """A layer with what is told of it.

    `join` is what the cost model decides about it (`JOINS` of `session.py`), empty for nothing.
    `kernels` are the families whose schedules count; all that have schedules where it is empty.
    """

    layer: Layer
    family: str
    join: str = ""
    kept_out: bool = False
    """Whether no constant is fitted to it."""
    kernels: tuple[str, ...] = ()


def layer_rows() -> tuple[LayerRow, ...]:
    """All rows, in the order of the file."""
    table = read_toml(data_folder("targets") / "validation.toml")
    return tuple(_row(fields) for fields in table["layers"])


def _row(fields: Mapping[str, Any]) -> LayerRow:
    known = dict(fields)
    layer = Layer(
        name=known.pop("name"),
        op=known.pop("op"),
        shape=tuple(known.pop("shape")),
        weights=tuple(known.pop("weights", ())),
        attrs=known.pop("attrs", {}),
        given=known.pop("given", False),
    )
    kernels = tuple(known.pop("kernels", ()))
    return LayerRow(layer=layer, kernels=kernels, **known)


def families_in_turn(rows: Sequence[LayerRow]) -> tuple[LayerRow, ...]:
    """The first layer of each family, then the second ones, so that little time reaches all."""
    seen: Counter[str] = Counter()
    places = []
    for row in rows:
        places.append(seen[row.family])
        seen[row.family] += 1
    return tuple(row for _, row in sorted(zip(places, rows, strict=True), key=itemgetter(0)))


def wanted_rows(only: tuple[str, ...]) -> tuple[LayerRow, ...]:
    """The rows whose names or families hold one of these parts; all where there is none."""
    rows = layer_rows()
    if not only:
        return rows
    return tuple(r for r in rows if any(part in f"{r.family}: {r.layer.name}" for part in only))


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Operators between two others, which keep them away from the graph's borders.

    `op` is one of `MODELS`, or an operator of ONNX that reads the input, `weights` and a bias.
    """

    name: str
    op: str
    shape: tuple[int, ...]
    weights: tuple[int, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    given: bool = False
    """Whether it reads what the model is given; else what a ReLU makes of that."""

    def model(self) -> onnx.ModelProto:
        """The layer's model; its weights are the same each time."""
        return MODELS.get(self.op, unfused_model)(self)


def unfused_model(layer: Layer) -> onnx.ModelProto:
    """ReLU, the layer with bias, ReLU, and a sigmoid that takes the result as a texture."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(layer.weights).astype(np.float32)
    of_channels = {"MatMul": -1, "ConvTranspose": 1}.get(layer.op, 0)
    outputs = (layer.weights or (1,))[of_channels]
    nodes = [helper.make_node("Identity" if layer.given else "Relu", ["x"], ["r"])]
    constants = {"w": weight, "b": np.zeros(outputs, np.float32)}
    if layer.op == "MatMul":
        nodes += [
            helper.make_node("MatMul", ["r", "w"], ["m"]),
            helper.make_node("Add", ["m", "b"], ["c"]),
        ]
    else:
        reads = ["r", "w", "b"] if layer.weights else ["r"]
        shuffles = layer.op == "Shuffled"
        op = "Conv" if shuffles else layer.op
        nodes.append(helper.make_node(op, reads, ["s" if shuffles else "c"], **layer.attrs))
        if shuffles:
            nodes.append(helper.make_node("DepthToSpace", ["s"], ["c"], blocksize=2))
    nodes += [
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Tanh" if layer.op == "Softmax" else "Softmax", ["d"], ["y"]),
    ]
    return onnx_model(nodes, {"x": layer.shape}, ["y"], constants)


def onnx_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    constants: Mapping[str, Any],
) -> onnx.ModelProto:
    """A model of these nodes; shapes of outputs follow."""
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def _float32(constants: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, np.float32) for name, value in constants.items()}


def attention_model(layer: Layer) -> onnx.ModelProto:
    """Queries, keys and values split off a joint projection, as vision transformers do."""
    heads, tokens, width = layer.shape
    dim = heads * width
    node = helper.make_node
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("MatMul", ["r", "w"], ["qkv"]),
        node("Reshape", ["qkv", "split"], ["s"]),
        node("Transpose", ["s"], ["t"], perm=[2, 0, 3, 1, 4]),
        *(node("Gather", ["t", f"i{i}"], [name], axis=0) for i, name in enumerate("qkv")),
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Mul", ["scores", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "joined"], ["y"]),
        node("Softmax", ["y"], ["z"], axis=-1),
    ]
    constants = {
        "w": np.random.default_rng(0).standard_normal((dim, 3 * dim)).astype(np.float32),
        "split": np.array([1, tokens, 3, heads, width]),
        "joined": np.array([1, tokens, dim]),
        "scale": np.float32(width**-0.5),
        **{f"i{i}": np.array(i) for i in range(3)},
    }
    return onnx_model(nodes, {"x": [1, tokens, dim]}, ["z"], constants)


def product_model(layer: Layer) -> onnx.ModelProto:
    """A batched product of two activations."""
    heads, rows, depth, columns = layer.shape
    inputs = {"a": [1, heads, rows, depth], "b": [1, heads, depth, columns]}
    nodes = [
        helper.make_node("Relu", ["a"], ["ra"]),
        helper.make_node("Relu", ["b"], ["rb"]),
        helper.make_node("MatMul", ["ra", "rb"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"], axis=-1),
    ]
    return onnx_model(nodes, inputs, ["y"], {})


def separable_model(layer: Layer) -> onnx.ModelProto:
    """A depthwise convolution, ReLU6 and a 1x1 convolution; `apart` with another reader between."""
    rng = np.random.default_rng(0)
    channels, kernel = layer.shape[1], layer.attrs["kernel"]
    node = helper.make_node
    constants = {
        "taps": rng.standard_normal((channels, 1, kernel, kernel)),
        "first": np.zeros(channels),
        "w": rng.standard_normal(layer.weights),
        "b": np.zeros(layer.weights[0]),
        "low": np.array(0.0),
        "high": np.array(6.0),
    }
    pads, strides = [kernel // 2] * 4, [layer.attrs["stride"]] * 2
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Conv", ["r", "taps", "first"], ["c"], pads=pads, strides=strides, group=channels),
        node("Clip", ["c", "low", "high"], ["d"]),
        node("Conv", ["d", "w", "b"], ["p"]),
        node("Softmax", ["p"], ["y"]),
    ]
    outputs = ["y"]
    if layer.attrs.get("apart"):
        nodes.append(node("Softmax", ["d"], ["z"]))
        outputs.append("z")
    return onnx_model(nodes, {"x": layer.shape}, outputs, _float32(constants))


def expansion_model(layer: Layer) -> onnx.ModelProto:
    """A 1x1 convolution, ReLU6, a depthwise one, ReLU6; `apart` with another reader between."""
    rng = np.random.default_rng(0)
    (channels, _, _, _), kernel = layer.weights, layer.attrs["kernel"]
    node = helper.make_node
    constants = {
        "w": rng.standard_normal(layer.weights),
        "b": rng.standard_normal(channels),
        "taps": rng.standard_normal((channels, 1, kernel, kernel)),
        "second": rng.standard_normal(channels),
        "low": np.array(0.0),
        "high": np.array(6.0),
    }
    pads, strides = [kernel // 2] * 4, [layer.attrs["stride"]] * 2
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Conv", ["r", "w", "b"], ["e"]),
        node("Clip", ["e", "low", "high"], ["f"]),
        node("Conv", ["f", "taps", "second"], ["d"], pads=pads, strides=strides, group=channels),
        node("Clip", ["d", "low", "high"], ["p"]),
        node("Softmax", ["p"], ["y"]),
    ]
    outputs = ["y"]
    if layer.attrs.get("apart"):
        nodes.append(node("Softmax", ["f"], ["z"]))
        outputs.append("z")
    return onnx_model(nodes, {"x": layer.shape}, outputs, _float32(constants))


def prologue_model(layer: Layer) -> onnx.ModelProto:
    """Batch norm and ReLU of a tensor that others read too, and the convolution that reads them."""
    rng = np.random.default_rng(0)
    channels = layer.shape[1]
    node = helper.make_node
    constants = {
        "scale": rng.standard_normal((channels, 1, 1)),
        "shift": rng.standard_normal((channels, 1, 1)),
        "w": rng.standard_normal(layer.weights),
        "b": np.zeros(layer.weights[0]),
    }
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Mul", ["r", "scale"], ["m"]),
        node("Add", ["m", "shift"], ["a"]),
        node("Relu", ["a"], ["p"]),
        node("Conv", ["p", "w", "b"], ["c"], **layer.attrs),
        node("Softmax", ["c"], ["y"]),
        node("Softmax", ["r"], ["z"]),
    ]
    return onnx_model(nodes, {"x": layer.shape}, ["y", "z"], _float32(constants))


def enlarged_model(layer: Layer) -> onnx.ModelProto:
    """An image enlarged by its nearest pixels, which others read too, and a convolution of that."""
    rng = np.random.default_rng(0)
    node = helper.make_node
    constants = {
        "w": rng.standard_normal(layer.weights),
        "b": np.zeros(layer.weights[0]),
        "twice": np.array([1.0, 1.0, 2.0, 2.0]),
    }
    nearest = {"mode": "nearest", "nearest_mode": "floor"}
    where = {"coordinate_transformation_mode": "asymmetric"}
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Resize", ["r", "", "twice"], ["e"], **nearest, **where),
        node("Conv", ["e", "w", "b"], ["c"], **layer.attrs),
        node("Softmax", ["c"], ["y"]),
        node("Softmax", ["r"], ["z"]),
    ]
    return onnx_model(nodes, {"x": layer.shape}, ["y", "z"], _float32(constants))


MODELS: Mapping[str, Callable[[Layer], onnx.ModelProto]] = {
    "Attention": attention_model,
    "Product": product_model,
    "Separable": separable_model,
    "Expansion": expansion_model,
    "Prologue": prologue_model,
    "Enlarged": enlarged_model,
}
"""Layers that are more than one operator."""
