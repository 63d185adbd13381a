"""The layers that `scripts/bench_kernels` and `scripts/fit_cost` measure, as small ONNX models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass(frozen=True)
class Layer:
    """A layer to measure: operators between two that keep it away from the graph's borders."""

    name: str
    op: str
    shape: tuple[int, ...]
    weights: tuple[int, ...]
    macs: int
    attrs: dict[str, Any]
    families: str = "conv|depthwise|dense|gemv|matmul|winograd"
    """The kernels to show, as a regular expression."""
    given: bool = False
    """Whether it reads what the model is given; else what a ReLU makes of that."""

    def model(self) -> onnx.ModelProto:
        """ReLU, the layer with bias, ReLU, and a sigmoid that takes the result as a texture."""
        if self.op == "Attention":
            return attention_model(*self.shape)
        if self.op == "Product":
            return product_model(*self.shape)
        if self.op == "Separable":
            return separable_model(self)
        if self.op == "Expansion":
            return expansion_model(self)
        rng = np.random.default_rng(0)
        weight = rng.standard_normal(self.weights).astype(np.float32)
        of_channels = {"MatMul": -1, "ConvTranspose": 1}.get(self.op, 0)
        outputs = (self.weights or (1,))[of_channels]
        nodes = [helper.make_node("Identity" if self.given else "Relu", ["x"], ["r"])]
        constants = {"w": weight, "b": np.zeros(outputs, np.float32)}
        if self.op == "MatMul":
            nodes += [
                helper.make_node("MatMul", ["r", "w"], ["m"]),
                helper.make_node("Add", ["m", "b"], ["c"]),
            ]
        else:
            reads = ["r", "w", "b"] if self.weights else ["r"]
            shuffles = self.op == "Shuffled"
            op = "Conv" if shuffles else self.op
            nodes.append(helper.make_node(op, reads, ["s" if shuffles else "c"], **self.attrs))
            if shuffles:
                nodes.append(helper.make_node("DepthToSpace", ["s"], ["c"], blocksize=2))
        nodes += [
            helper.make_node("Relu", ["c"], ["d"]),
            helper.make_node("Tanh" if self.op == "Softmax" else "Softmax", ["d"], ["y"]),
        ]
        return _model(nodes, {"x": self.shape}, ["y"], constants)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    constants: Mapping[str, Any],
) -> onnx.ModelProto:
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


def quantised_model(layer: Layer) -> onnx.ModelProto:
    """The same convolution as QLinearConv, of bytes that an operator before it made."""
    rng = np.random.default_rng(0)
    outputs = layer.weights[0]
    constants = {
        "w": rng.integers(-127, 128, layer.weights).astype(np.int8),
        "b": rng.integers(-999, 999, outputs).astype(np.int32),
        "scale": np.array(0.02, np.float32),
        "unit": np.array(2e-4, np.float32),
        "zero": np.array(117, np.uint8),
        "none": np.array(0, np.int8),
    }
    quanta = ["scale", "zero"]
    reads = ["r", *quanta, "w", "unit", "none", *quanta, "b"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *quanta], ["r"]),
        helper.make_node("QLinearConv", reads, ["c"], **layer.attrs),
        helper.make_node("DequantizeLinear", ["c", *quanta], ["d"]),
        helper.make_node("Softmax", ["d"], ["y"]),
    ]
    return _model(nodes, {"x": layer.shape}, ["y"], constants)


