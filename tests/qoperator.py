"""Quantised ONNX networks under construction, in integers: QLinearConv and its kin."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 17


class QNet:
    """A chain of quantised operators over one image; scales keep the integers well spread.

    ```
    net = QNet((1, 8, 9, 7), dtype="uint8")
    net.conv(16, kernel=3)
    model = net.model()
    ```
    """

    def __init__(self, shape: tuple[int, ...], *, dtype: str = "uint8", seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype, self.shape = dtype, shape
        self.shape_now = shape
        """Of the last tensor."""
        self.tensor = "x"
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self.scale = 0.021
        self.zero = 117 if dtype == "uint8" else -11

    def image(self) -> np.ndarray:
        """Random input of the whole range."""
        info = np.iinfo(self.dtype)
        return self.random.integers(info.min, info.max + 1, self.shape).astype(self.dtype)

    def conv(
        self,
        channels: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        group: int = 1,
        pad: int | None = None,
        per_channel: bool = False,
        bias: bool = True,
    ) -> str:
        """A QLinearConv behind what there is; returns its output."""
        in_channels = self.shape_now[1] // group
        taps = in_channels * kernel * kernel
        weight = self.random.integers(-127, 128, (channels, in_channels, kernel, kernel))
        scales = self.random.uniform(0.5, 1.5, channels if per_channel else ())
        scales = scales.astype(np.float32) * np.float32(0.02 / np.sqrt(taps))
        info = np.iinfo(self.dtype)
        zero = int(self.random.integers((info.min * 3 + info.max) // 4, info.max - 60))
        scale = float(np.float32(self.scale * self.random.uniform(0.9, 1.3)))
        inputs = [
            *(self.tensor, self._const(self.scale), self._zero(self.zero)),
            self._const(weight, np.int8),
            self._const(scales),
            self._const(np.zeros_like(scales), np.int8),
            *(self._const(scale), self._zero(zero)),
        ]
        if bias:
            inputs.append(self._const(self.random.integers(-3000, 3000, channels), np.int32))
        border = kernel // 2 if pad is None else pad
        attrs = {"pads": [border] * 4, "strides": [stride] * 2, "group": group}
        n, _, h, w = self.shape_now
        extents = [(e + 2 * border - kernel) // stride + 1 for e in (h, w)]
        return self._next("QLinearConv", inputs, (n, channels, *extents), scale, zero, **attrs)

    def add(self, other: str, scale: float, zero: int) -> str:
        """A QLinearAdd of what there is and an earlier tensor of the same shape."""
        result = float(np.float32(1.4 * self.scale))
        inputs = [
            *(self.tensor, self._const(self.scale), self._zero(self.zero)),
            *(other, self._const(scale), self._zero(zero)),
            *(self._const(result), self._zero(self.zero)),
        ]
        domain = "com.microsoft"
        return self._next("QLinearAdd", inputs, self.shape_now, result, self.zero, domain=domain)

    def gemm(self, columns: int) -> str:
        """A flat QGemm with weights of a scale a row, as exporters write it."""
        rows = int(np.prod(self.shape_now[1:]))
        shape = (self.shape_now[0], rows)
        self._next("Flatten", [self.tensor], shape, self.scale, self.zero)
        weight = self._const(self.random.integers(-127, 128, (columns, rows)), np.int8)
        scales = self.random.uniform(0.001, 0.003, columns).astype(np.float32)
        inputs = [
            *(self.tensor, self._const(self.scale), self._zero(self.zero)),
            *(weight, self._const(scales), self._const(np.zeros(columns), np.int8)),
            self._const(self.random.integers(-3000, 3000, columns), np.int32),
            *(self._const(0.1), self._zero(self.zero)),
        ]
        return self._next(
            "QGemm", inputs, (shape[0], columns), 0.1, self.zero, domain="com.microsoft", transB=1
        )

    def node(self, op: str, shape: tuple[int, ...], *inputs: str, **attrs) -> str:
        """Any operator that keeps scale and zero point."""
        return self._next(op, [self.tensor, *inputs], shape, self.scale, self.zero, **attrs)

    def model(self) -> onnx.ModelProto:
        """The model, whose output is the last tensor."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        x = helper.make_tensor_value_info("x", kind, self.shape)
        y = helper.make_tensor_value_info(self.tensor, kind, self.shape_now)
        graph = helper.make_graph(self._nodes, "qnet", [x], [y], self._constants)
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=domains)
        made.ir_version = 9
        return made

    def _next(
        self, op: str, inputs: list[str], shape: tuple[int, ...], scale: float, zero: int, **attrs
    ) -> str:
        name = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], **attrs))
        self.tensor, self.shape_now, self.scale, self.zero = name, shape, scale, zero
        return name

    def _const(self, value, dtype=np.float32) -> str:
        name = f"k{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def _zero(self, value: int) -> str:
        return self._const(value, np.dtype(self.dtype))


def with_conversions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network as float operators between DequantizeLinear and QuantizeLinear."""
    nodes: list[onnx.NodeProto] = []

    def dequantised(quanta: list[str], axis: int | None = None) -> str:
        name = f"{quanta[0]}_float{len(nodes)}"
        attrs = {} if axis is None else {"axis": axis}
        nodes.append(helper.make_node("DequantizeLinear", quanta, [name], **attrs))
        return name

    constants = {c.name: numpy_helper.to_array(c) for c in model.graph.initializer}
    scale_of: dict[str, list[str]] = {}
    for node in model.graph.node:
        names = list(node.input)
        plain = node.op_type.removeprefix("QLinear").removeprefix("Q")
        if node.op_type == plain:  # it moves integers
            quanta, inputs, result = scale_of[names[0]], [], scale_of[names[0]]
            inputs = [dequantised([names[0], *quanta]), *names[1:]]
        else:
            x, second = names[:3], names[3:6]
            axis = 0 if constants[second[1]].ndim else None
            inputs = [dequantised(x), dequantised(second, axis)]
            bias = names[6] if plain == "Gemm" else names[8] if len(names) > 8 else ""
            result = names[7:9] if plain == "Gemm" else names[6:8]
            if bias:
                unit = f"{bias}_scale"
                value = np.asarray(constants[x[1]] * constants[second[1]], np.float32)
                model.graph.initializer.append(numpy_helper.from_array(value, unit))
                inputs.append(dequantised([bias, unit], 0 if value.ndim else None))
        made = f"{node.output[0]}_float"
        nodes.append(helper.make_node(plain, inputs, [made]))
        nodes[-1].attribute.extend(node.attribute)
        nodes.append(helper.make_node("QuantizeLinear", [made, *result], list(node.output)))
        scale_of[node.output[0]] = list(result)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model
