"""The layers that `scripts/bench_kernels` estimates, as small ONNX models."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from adrenoc.lab.calibrate.validate import table as small


@dataclass(frozen=True, kw_only=True)
class Layer(small.LayerModel):
    """A layer to measure, with how many multiply-adds it has."""

    macs: int
    families: str = "conv|depthwise|dense|gemv|matmul|winograd"
    """The kernels to show, as a regular expression."""

    def model(self) -> onnx.ModelProto:
        """The layer's model; its weights are the same each time."""
        return in_bits_model(self) if self.op == "MatMulNBits" else super().model()


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
    return onnx_model(nodes, {"x": layer.shape}, ["y"], constants)


def in_bits_model(layer: Layer) -> onnx.ModelProto:
    """A product by weights of few bits in blocks, between a ReLU and a softmax."""
    rng = np.random.default_rng(0)
    (outputs, depth), block, bits = layer.weights, layer.attrs["block_size"], layer.attrs["bits"]
    blocks = depth // block
    attrs = {"K": depth, "N": outputs, "accuracy_level": 0, **layer.attrs}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node(layer.op, ["r", "w", "s"], ["c"], domain="com.microsoft", **attrs),
        helper.make_node("Softmax", ["c"], ["y"]),
    ]
    constants = {
        "w": rng.integers(0, 256, (outputs, blocks, block * bits // 8)).astype(np.uint8),
        "s": rng.uniform(0.01, 0.02, (outputs, blocks)).astype(np.float32),
    }
    model = onnx_model(nodes, {"x": layer.shape}, ["y"], constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


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


def dense(name: str, shape: tuple[int, ...], columns: int) -> Layer:
    """A product of vectors by a constant matrix, which has so many columns."""
    return Layer(
        name=name,
        op="MatMul",
        shape=shape,
        weights=(shape[-1], columns),
        macs=math.prod(shape) * columns,
    )


def in_bits(tokens: int, depth: int, outputs: int, *, bits: int = 4, block: int = 32) -> Layer:
    """A product of some tokens by weights of few bits, in blocks with scales of their own."""
    return Layer(
        name=f"{bits} bits {tokens}x{depth}x{outputs}",
        op="MatMulNBits",
        shape=(1, tokens, depth),
        weights=(outputs, depth),
        macs=tokens * depth * outputs,
        attrs={"bits": bits, "block_size": block},
        families="n_bits|round_tokens",
    )


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
    dense("fc 2048-1000", (1, 2048), 1000),
    lines("LayerNormalization", (1, 197, 192), "layer_norm", 192),
    lines("GlobalAveragePool", (1, 1280, 7, 7), "mean|pool"),
    lines("InstanceNormalization", (1, 32, 56, 56), "norm", 32),
    lines("Softmax", (1, 3, 197, 197), "softmax"),
    product(3, 197, 64, 197),
    product(3, 197, 197, 64),
    attention(3, 197, 64),
    attention(12, 197, 64),
    attention(8, 1500, 64),
    attention(8, 4096, 40),
    dense("gemm 197x192x768", (1, 197, 192), 768),
    in_bits(1, 2048, 2048),
    in_bits(1, 2048, 6144),
    in_bits(1, 6144, 2048),
    in_bits(1, 2048, 151936),
    in_bits(4, 2048, 2048),
    in_bits(16, 2048, 2048),
    in_bits(512, 2048, 2048),
)
