"""Builds an ONNX graph layer by layer, keeping track of shapes."""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from model_zoo.weights import Weights

OPSET = 17


class OnnxNet:
    """A graph under construction; each layer method takes and returns tensor names."""

    def __init__(
        self,
        name: str,
        input_shape: tuple[int, ...],
        *,
        seed: int = 0,
        dtype: type[np.floating[Any]] = np.float32,
        input_dtype: type[np.generic] | None = None,
    ) -> None:
        self.weights = Weights(seed)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._dtype = np.dtype(dtype)
        self._inputs: dict[str, np.dtype[Any]] = {}
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self.input("input", input_shape, dtype=input_dtype)

    def input(
        self, name: str, shape: tuple[int, ...], *, dtype: type[np.generic] | None = None
    ) -> str:
        """Add an input of `shape`, in the dtype of the network or its own."""
        self.shapes[name] = shape
        self._inputs[name] = self._dtype if dtype is None else np.dtype(dtype)
        return name

    def node(
        self, op_type: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any
    ) -> str:
        """Append a node with one output of `shape`."""
        name = f"{op_type.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        self.shapes[name] = shape
        return name

    def constant(self, value: np.ndarray) -> str:
        """Append an initialiser; numbers with a fraction in the dtype of the network."""
        name = f"constant_{len(self._constants)}"
        if value.dtype.kind == "f":
            value = value.astype(self._dtype, copy=False)
        self._constants.append(numpy_helper.from_array(value, name))
        return name

    def conv(
        self, x: str, out: int, kernel: int, *, stride: int = 1, groups: int = 1, bias: bool = True
    ) -> str:
        """A convolution that keeps (or divides by `stride`) the extents."""
        batch, channels, height, width = self.shapes[x]
        shape = (out, channels // groups, kernel, kernel)
        inputs = [x, self.constant(self.weights.filters(shape, shape[1] * kernel * kernel))]
        if bias:
            inputs.append(self.constant(self.weights.bias(out)))
        pad = kernel // 2
        size = [(e + 2 * pad - kernel) // stride + 1 for e in (height, width)]
        return self.node(
            "Conv",
            inputs,
            (batch, out, *size),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            group=groups,
        )

    def batch_norm(self, x: str, *, scale: float = 1.0) -> str:
        """A batch normalisation with running statistics near (0, 1)."""
        channels = self.shapes[x][1]
        parts = [
            self.weights.near(scale, 0.3 * scale, channels),
            self.weights.bias(channels, 0.3 * scale),
            self.weights.bias(channels, 0.1),
            self.weights.near(1.0, 0.2, channels),
        ]
        constants = [self.constant(part) for part in parts]
        return self.node("BatchNormalization", [x, *constants], self.shapes[x])

    def relu(self, x: str) -> str:
        """max(x, 0)."""
        return self.node("Relu", [x], self.shapes[x])

    def relu6(self, x: str) -> str:
        """x between 0 and 6."""
        bounds = [self.constant(np.float32(v)) for v in (0.0, 6.0)]
        return self.node("Clip", [x, *bounds], self.shapes[x])

    def add(self, a: str, b: str) -> str:
        """The sum of two tensors of one shape."""
        return self.node("Add", [a, b], self.shapes[a])

    def concat(self, parts: list[str]) -> str:
        batch, _, *extents = self.shapes[parts[0]]
        channels = sum(self.shapes[p][1] for p in parts)
        return self.node("Concat", parts, (batch, channels, *extents), axis=1)

    def max_pool(self, x: str, kernel: int, stride: int, *, pad: int = 0) -> str:
        batch, channels, *extents = self.shapes[x]
        size = [(e + 2 * pad - kernel) // stride + 1 for e in extents]
        return self.node(
            "MaxPool",
            [x],
            (batch, channels, *size),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
        )

    def classifier(self, x: str, classes: int) -> str:
        """Global average, flatten, linear."""
        batch, channels = self.shapes[x][:2]
        pooled = self.node("GlobalAveragePool", [x], (batch, channels, 1, 1))
        flat = self.node("Flatten", [pooled], (batch, channels), axis=1)
        weight = np.ascontiguousarray(self.weights.matrix(channels, classes, gain=100.0).T)
        inputs = [flat, self.constant(weight), self.constant(self.weights.bias(classes, 0.5))]
        return self.node("Gemm", inputs, (batch, classes), transB=1)

    def upsample_by_transpose(self, x: str, out: int) -> str:
        """A transposed convolution that doubles the extents."""
        batch, channels, height, width = self.shapes[x]
        weight = self.weights.filters((channels, out, 2, 2), channels)
        inputs = [x, self.constant(weight), self.constant(self.weights.bias(out))]
        return self.node(
            "ConvTranspose",
            inputs,
            (batch, out, 2 * height, 2 * width),
            kernel_shape=[2, 2],
            strides=[2, 2],
        )

    def upsample_by_resize(self, x: str) -> str:
        """Bilinear interpolation to twice the extents."""
        batch, channels, height, width = self.shapes[x]
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        return self.node(
            "Resize",
            [x, "", scales],
            (batch, channels, 2 * height, 2 * width),
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        )

    def finish(self, output: str) -> onnx.ModelProto:
        """The model, with `output` as its one output."""
        # The last node is renamed, so that the graph output has a name of its own.
        for node in self._nodes:
            if output in node.output:
                node.output[0] = "output"
        self.shapes["output"] = self.shapes[output]

        def value(name: str, dtype: np.dtype[Any]) -> onnx.ValueInfoProto:
            element = helper.np_dtype_to_tensor_dtype(dtype)
            return helper.make_tensor_value_info(name, element, self.shapes[name])

        graph = helper.make_graph(
            self._nodes,
            self._name,
            [value(*item) for item in self._inputs.items()],
            [value("output", self._dtype)],
            self._constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="adrenoc model maker",
        )
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model
