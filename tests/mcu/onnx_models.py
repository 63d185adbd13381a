"""Small ONNX models, quantised by onnxruntime's own tool."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

SHAPE = (1, 3, 12, 10)


@dataclass(kw_only=True)
class _Graph:
    seed: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def add(self, kind: str, inputs: list[str], output: str, **attributes) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def weights(self, name: str, *shape: int) -> str:
        values = self.random.normal(size=shape) / np.sqrt(max(1, np.prod(shape[1:])))
        self.constants.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def whole(self, name: str, *numbers: int) -> str:
        self.constants.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        return name

    def conv(self, x: str, name: str, sizes: tuple[int, int], kernel: int, **how) -> str:
        """`sizes`: channels that are read, for each group, and that are made."""
        depth, channels = sizes
        relu = how.pop("relu", "")
        inputs = [x, self.weights(f"{name}_w", channels, depth, kernel, kernel)]
        inputs.append(self.weights(f"{name}_b", channels))
        pads = [kernel // 2] * 4
        made = self.add("Conv", inputs, f"{name}_c" if relu else name, pads=pads, **how)
        return self.add(relu, [made], name) if relu else made


def float_model(seed: int) -> onnx.ModelProto:
    """Blocks as of MobileNetV2 and a classifier; a gate, a concatenation, a transpose."""
    g = _Graph(seed=seed)
    x = g.conv("x", "stem", (3, 8), 3, strides=[2, 2], relu="Relu")
    y = g.conv(x, "wide", (8, 24), 1, relu="Relu")
    y = g.conv(y, "deep", (1, 24), 3, group=24, relu="Relu")
    x = g.add("Add", [x, g.conv(y, "narrow", (24, 8), 1)], "sum")
    gate = g.add("Sigmoid", [g.conv(x, "gate", (8, 8), 1)], "gated")
    x = g.add("Mul", [x, gate], "product")
    x = g.add("Concat", [x, g.conv(x, "more", (8, 5), 3, relu="LeakyRelu")], "joined", axis=1)
    x = g.add("AveragePool", [x], "averaged", kernel_shape=[3, 2], pads=[1, 0, 1, 1])
    x = g.add("Pad", [x, g.whole("pads", 0, 0, 1, 0, 0, 0, 0, 2)], "padded")
    sizes = g.whole("sizes", 1, 13, 9, 11)
    x = g.add("Resize", [x, "", "", sizes], "resized", mode="nearest")
    x = g.conv(x, "last", (13, 16), 3, strides=[3, 3], relu="Relu")
    x = g.add("MaxPool", [x], "pooled", kernel_shape=[2, 1], strides=[1, 1])
    x = g.add("Softmax", [x], "mixed", axis=1)
    flat = g.add("Flatten", [x], "flat")
    side = g.add(
        "Gemm", [flat, g.weights("s_w", 6, 16 * 2 * 4), g.weights("s_b", 6)], "scores", transB=1
    )
    side = g.add("Softmax", [side], "side", axis=-1)
    x = g.add("Flatten", [g.add("GlobalAveragePool", [x], "mean")], "row")
    y = g.add("Gemm", [x, g.weights("y_w", 10, 16), g.weights("y_b", 10)], "y", transB=1)
    info = helper.make_tensor_value_info
    outputs = [info(y, TensorProto.FLOAT, [1, 10]), info(side, TensorProto.FLOAT, [1, 6])]
    inputs = [info("x", TensorProto.FLOAT, list(SHAPE))]
    graph = helper.make_graph(g.nodes, "g", inputs, outputs, g.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def model_of_parts(seed: int) -> onnx.ModelProto:
    """Groups, a shuffle of channels, parts of tensors, a gate of means, transposed convolutions."""
    g = _Graph(seed=seed)
    x = g.conv("x", "stem", (3, 12), 3, relu="Relu")
    x = g.conv(x, "groups", (4, 12), 3, group=3, relu="Relu")
    for name, shape in (("apart", (1, 3, 4, 12, 10)), ("whole", (1, 12, 12, 10))):
        if name == "whole":
            x = g.add("Transpose", [x], "turned", perm=[0, 2, 1, 3, 4])
        x = g.add("Reshape", [x, g.whole(f"{name}_shape", *shape)], name)
    gate = g.add("ReduceMean", [x], "mean", axes=[2, 3], keepdims=1)
    gate = g.add("HardSigmoid", [g.conv(gate, "gate", (12, 12), 1)], "gated", alpha=1 / 6)
    x = g.add("Mul", [x, gate], "product")
    numbers = [g.whole(f"slice{n}", *v) for n, v in enumerate([(2,), (12,), (1,), (1,)])]
    x = g.add("Slice", [x, *numbers], "cut")
    x = g.add("MaxPool", [x], "small", kernel_shape=[2, 2], strides=[2, 2])
    for name, (depth, channels), kernel, how in (
        ("up", (10, 6), 2, {"strides": [2, 2]}),
        ("more", (6, 4), 3, {"strides": [2, 1], "pads": [1, 1, 0, 1], "output_padding": [1, 0]}),
    ):
        weights = g.weights(f"{name}_w", depth, channels, kernel, kernel)
        bias = g.weights(f"{name}_b", channels)
        x = g.add("ConvTranspose", [x, weights, bias], name, **how)
    x = g.conv(x, "last", (4, 5), 3, relu="Relu")
    side = g.add("ReduceMean", [x], "row", axes=[-1, -2], keepdims=0)
    side = g.add("Gemm", [side, g.weights("s_w", 3, 5), g.weights("s_b", 3)], "side", transB=1)
    x = g.add("ReduceMean", [x], "square", axes=[2, 3], keepdims=1)
    x = g.add("Flatten", [g.add("Squeeze", [x, g.whole("axis", 3)], "line")], "flat")
    y = g.add("Gemm", [x, g.weights("y_w", 10, 5), g.weights("y_b", 10)], "y", transB=1)
    info = helper.make_tensor_value_info
    outputs = [info(y, TensorProto.FLOAT, [1, 10]), info(side, TensorProto.FLOAT, [1, 3])]
    ends = [info("x", TensorProto.FLOAT, list(SHAPE))], outputs
    graph = helper.make_graph(g.nodes, "g", *ends, g.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class _Samples(CalibrationDataReader):
    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.left = [random.normal(size=SHAPE).astype(np.float32) for _ in range(4)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return {"x": self.left.pop()} if self.left else None


def write_quantised(
    folder: Path,
    *,
    seed: int,
    form: str,
    data: str,
    per_channel: bool = True,
    make: Callable[[int], onnx.ModelProto] = float_model,
) -> Path:
    """A model file; `form` is "QDQ" or "QOperator", `data` "QInt8" or "QUInt8"."""
    plain, path = folder / "float.onnx", folder / f"{form}.onnx"
    onnx.save(make(seed), plain)
    quantize_static(
        plain,
        path,
        _Samples(seed),
        quant_format=getattr(QuantFormat, form),
        per_channel=per_channel,
        activation_type=getattr(QuantType, data),
        weight_type=QuantType.QInt8,
    )
    return path


RESIZED = {"mode": "half_pixel", "dtype": np.uint8, "alike": False, "scales": ""}
"""How `write_resized` resizes."""


def write_resized(
    folder: Path, how: dict[str, Any], size: list[int], *, between: bool = True
) -> Path:
    """A linear resize between two conversions, or of bytes as they are."""
    make, info = helper.make_node, helper.make_tensor_value_info
    dtype, alike = how["dtype"], how["alike"]
    sizes = ["", how["scales"], "" if how["scales"] else "sizes"]
    options = {"mode": "linear", "coordinate_transformation_mode": how["mode"]}
    nodes = [make("QuantizeLinear", ["x", "a", "a0"], ["q"])]
    if between:
        nodes += [
            make("DequantizeLinear", ["q", "a", "a0"], ["f"]),
            make("Resize", ["f", *sizes], ["g"], **options),
            make("QuantizeLinear", ["g", "b", "b0"], ["r"]),
            make("DequantizeLinear", ["r", "b", "b0"], ["y"]),
        ]
    else:
        nodes.append(make("Resize", ["q", *sizes], ["r"], name="larger", **options))
        nodes.append(make("DequantizeLinear", ["r", "a", "a0"], ["y"]))
    quanta = {"a": np.float32(0.031), "b": np.float32(0.031 if alike else 0.027)}
    zeros = {"a0": dtype(11), "b0": dtype(11 if alike else 6)}
    ratio = np.array([1, 1, size[2] / 7, size[3] / 10], np.float32)
    constants = {**quanta, **zeros, "sizes": np.array(size, np.int64), "scales": ratio}
    used = {name for node in nodes for name in node.input}
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items() if n in used]
    ends = [[info("x", 1, [1, 3, 7, 10])], [info("y", 1, size)]]
    graph = helper.make_graph(nodes, "g", *ends, stored)
    path = folder / "m.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path
