"""TFLite networks of int8 or int16, with seeded weights; their numbers use the range they have."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.tflite.build import GraphBuilder, ModelBuilder, T

_FULL = (-128, 127)


@dataclass(frozen=True, kw_only=True)
class Value:
    index: int
    shape: tuple[int, ...]
    scale: float
    zero: int


@dataclass(kw_only=True)
class Maker:
    """Adds operators to one graph; every quantisation parameter is drawn."""

    seed: int = 0
    dead: float = 0.0
    """The share of a filter's channels whose weights are small beside a bias of one sign."""
    least_weight: int = -127
    """With -128 that is every weight below zero, so that products of two of them meet."""
    dtype: str = "int8"
    """Of activations; of int16 they have zero points of zero, and biases of int64."""
    bias_dtype: str = "int64"
    """What int16 has for biases."""
    model: ModelBuilder = field(default_factory=ModelBuilder)
    graph: GraphBuilder = field(init=False)
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.graph = self.model.graph()
        self.random = np.random.default_rng(self.seed)

    def input(self, *shape: int, scale: float = 0.0, zero: int | None = None) -> Value:
        scale = scale or self._scale() / self._span()
        zero = self._zero() if zero is None else zero
        index = self.graph.add(self._tensor(shape, scale, zero))
        self.graph.inputs.append(index)
        return Value(index=index, shape=shape, scale=scale, zero=zero)

    def conv(self, x: Value, channels: int, kernel: tuple[int, int] = (1, 1), **how) -> Value:
        """A convolution over all channels, or over those of each of some `groups`."""
        shape = (channels, *kernel, x.shape[3] // how.pop("groups", 1))
        return self._filter("CONV_2D", "Conv2DOptions", x, shape, channels, how, axis=0)

    def depthwise(self, x: Value, kernel: tuple[int, int] = (3, 3), **how) -> Value:
        """A convolution of each channel alone, `many` results each."""
        many = how.pop("many", 1)
        channels = x.shape[3] * many
        how = {**how, "depthMultiplier": many}
        shape = (1, *kernel, channels)
        options = "DepthwiseConv2DOptions"
        return self._filter("DEPTHWISE_CONV_2D", options, x, shape, channels, how, axis=3)

    def dense(self, x: Value, channels: int, *, relu: str = "NONE", bias: bool = True) -> Value:
        """A product with a matrix, one scale for it."""
        depth = x.shape[-1]
        weights = self._weights((channels, depth))
        scale = self._scale() / 50
        out = self._out_scale(x, depth, np.array([scale]))
        zero = self._zero(relu != "NONE")
        inputs = [x.index, self._constant(weights, "int8", [scale], 0)]
        if bias:
            values = self._bias(channels, depth)
            inputs.append(self._constant(values, str(values.dtype), [scale * x.scale], 0))
        shape = (*x.shape[:-1], channels)
        values = {"fusedActivationFunction": _activation(relu), **self._bias_type()}
        return self._op(
            "FULLY_CONNECTED", inputs, shape, out, zero, "FullyConnectedOptions", values
        )

    def add(self, a: Value, b: Value, *, relu: str = "NONE") -> Value:
        scale = (a.scale + b.scale) * float(self.random.uniform(0.6, 1.2))
        values = {"fusedActivationFunction": _activation(relu)}
        zero = self._zero(relu == "RELU")
        values |= {"potScaleInt16": False}
        return self._op("ADD", [a.index, b.index], a.shape, scale, zero, "AddOptions", values)

    def pool(self, x: Value, kind: str, kernel: tuple[int, int], **how) -> Value:
        strides = how.pop("strides", kernel)
        padding = how.pop("padding", "VALID")
        shape = _positions(x.shape, kernel, strides, (1, 1), padding, x.shape[3])
        values = {
            "filterHeight": kernel[0],
            "filterWidth": kernel[1],
            "strideH": strides[0],
            "strideW": strides[1],
            "padding": getattr(schema.Padding, padding),
            "fusedActivationFunction": _activation(how.pop("relu", "NONE")),
        }
        return self._op(kind, [x.index], shape, x.scale, x.zero, "Pool2DOptions", values)

    def reshape(self, x: Value, *shape: int) -> Value:
        """The same numbers under another shape."""
        target = self._constant(np.array(shape, np.int32), "int32")
        values = {"newShape": list(shape)}
        inputs = [x.index, target]
        return self._op("RESHAPE", inputs, shape, x.scale, x.zero, "ReshapeOptions", values)

    def softmax(self, x: Value, beta: float = 1.0) -> Value:
        """Over the last axis."""
        values = {"beta": beta}
        scale, zero = (1 / 256, -128) if self.dtype == "int8" else (1 / 32768, 0)
        return self._op("SOFTMAX", [x.index], x.shape, scale, zero, "SoftmaxOptions", values)

    def unary(self, kind: str, x: Value, **how) -> Value:
        """A function of each number."""
        scale, zero = how.pop("scale", 0.0) or self._scale() / self._span(), how.pop("zero", None)
        zero = self._zero() if zero is None else zero
        return self._op(kind, [x.index], x.shape, scale, zero, how.pop("options", ""), how)

    def constant(self, *shape: int) -> Value:
        scale, zero = self._scale() / self._span(), self._zero()
        ends = np.iinfo(self.dtype)
        data = self.random.integers(ends.min, ends.max + 1, shape).astype(self.dtype)
        tensor = T(dtype=self.dtype, data=data, is_constant=True, scales=[scale], zeros=[zero])
        return Value(index=self.graph.add(tensor), shape=shape, scale=scale, zero=zero)

    def binary(self, kind: str, a: Value, b: Value, options: str, relu: str = "NONE") -> Value:
        """ADD, SUB or MUL, of which one operand may repeat."""
        size = a.scale * b.scale * 6000 * self._span() if kind == "MUL" else a.scale + b.scale
        scale = float(np.float32(size / self.random.uniform(1, 60 if kind == "MUL" else 1.5)))
        values = {"fusedActivationFunction": _activation(relu)}
        if kind in ("ADD", "SUB"):
            values |= {"potScaleInt16": False}
        shape = tuple(np.broadcast_shapes(a.shape, b.shape))
        return self._op(kind, [a.index, b.index], shape, scale, self._zero(), options, values)

    def mean(self, x: Value, axes: tuple[int, ...], *, keep: bool) -> Value:
        """Over some axes."""
        target = self._constant(np.array(axes, np.int32), "int32")
        shape = [1 if a in axes else d for a, d in enumerate(x.shape) if keep or a not in axes]
        scale = x.scale * float(self.random.uniform(0.2, 1.5))
        values = {"keepDims": keep}
        inputs = [x.index, target]
        return self._op("MEAN", inputs, tuple(shape), scale, self._zero(), "ReducerOptions", values)

    def largest(self, x: Value, axes: tuple[int, ...]) -> Value:
        """The maximum over some axes, which are gone then."""
        target = self._constant(np.array(axes, np.int32), "int32")
        shape = tuple(d for a, d in enumerate(x.shape) if a not in axes)
        inputs = [x.index, target]
        return self._op("REDUCE_MAX", inputs, shape, x.scale, x.zero, "ReducerOptions", {})

    def moved(
        self,
        kind: str,
        x: Value,
        numbers: list[Any],
        shape: tuple[int, ...],
        options: str = "",
        **values,
    ) -> Value:
        """An operator that moves elements, with constants of int32."""
        inputs = [x.index, *(self._constant(np.array(n, np.int32), "int32") for n in numbers)]
        return self._op(kind, inputs, shape, x.scale, x.zero, options, values)

    def parted(
        self, kind: str, x: Value, inputs: list[Any], shapes: list[tuple[int, ...]], options: str
    ) -> list[Value]:
        """SPLIT, SPLIT_V or UNPACK; an input of None is `x`, others are constants of int32."""
        given = [
            x.index if n is None else self._constant(np.array(n, np.int32), "int32") for n in inputs
        ]
        values = {"numSplits": len(shapes)}
        if kind == "UNPACK":
            values = {"num": len(shapes), "axis": 1}
        results = [self._tensor(shape, x.scale, x.zero) for shape in shapes]
        indices = self.graph.op(kind, given, results, options, values)
        pairs = zip(indices, shapes, strict=True)
        return [Value(index=i, shape=s, scale=x.scale, zero=x.zero) for i, s in pairs]

    def packed(self, parts: list[Value], axis: int) -> Value:
        """A PACK of parts of equal quanta and shape."""
        first = parts[0]
        shape = (*first.shape[:axis], len(parts), *first.shape[axis:])
        inputs, values = [part.index for part in parts], {"axis": axis, "valuesCount": len(parts)}
        return self._op("PACK", inputs, shape, first.scale, first.zero, "PackOptions", values)

    def joined(self, parts: list[Value], axis: int) -> Value:
        """A concatenation of parts of equal quanta."""
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        values = {"axis": axis}
        first, inputs = parts[0], [part.index for part in parts]
        options = "ConcatenationOptions"
        return self._op(
            "CONCATENATION", inputs, tuple(shape), first.scale, first.zero, options, values
        )

    def conv_transpose(
        self, x: Value, channels: int, kernel: tuple[int, int], stride: int, padding: str
    ) -> Value:
        _, h, w, depth = x.shape
        grown = [
            d * stride if padding == "SAME" else (d - 1) * stride + k
            for d, k in zip((h, w), kernel, strict=True)
        ]
        shape = (1, grown[0], grown[1], channels)
        weights = self._weights((channels, *kernel, depth))
        scales = (self._scale() / 50 * self.random.uniform(0.3, 1.5, channels)).astype(np.float32)
        inputs = [
            self._constant(np.array(shape, np.int32), "int32"),
            self._constant(weights, "int8", scales.tolist(), 0),
            x.index,
        ]
        values = {"strideH": stride, "strideW": stride, "padding": getattr(schema.Padding, padding)}
        out = self._out_scale(x, depth * 4, scales)
        options = "TransposeConvOptions"
        return self._op("TRANSPOSE_CONV", inputs, shape, out, self._zero(), options, values)

    def svdf(self, x: Value, units: int, rank: int, memory: int) -> Value:
        """Filters over time, with a state of its own."""
        filters, depth = units * rank, x.shape[1]
        one, two = (float(np.float32(self._scale() / 50)) for _ in range(2))
        kept = float(np.float32(x.scale * one * np.sqrt(depth)))
        scale = float(np.float32(kept * two * 5e6 * np.sqrt(memory * rank)))
        time = self.random.integers(-32767, 32768, (filters, memory)).astype(np.int16)
        bias = self.random.integers(-(1 << 20), 1 << 20, units).astype(np.int32)
        state = T(
            dtype="int16", shape=(1, filters * memory), scales=[kept], zeros=[0], is_variable=True
        )
        inputs = [
            x.index,
            self._constant(self._weights((filters, depth)), "int8", [one]),
            self._constant(time, "int16", [two]),
            self._constant(bias, "int32", [kept * two]),
            self.graph.add(state),
        ]
        values = {"rank": rank, "fusedActivationFunction": _activation("RELU")}
        return self._op("SVDF", inputs, (1, units), scale, self._zero(), "SVDFOptions", values)

    def finish(self, *outputs: Value) -> bytes:
        self.graph.outputs.extend(value.index for value in outputs)
        return self.model.write()

    def _filter(
        self,
        kind: str,
        options: str,
        x: Value,
        shape: tuple[int, ...],
        channels: int,
        how: dict[str, Any],
        *,
        axis: int,
    ) -> Value:
        how = dict(how)
        strides, padding = how.pop("strides", (1, 1)), how.pop("padding", "SAME")
        dilations, relu = how.pop("dilations", (1, 1)), how.pop("relu", "NONE")
        taps = int(np.prod(shape)) // channels
        per_channel = how.pop("per_channel", True)
        spread = self.random.uniform(0.3, 1.5, channels) if per_channel else np.ones(1)
        scales = (self._scale() / 50 * spread).astype(np.float32)
        weights = self._weights(shape)
        out = how.pop("scale", 0.0) or self._out_scale(x, taps, scales)
        zero = how.pop("zero", None)
        if zero is None:
            zero = self._zero(relu in ("RELU", "RELU6"))
        values = {
            "strideH": strides[0],
            "strideW": strides[1],
            "dilationHFactor": dilations[0],
            "dilationWFactor": dilations[1],
            "padding": getattr(schema.Padding, padding),
            "fusedActivationFunction": _activation(relu),
            **(self._bias_type() if kind == "CONV_2D" else {}),
            **how,
        }
        result = _positions(x.shape, shape[1:3], strides, dilations, padding, channels)
        bias = self._bias(channels, taps)
        silent = self.random.random(channels) < self.dead
        weights = np.where(silent.reshape([-1 if a == axis else 1 for a in range(4)]), 1, weights)
        weights = weights.astype(np.int8)
        signs = self.random.choice((-1, 1), channels)
        bias = np.where(silent, signs * (400_000 * self._span()), bias).astype(bias.dtype)
        inputs = [
            x.index,
            self._constant(weights, "int8", scales.tolist(), axis),
            self._constant(bias, str(bias.dtype), (scales * x.scale).tolist(), 0),
        ]
        return self._op(kind, inputs, result, out, zero, options, values)

    def _op(
        self,
        kind: str,
        inputs: list[int],
        shape: tuple[int, ...],
        scale: float,
        zero: int,
        options: str,
        values: dict[str, Any],
    ) -> Value:
        result = self._tensor(shape, scale, zero)
        (index,) = self.graph.op(kind, inputs, [result], options, values)
        return Value(index=index, shape=tuple(shape), scale=scale, zero=zero)

    def _constant(
        self, data: np.ndarray, dtype: str, scales: list[float] | None = None, axis: int = 0
    ) -> int:
        zeros = [0] * len(scales or ())
        return self.graph.add(
            T(dtype=dtype, data=data, is_constant=True, scales=scales or (), zeros=zeros, axis=axis)
        )

    def _tensor(self, shape: tuple[int, ...], scale: float, zero: int) -> T:
        return T(dtype=self.dtype, shape=tuple(shape), scales=[scale], zeros=[zero])

    def _bias_type(self) -> dict[str, int]:
        short = self.dtype == "int16" and self.bias_dtype == "int32"
        return {"quantizedBiasType": schema.TensorType.INT32} if short else {}

    def _span(self) -> int:
        """How many times as many numbers as int8 has."""
        return 256 if self.dtype == "int16" else 1

    def _scale(self) -> float:
        """Of int8."""
        return float(np.float32(10 ** self.random.uniform(-2, 0)))

    def _zero(self, least: bool = False) -> int:
        if self.dtype == "int16":
            return 0
        return _FULL[0] if least else int(self.random.integers(_FULL[0], _FULL[1] + 1))

    def _weights(self, shape: tuple[int, ...]) -> np.ndarray:
        drawn = self.random.integers(-127, 128, shape)
        if self.least_weight < -127:
            drawn = np.where(drawn < 0, self.least_weight, drawn)
        return drawn.astype(np.int8)

    def _bias(self, channels: int, taps: int) -> np.ndarray:
        size = 4000.0 * np.sqrt(taps) * self._span()
        dtype = self.bias_dtype if self.dtype == "int16" else "int32"
        return self.random.normal(0, size, channels).astype(dtype)

    def _out_scale(self, x: Value, taps: int, scales: np.ndarray) -> float:
        typical = x.scale * float(scales.mean()) * 5400 * np.sqrt(taps)
        return float(np.float32(typical / self.random.uniform(30, 90)))


def _activation(name: str) -> int:
    return int(getattr(schema.ActivationFunctionType, name))


def _positions(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    padding: str,
    channels: int,
) -> tuple[int, int, int, int]:
    found = []
    for have, taps, stride, dilation in zip(shape[1:3], kernel, strides, dilations, strict=True):
        reach = (taps - 1) * dilation + 1
        found.append(-(-have // stride) if padding == "SAME" else (have - reach) // stride + 1)
    return shape[0], found[0], found[1], channels
