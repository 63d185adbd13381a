"""Builds a TFLite graph layer by layer and writes it with the flatbuffers of the tflite package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import tflite

from model_zoo.weights import Weights

_CODES = {
    "add": tflite.BuiltinOperator.ADD,
    "concat": tflite.BuiltinOperator.CONCATENATION,
    "conv": tflite.BuiltinOperator.CONV_2D,
    "depthwise": tflite.BuiltinOperator.DEPTHWISE_CONV_2D,
    "linear": tflite.BuiltinOperator.FULLY_CONNECTED,
    "mean": tflite.BuiltinOperator.MEAN,
    "average": tflite.BuiltinOperator.AVERAGE_POOL_2D,
    "maximum": tflite.BuiltinOperator.MAX_POOL_2D,
    "reshape": tflite.BuiltinOperator.RESHAPE,
    "softmax": tflite.BuiltinOperator.SOFTMAX,
}

PLAIN = {
    "ABS": ("NONE", 1),
    "CEIL": ("NONE", 1),
    "COS": ("CosOptions", 1),
    "DIV": ("DivOptions", 2),
    "ELU": ("NONE", 1),
    "EXP": ("ExpOptions", 1),
    "FLOOR": ("NONE", 1),
    "FLOOR_DIV": ("FloorDivOptions", 2),
    "FLOOR_MOD": ("FloorModOptions", 2),
    "HARD_SWISH": ("HardSwishOptions", 1),
    "LOG": ("NONE", 1),
    "LOGISTIC": ("NONE", 1),
    "MAXIMUM": ("MaximumMinimumOptions", 2),
    "MINIMUM": ("MaximumMinimumOptions", 2),
    "MUL": ("MulOptions", 2),
    "NEG": ("NegOptions", 1),
    "POW": ("PowOptions", 2),
    "RELU": ("NONE", 1),
    "RELU6": ("NONE", 1),
    "ROUND": ("NONE", 1),
    "RSQRT": ("NONE", 1),
    "SIN": ("NONE", 1),
    "SQRT": ("NONE", 1),
    "SQUARE": ("SquareOptions", 1),
    "SQUARED_DIFFERENCE": ("SquaredDifferenceOptions", 2),
    "SUB": ("SubOptions", 2),
    "TANH": ("NONE", 1),
}
"""Operators by element that need no options: the type of those, and how many operands there are."""

_CODES |= {kind: getattr(tflite.BuiltinOperator, kind) for kind in PLAIN}

_ACTIVATIONS = {
    "": tflite.ActivationFunctionType.NONE,
    "relu": tflite.ActivationFunctionType.RELU,
    "relu6": tflite.ActivationFunctionType.RELU6,
}

_PADDINGS = {"same": tflite.Padding.SAME, "valid": tflite.Padding.VALID}


@dataclass(frozen=True, kw_only=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    kind: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class _Operator:
    kind: str
    inputs: list[int]
    output: int
    options_type: str
    options: dict[str, Any]


class TFLiteNet:
    """An NHWC graph under construction; each layer method takes and returns tensor indices."""

    def __init__(self, input_shape: tuple[int, ...], *, seed: int = 0) -> None:
        self.weights = Weights(seed)
        self.shapes: list[tuple[int, ...]] = []
        self._tensors: list[_Tensor] = []
        self._operators: list[_Operator] = []
        self.input = self._tensor("input", input_shape)

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
        options = self._conv_options(stride, padding, activation)
        shape = self._window(x, kernel, stride, padding, out)
        constants = [
            self._constant(np.ascontiguousarray(filters.transpose(0, 2, 3, 1))),
            self._constant(self.weights.bias(out)),
        ]
        return self._operator("conv", [x, *constants], shape, "Conv2DOptions", options)

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
        options = self._conv_options(stride, padding, activation)
        options["DepthMultiplier"] = multiplier
        shape = self._window(x, kernel, stride, padding, out)
        constants = [
            self._constant(np.ascontiguousarray(filters.transpose(1, 2, 3, 0))),
            self._constant(self.weights.bias(out)),
        ]
        return self._operator(
            "depthwise", [x, *constants], shape, "DepthwiseConv2DOptions", options
        )

    def pool(self, x: int, kind: str, kernel: int, stride: int, *, padding: str = "same") -> int:
        """An `average` or `maximum` over windows."""
        options = {
            "Padding": _PADDINGS[padding],
            "StrideH": stride,
            "StrideW": stride,
            "FilterHeight": kernel,
            "FilterWidth": kernel,
        }
        shape = self._window(x, kernel, stride, padding, self.shapes[x][3])
        return self._operator(kind, [x], shape, "Pool2DOptions", options)

    def add(self, a: int, b: int, *, activation: str = "") -> int:
        """The sum of two tensors of one shape, with a fused activation."""
        options = {"FusedActivationFunction": _ACTIVATIONS[activation]}
        return self._operator("add", [a, b], self.shapes[a], "AddOptions", options)

    def plain(self, kind: str, *operands: int) -> int:
        """An operator of `PLAIN`."""
        return self._operator(kind, list(operands), self.shapes[operands[0]], PLAIN[kind][0], {})

    def concat(self, parts: list[int]) -> int:
        """All channels of `parts`."""
        options = {"Axis": 3}
        channels = sum(self.shapes[p][3] for p in parts)
        shape = (*self.shapes[parts[0]][:3], channels)
        return self._operator("concat", parts, shape, "ConcatenationOptions", options)

    def classifier(self, x: int, classes: int) -> int:
        """Mean over the extents, linear, softmax."""
        channels = self.shapes[x][3]
        axes = self._constant(np.array([1, 2], np.int32))
        mean = self._operator("mean", [x, axes], (1, channels), "ReducerOptions", {})
        weight = np.ascontiguousarray(self.weights.matrix(channels, classes, gain=2.0).T)
        constants = [self._constant(weight), self._constant(self.weights.bias(classes, 0.5))]
        logits = self._operator(
            "linear",
            [mean, *constants],
            (1, classes),
            "FullyConnectedOptions",
            {},
        )
        return self._operator("softmax", [logits], (1, classes), "SoftmaxOptions", {"Beta": 1.0})

    def finish(self, output: int) -> bytes:
        """The file."""
        writer = _Writer()
        codes = sorted({_CODES[o.kind] for o in self._operators})
        tensors, buffers = [], [writer.table("Buffer")]  # Buffer 0 stands for "no data".
        for index, tensor in enumerate(self._tensors):
            if tensor.data:
                buffers.append(writer.table("Buffer", Data=writer.byte_vector(tensor.data)))
            tensors.append(
                writer.table(
                    "Tensor",
                    Name=writer.text("output" if index == output else tensor.name),
                    Shape=writer.ints(tensor.shape),
                    Type=getattr(tflite.TensorType, tensor.kind),
                    Buffer=len(buffers) - 1 if tensor.data else 0,
                )
            )
        operators = [
            writer.table(
                "Operator",
                OpcodeIndex=codes.index(_CODES[o.kind]),
                Inputs=writer.ints(o.inputs),
                Outputs=writer.ints([o.output]),
                **writer.options(o.options_type, o.options),
            )
            for o in self._operators
        ]
        graph = writer.table(
            "SubGraph",
            Tensors=writer.tables(tensors),
            Operators=writer.tables(operators),
            Inputs=writer.ints([self.input]),
            Outputs=writer.ints([output]),
            Name=writer.text("main"),
        )
        versions = [
            writer.table("OperatorCode", DeprecatedBuiltinCode=c, BuiltinCode=c, Version=1)
            for c in codes
        ]
        return writer.finish(
            writer.table(
                "Model",
                Version=3,
                OperatorCodes=writer.tables(versions),
                Subgraphs=writer.tables([graph]),
                Description=writer.text("adrenoc model maker"),
                Buffers=writer.tables(buffers),
            )
        )

    def _conv_options(self, stride: int, padding: str, activation: str) -> dict[str, Any]:
        return {
            "Padding": _PADDINGS[padding],
            "StrideH": stride,
            "StrideW": stride,
            "DilationHFactor": 1,
            "DilationWFactor": 1,
            "FusedActivationFunction": _ACTIVATIONS[activation],
        }

    def _window(self, x: int, kernel: int, stride: int, padding: str, out: int) -> tuple[int, ...]:
        batch, height, width, _ = self.shapes[x]
        reach = 0 if padding == "same" else kernel - 1
        return (batch, *(-(-(e - reach) // stride) for e in (height, width)), out)

    def _tensor(
        self, name: str, shape: tuple[int, ...], *, kind: str = "FLOAT32", data: bytes = b""
    ) -> int:
        self._tensors.append(_Tensor(name=name, shape=shape, kind=kind, data=data))
        self.shapes.append(shape)
        return len(self._tensors) - 1

    def _constant(self, value: np.ndarray) -> int:
        name, kind = f"constant_{len(self._tensors)}", str(value.dtype).upper()
        return self._tensor(name, value.shape, kind=kind, data=value.tobytes())

    def _operator(
        self,
        kind: str,
        inputs: list[int],
        shape: tuple[int, ...],
        options_type: str,
        options: dict[str, Any],
    ) -> int:
        output = self._tensor(f"{kind}_{len(self._tensors)}", shape)
        self._operators.append(
            _Operator(
                kind=kind, inputs=inputs, output=output, options_type=options_type, options=options
            )
        )
        return output


class _Writer:
    """Flatbuffers by table and field names, innermost parts first."""

    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(1 << 20)

    def table(self, kind: str, **fields: Any) -> int:
        """A table with these fields; parts that are not numbers are written before it."""
        getattr(tflite, f"{kind}Start")(self._builder)
        for name, value in fields.items():
            getattr(tflite, f"{kind}Add{name}")(self._builder, value)
        return int(getattr(tflite, f"{kind}End")(self._builder))

    def options(self, kind: str, fields: dict[str, Any]) -> dict[str, int]:
        """The fields of an operator that say its options."""
        if kind == "NONE":
            return {}
        return {
            "BuiltinOptionsType": getattr(tflite.BuiltinOptions, kind),
            "BuiltinOptions": self.table(kind, **fields),
        }

    def text(self, value: str) -> int:
        """A string."""
        return int(self._builder.CreateString(value))

    def byte_vector(self, value: bytes) -> int:
        """A vector of bytes, aligned as TFLite wants its weights."""
        self._builder.Prep(16, len(value))
        return int(self._builder.CreateByteVector(value))

    def ints(self, values: list[int] | tuple[int, ...]) -> int:
        """A vector of 32-bit integers."""
        return int(self._builder.CreateNumpyVector(np.array(values, np.int32)))

    def tables(self, offsets: list[int]) -> int:
        """A vector of tables."""
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())

    def finish(self, root: int) -> bytes:
        """The whole file."""
        self._builder.Finish(root, b"TFL3")
        return bytes(self._builder.Output())