def conv(kernel: int, stride: int, channels: int, out: int, size: int, groups: int = 1) -> Layer:
    """A convolution with half padding on a square image."""
    side = -(-size // stride)
    label = f"dw{kernel}" if groups == channels else f"{kernel}x{kernel}"
    label += f" g{groups}" if 1 < groups < channels else ""
    return Layer(
        name=f"{label} s{stride} {channels}-{out}@{size}",
        op="Conv",
        shape=(1, channels, size, size),
        weights=(out, channels // groups, kernel, kernel),
        macs=side * side * out * (channels // groups) * kernel * kernel,
        attrs={"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": groups},
    )


def transposed(kernel: int, channels: int, out: int, size: int) -> Layer:
    """A transposed convolution that makes an image twice as large."""
    return Layer(
        name=f"transposed {kernel}x{kernel} s2 {channels}-{out}@{size}",
        op="ConvTranspose",
        shape=(1, channels, size, size),
        weights=(channels, out, kernel, kernel),
        macs=size * size * channels * out * kernel * kernel,
        attrs={"pads": [kernel // 2 - 1] * 4, "strides": [2, 2]},
    )


def shuffled(channels: int, out: int, size: int) -> Layer:
    """A 3x3 convolution whose channels become pixels of an image twice as large."""
    made = conv(3, 1, channels, 4 * out, size)
    label = f"shuffled 3x3 {channels}-{out}@{size}"
    return replace(made, name=label, op="Shuffled", families="conv|reshape|winograd|map")


def image(stem: Layer) -> Layer:
    """A stem on the image that the model is given, with the copy into texels if there is one."""
    return replace(stem, name=f"image {stem.name}", families="conv|layout", given=True)


def attention_model(heads: int, tokens: int, width: int) -> onnx.ModelProto:
    """Queries, keys and values split off a joint projection, as vision transformers do."""
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
    return _model(nodes, {"x": [1, tokens, dim]}, ["z"], constants)


def product_model(heads: int, rows: int, depth: int, columns: int) -> onnx.ModelProto:
    """A batched product of two activations."""
    inputs = {"a": [1, heads, rows, depth], "b": [1, heads, depth, columns]}
    nodes = [
        helper.make_node("Relu", ["a"], ["ra"]),
        helper.make_node("Relu", ["b"], ["rb"]),
        helper.make_node("MatMul", ["ra", "rb"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"], axis=-1),
    ]
    return _model(nodes, inputs, ["y"], {})


def product(heads: int, rows: int, depth: int, columns: int) -> Layer:
    """A batched product of two activations."""
    return Layer(
        name=f"product {heads}x{rows}x{depth}x{columns}",
        op="Product",
        shape=(heads, rows, depth, columns),
        weights=(),
        macs=heads * rows * depth * columns,
        attrs={},
        families="matmul",
    )


def attention(heads: int, tokens: int, width: int) -> Layer:
    """Scores, softmax and the mix of values of all heads."""
    return Layer(
        name=f"attention {heads}x{tokens}x{width}",
        op="Attention",
        shape=(heads, tokens, width),
        weights=(),
        macs=2 * heads * tokens * tokens * width,
        attrs={},
        families="attention",
    )


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
    if layer.attrs["apart"]:
        nodes.append(node("Softmax", ["d"], ["z"]))
        outputs.append("z")
    return _model(nodes, {"x": layer.shape}, outputs, _float32(constants))


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
    if layer.attrs["apart"]:
        nodes.append(node("Softmax", ["f"], ["z"]))
        outputs.append("z")
    return _model(nodes, {"x": layer.shape}, outputs, _float32(constants))


def expansion(kernel: int, stride: int, channels: int, out: int, size: int) -> tuple[Layer, Layer]:
    """A 1x1 convolution and the depthwise one after it: joined if it pays, and apart."""
    side = -(-size // stride)
    joined = Layer(
        name=f"exp{kernel} s{stride} {channels}-{out}@{size}",
        op="Expansion",
        shape=(1, channels, size, size),
        weights=(out, channels, 1, 1),
        macs=size * size * out * channels + side * side * out * kernel * kernel,
        attrs={"kernel": kernel, "stride": stride, "apart": False},
    )
    apart = {**joined.attrs, "apart": True}
    return joined, replace(joined, name=f"{joined.name} apart", attrs=apart)


def separable(kernel: int, stride: int, channels: int, out: int, size: int) -> tuple[Layer, Layer]:
    """A depthwise convolution and the 1x1 convolution after it: joined if it pays, and apart."""
    side = -(-size // stride)
    joined = Layer(
        name=f"sep{kernel} s{stride} {channels}-{out}@{size}",
        op="Separable",
        shape=(1, channels, size, size),
        weights=(out, channels, 1, 1),
        macs=side * side * channels * (out + kernel * kernel),
        attrs={"kernel": kernel, "stride": stride, "apart": False},
    )
    apart = {**joined.attrs, "apart": True}
    return joined, replace(joined, name=f"{joined.name} apart", attrs=apart)


def lines(op: str, shape: tuple[int, ...], families: str, *weights: int) -> Layer:
    """An operator that folds lines: `macs` are its elements."""
    label = f"{families} {'x'.join(map(str, shape[1:]))}"
    return Layer(
        name=label, op=op, shape=shape, weights=weights, macs=math.prod(shape), attrs={},
        families=families,
    )  # fmt: skip


LAYERS = (
    conv(3, 1, 64, 64, 56),
    conv(3, 1, 128, 128, 28),
    conv(3, 1, 256, 256, 14),
    conv(3, 1, 512, 512, 7),
    conv(1, 1, 64, 256, 56),
    conv(1, 1, 256, 64, 56),
    conv(1, 1, 512, 512, 14),
    conv(1, 1, 960, 160, 7),
    conv(3, 1, 144, 144, 56, groups=144),
    conv(3, 2, 144, 144, 56, groups=144),
    conv(5, 1, 240, 240, 28, groups=240),
    *separable(3, 1, 32, 16, 112),
    *separable(3, 2, 96, 24, 112),
    *separable(3, 1, 144, 24, 56),
    *separable(3, 2, 144, 32, 56),
    *separable(3, 1, 576, 96, 14),
    *expansion(3, 2, 16, 96, 112),
    *expansion(3, 1, 24, 144, 56),
    *expansion(3, 2, 24, 144, 56),
    *expansion(3, 1, 32, 192, 28),
    *expansion(5, 1, 40, 240, 28),
    *expansion(3, 1, 64, 384, 14),
    *expansion(3, 1, 96, 576, 14),
    *expansion(3, 1, 160, 960, 7),
    conv(7, 2, 3, 64, 224),
    conv(3, 2, 3, 32, 224),
    image(conv(7, 2, 3, 64, 224)),
    image(conv(3, 2, 3, 32, 224)),
    conv(3, 1, 128, 128, 56, groups=32),
    conv(3, 1, 512, 512, 14, groups=32),
    transposed(2, 64, 64, 56),
    transposed(4, 64, 64, 56),
    shuffled(64, 64, 56),
    Layer("fc 2048-1000", "MatMul", (1, 2048), (2048, 1000), 2048 * 1000, {}),
    lines("LayerNormalization", (1, 197, 192), "layer_norm", 192),
    lines("GlobalAveragePool", (1, 1280, 7, 7), "mean|pool"),
    lines("InstanceNormalization", (1, 32, 56, 56), "norm", 32),
    lines("Softmax", (1, 3, 197, 197), "softmax"),
    product(3, 197, 64, 197),
    product(3, 197, 197, 64),
    attention(3, 197, 64),
    attention(12, 197, 64),
    Layer("gemm 197x192x768", "MatMul", (1, 197, 192), (192, 768), 197 * 192 * 768, {}),
)
