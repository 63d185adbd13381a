"""Builds a TFLite graph layer by layer."""

from typing import Any

import numpy as np
import tflite

from model_zoo.onnx_net import Weights
from model_zoo.tflite_graph import TFLiteFileWriter

_KINDS = {
    "add": "ADD",
    "concat": "CONCATENATION",
    "conv": "CONV_2D",
    "depthwise": "DEPTHWISE_CONV_2D",
    "linear": "FULLY_CONNECTED",
    "mean": "MEAN",
    "average": "AVERAGE_POOL_2D",
    "maximum": "MAX_POOL_2D",
    "softmax": "SOFTMAX",
}

_ACTIVATIONS = {
    "": tflite.ActivationFunctionType.NONE,
    "relu": tflite.ActivationFunctionType.RELU,
    "relu6": tflite.ActivationFunctionType.RELU6,
}

_PADDINGS = {"same": tflite.Padding.SAME, "valid": tflite.Padding.VALID}


class TFLiteNet:
    """An NHWC graph under construction; each layer method takes and returns tensor indices."""

    def __init__(self, input_shape: tuple[int, ...], *, seed: int = 0) -> None:
        self.weights = Weights(seed)
        self._file = TFLiteFileWriter()
        self._graph = self._file.graph("main")
        self.shapes = self._graph.shapes
        self.input = self._graph.tensor(input_shape, name="input")

    def conv(
        self,
        x: int,
        out: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: str = "same",
        activation: str = "",
    ) -> int:
        """A convolution with a bias and a fused activation."""
        channels = self.shapes[x][3]
        filters = self.weights.filters((out, channels, kernel, kernel), channels * kernel * kernel)
        filters = filters.transpose(0, 2, 3, 1)
        options = self._conv_options(stride, padding, activation)
        shape = self._window(x, kernel, stride, padding, out)
        return self._filter("conv", x, filters, shape, "Conv2DOptions", options)

    def depthwise(
        self,
        x: int,
        kernel: int,
        *,
        stride: int = 1,
        multiplier: int = 1,
        padding: str = "same",
        activation: str = "",
    ) -> int:
        """A depthwise convolution with a bias and a fused activation."""
        out = self.shapes[x][3] * multiplier
        filters = self.weights.filters((out, 1, kernel, kernel), kernel * kernel)
        filters = filters.transpose(1, 2, 3, 0)
        options = self._conv_options(stride, padding, activation)
        options["depthMultiplier"] = multiplier
        shape = self._window(x, kernel, stride, padding, out)
        return self._filter("depthwise", x, filters, shape, "DepthwiseConv2DOptions", options)

    def pool(self, x: int, kind: str, kernel: int, stride: int, *, padding: str = "same") -> int:
        """An `average` or `maximum` over windows."""
        options = {
            "padding": _PADDINGS[padding],
            "strideH": stride,
            "strideW": stride,
            "filterHeight": kernel,
            "filterWidth": kernel,
        }
        shape = self._window(x, kernel, stride, padding, self.shapes[x][3])
        return self._operator(kind, [x], shape, "Pool2DOptions", options)

    def add(self, a: int, b: int, *, activation: str = "") -> int:
        """The sum of two tensors of one shape, with a fused activation."""
        options = {"fusedActivationFunction": _ACTIVATIONS[activation]}
        return self._operator("add", [a, b], self.shapes[a], "AddOptions", options)

    def plain(self, kind: str, *operands: int, options: str = "") -> int:
        """An operator by element that takes no options, but may have a table of them."""
        return self._operator(kind, list(operands), self.shapes[operands[0]], options, {})

    def concat(self, parts: list[int]) -> int:
        options = {"axis": 3}
        shape = (*self.shapes[parts[0]][:3], sum(self.shapes[p][3] for p in parts))
        return self._operator("concat", parts, shape, "ConcatenationOptions", options)

    def classifier(self, x: int, classes: int) -> int:
        """Mean over the extents, linear, softmax."""
        channels = self.shapes[x][3]
        axes = self._constant(np.array([1, 2], np.int32))
        mean = self._operator("mean", [x, axes], (1, channels), "ReducerOptions", {})
        weight = np.ascontiguousarray(self.weights.matrix(channels, classes, gain=2.0).T)
        constants = [self._constant(weight), self._constant(self.weights.bias(classes, 0.5))]
        linear = ("linear", [mean, *constants], (1, classes), "FullyConnectedOptions")
        logits = self._operator(*linear, {})
        return self._operator("softmax", [logits], (1, classes), "SoftmaxOptions", {"beta": 1.0})

    def finish(self, output: int) -> bytes:
        self._graph.inputs, self._graph.outputs = [self.input], [output]
        self._graph.rename(output, "output")
        return self._file.write()

    def _filter(
        self, kind: str, x: int, filters: np.ndarray, shape: tuple[int, ...], *options: Any
    ) -> int:
        constants = [np.ascontiguousarray(filters), self.weights.bias(shape[3])]
        return self._operator(kind, [x, *map(self._constant, constants)], shape, *options)

    def _conv_options(self, stride: int, padding: str, activation: str) -> dict[str, Any]:
        return {
            "padding": _PADDINGS[padding],
            "strideH": stride,
            "strideW": stride,
            "fusedActivationFunction": _ACTIVATIONS[activation],
        }

    def _window(self, x: int, kernel: int, stride: int, padding: str, out: int) -> tuple[int, ...]:
        batch, height, width, _ = self.shapes[x]
        reach = 0 if padding == "same" else kernel - 1
        return (batch, *(-(-(e - reach) // stride) for e in (height, width)), out)

    def _constant(self, value: np.ndarray) -> int:
        return self._graph.constant(value, name=f"constant_{len(self.shapes)}")

    def _operator(
        self,
        kind: str,
        inputs: list[int],
        shape: tuple[int, ...],
        options: str,
        values: dict[str, Any],
    ) -> int:
        name = f"{kind}_{len(self.shapes)}"
        known = _KINDS.get(kind, kind)
        return self._graph.emit(known, inputs, shape, options=options, called=name, **values)
