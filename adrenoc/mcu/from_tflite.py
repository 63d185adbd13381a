"""A TFLite file as an int8 network: every operator that cannot go is named, all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tflite

from adrenoc.errors import CompileError, UnsupportedOperatorError
from adrenoc.importers.tflite.file import GraphInfo, Operator, TensorInfo, TFLiteFile
from adrenoc.mcu.exponential import exponentials
from adrenoc.mcu.fixed_point import INT8, activation_range, multiplier_of, scaled
from adrenoc.mcu.network import (
    Convolution,
    Depthwise,
    Network,
    Pool,
    Requantise,
    Reshape,
    Softmax,
    Sum,
    Tensor,
    Window,
    shape4,
)
from adrenoc.mcu.network import Operator as NetworkOperator

_PADDINGS = {v: k for k, v in vars(tflite.Padding).items() if isinstance(v, int)}
_ACTIVATIONS = {v: k for k, v in vars(tflite.ActivationFunctionType).items() if isinstance(v, int)}
_SUM_BITS = 20
"""By which the operands of a sum are enlarged before they are scaled."""
QUANTISE_HINT = (
    "quantise it to int8: tf.lite.TFLiteConverter with optimizations, a representative_dataset "
    "and target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]"
)


def network_of(path: Path, file: TFLiteFile) -> Network:
    """The network of a verified file.

    Raises:
        CompileError: its data are not int8.
        UnsupportedOperatorError: it holds operators that cannot go, each named with the reason.
    """
    if len(file.graphs) > 1:
        raise CompileError(
            f"{path} holds {len(file.graphs)} graphs; microcontrollers get models of one",
            hint="convert it without control flow",
        )
    graph = file.main
    _refuse_other_data(path, graph)
    made = _Import(graph=graph)
    refused = []
    for operator in graph.operators:
        translate = _TRANSLATIONS.get(operator.kind)
        try:
            if translate is None or operator.custom:
                raise NotImplementedError("no kernel for microcontrollers yet")
            made.operators.append(translate(made, operator))
            made.labels.append(operator.kind)
        except (NotImplementedError, ValueError) as error:
            refused.append(f"{operator.kind} {graph.label(operator)}: {error}")
    if refused:
        raise UnsupportedOperatorError(
            f"{path} holds {len(refused)} operators that cannot go to a microcontroller: "
            + "; ".join(refused),
            hint=f"adrenoc check {path} --device adreno, or take them out of the model",
        )
    return Network(
        name=path.stem,
        tensors=tuple(made.tensors),
        operators=tuple(made.operators),
        inputs=graph.inputs,
        outputs=graph.outputs,
        labels=tuple(made.labels),
    )


def _refuse_other_data(path: Path, graph: GraphInfo) -> None:
    """Say how to quantise a float model, before its operators are looked at."""
    used = {i for o in graph.operators for i in (*o.inputs[:1], *o.outputs) if i >= 0}
    used |= {*graph.inputs, *graph.outputs}
    other = [graph.tensors[i] for i in sorted(used) if graph.tensors[i].dtype != "int8"]
    other = [tensor for tensor in other if tensor.value is None]
    if not other:
        return
    kinds = sorted({tensor.dtype for tensor in other})
    floats = "float32" in kinds
    raise CompileError(
        f"{path}: {len(other)} of its tensors are {' and '.join(kinds)} (the first is "
        f"'{other[0].name}'); microcontrollers get models whose data are int8, inputs and "
        "outputs too",
        hint=QUANTISE_HINT
        if floats
        else "convert it with inference_input_type = inference_output_type = tf.int8",
    )


@dataclass(kw_only=True)
class _Import:
    """A translation under way; `tensors` has one for each of the file's, by its index."""

    graph: GraphInfo
    operators: list[NetworkOperator] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    tensors: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = [
            Tensor(name=t.name, shape=t.shape, scale=_scale(t), zero=t.zero if t.zeros.size else 0)
            for t in self.graph.tensors
        ]

    def info(self, operator: Operator, index: int) -> TensorInfo:
        """What the file says of an input."""
        if index >= len(operator.inputs) or operator.inputs[index] < 0:
            raise ValueError(f"input {index} is missing")
        return self.graph.tensors[operator.inputs[index]]

    def constant(self, operator: Operator, index: int, dtype: str) -> np.ndarray:
        """The value of an input that has to be known."""
        info = self.info(operator, index)
        if info.value is None:
            raise NotImplementedError(f"input {index} is not a constant")
        if info.dtype != dtype:
            raise NotImplementedError(f"input {index} is {info.dtype}, expected {dtype}")
        return info.value

    def data(self, operator: Operator, index: int = 0) -> int:
        """The tensor of an input that varies."""
        info = self.info(operator, index)
        if info.value is not None:
            raise NotImplementedError(f"input {index} is a constant")
        if info.dtype != "int8":
            raise NotImplementedError(f"input {index} is {info.dtype}, expected int8")
        if not info.scales.size:
            raise NotImplementedError(f"input {index} says no scale")
        info.scale  # noqa: B018  (refuses one for each channel)
        return operator.inputs[index]

    def result(self, operator: Operator) -> TensorInfo:
        """What the file says of the output."""
        info = self.graph.tensors[operator.outputs[0]]
        if not info.scales.size:
            raise NotImplementedError("the output says no scale")
        return info


def _scale(info: TensorInfo) -> float:
    return float(info.scales[0]) if info.scales.size else 0.0


def _activation(operator: Operator) -> str:
    return _ACTIVATIONS[int(operator.options.get("FusedActivationFunction", 0))]


def _filter_rule(
    made: _Import, operator: Operator, channels: int, *, axis: int, in_floats: bool = False
) -> Requantise:
    """How sums of products become the output's integers; dense layers round once, `in_floats`."""
    source, weights = made.info(operator, 0), made.info(operator, 1)
    result = made.result(operator)
    if weights.zeros.size and weights.zeros.any():
        raise NotImplementedError("weights with a zero point")
    scales = weights.scales
    if scales.size == 0 or (scales.size > 1 and (scales.size != channels or weights.axis != axis)):
        raise NotImplementedError(f"weights with {scales.size} scales for {channels} channels")
    reals = float(source.scale) * scales.astype(np.float64) / float(result.scale)
    reals = np.broadcast_to(reals, channels)
    low, high = activation_range(_activation(operator), result.scale, result.zero)
    if in_floats:
        return Requantise(zero=result.zero, low=low, high=high, reals=reals)
    pairs = [multiplier_of(float(real)) for real in reals]
    return Requantise(
        multipliers=np.array([m for m, _ in pairs], np.int64),
        shifts=np.array([s for _, s in pairs], np.int64),
        zero=result.zero,
        low=low,
        high=high,
    )


def _bias(made: _Import, operator: Operator, channels: int) -> np.ndarray:
    if len(operator.inputs) < 3 or operator.inputs[2] < 0:
        return np.zeros(channels, np.int64)
    bias = made.constant(operator, 2, "int32")
    if bias.size != channels:
        raise ValueError(f"a bias of {bias.size} numbers for {channels} channels")
    return bias.reshape(-1).astype(np.int64)


def _window(
    made: _Import, operator: Operator, kernel: tuple[int, int], options: Sequence[str] = ()
) -> Window:
    """Kernel, steps and padding, by TFLite's rule of SAME."""

    def steps(name: str) -> tuple[int, int]:
        found = tuple(int(operator.options.get(name.format(a), 1)) for a in "HW")
        if min(found) < 1:
            raise ValueError(f"{name.format('')} of {list(found)}")
        return found[0], found[1]

    strides = steps("Stride{}")
    dilations = steps("Dilation{}Factor") if "dilation" in options else (1, 1)
    _, ih, iw, _ = shape4(made.info(operator, 0).shape)
    _, oh, ow, _ = shape4(made.result(operator).shape)
    before = [0, 0]
    padding = _PADDINGS[int(operator.options.get("Padding", 0))]
    extents = zip((ih, iw), (oh, ow), kernel, strides, dilations, strict=True)
    for axis, (have, want, taps, stride, dilation) in enumerate(extents):
        reach = (taps - 1) * dilation + 1
        fits = -(-have // stride) if padding == "SAME" else (have - reach + stride) // stride
        if fits != want:
            raise ValueError(f"an output of {want} positions where {padding} gives {fits}")
        if padding == "SAME":
            before[axis] = max(0, (want - 1) * stride + reach - have) // 2
    return Window(
        kernel=kernel, strides=strides, dilations=dilations, top=before[0], left=before[1]
    )


def _one_image(made: _Import, operator: Operator) -> None:
    shape = made.info(operator, 0).shape
    if len(shape) != 4 or shape[0] != 1:
        raise NotImplementedError(f"an input of {list(shape)}, expected a batch of one image")


def _convolution(made: _Import, operator: Operator) -> NetworkOperator:
    _one_image(made, operator)
    weights = made.constant(operator, 1, "int8")
    channels, kh, kw, depth = weights.shape
    if depth != made.info(operator, 0).shape[3]:
        raise NotImplementedError("groups of channels")
    return Convolution(
        source=made.data(operator),
        result=operator.outputs[0],
        weights=weights,
        bias=_bias(made, operator, channels),
        window=_window(made, operator, (kh, kw), ("dilation",)),
        zero_in=made.info(operator, 0).zero,
        requantise=_filter_rule(made, operator, channels, axis=0),
    )


def _depthwise(made: _Import, operator: Operator) -> NetworkOperator:
    _one_image(made, operator)
    weights = made.constant(operator, 1, "int8")
    _, kh, kw, channels = weights.shape
    if channels % made.info(operator, 0).shape[3]:
        raise ValueError("its channels are no multiple of the input's")
    return Depthwise(
        source=made.data(operator),
        result=operator.outputs[0],
        weights=weights[0],
        bias=_bias(made, operator, channels),
        window=_window(made, operator, (kh, kw), ("dilation",)),
        zero_in=made.info(operator, 0).zero,
        requantise=_filter_rule(made, operator, channels, axis=3),
    )


def _dense(made: _Import, operator: Operator) -> NetworkOperator:
    if int(operator.options.get("WeightsFormat", 0)):
        raise NotImplementedError("shuffled weights")
    weights = made.constant(operator, 1, "int8")
    channels, depth = weights.shape
    source, result = made.data(operator), operator.outputs[0]
    elements = made.tensors[source].elements
    rows = elements // depth
    if rows * depth != elements or made.tensors[result].elements != rows * channels:
        raise ValueError(f"{elements} numbers for products of {depth}")
    return Convolution(
        source=source,
        result=result,
        weights=weights.reshape(channels, 1, 1, depth),
        bias=_bias(made, operator, channels),
        window=Window(kernel=(1, 1)),
        zero_in=made.info(operator, 0).zero,
        requantise=_filter_rule(made, operator, channels, axis=0, in_floats=True),
    )


def _pool(kind: str) -> Callable[[_Import, Operator], NetworkOperator]:
    def translate(made: _Import, operator: Operator) -> NetworkOperator:
        _one_image(made, operator)
        kernel = int(operator.options["FilterHeight"]), int(operator.options["FilterWidth"])
        result = made.result(operator)
        _same_quanta(made.info(operator, 0), result)
        low, high = activation_range(_activation(operator), result.scale, result.zero)
        return Pool(
            source=made.data(operator),
            result=operator.outputs[0],
            kind=kind,
            window=_window(made, operator, kernel),
            low=low,
            high=high,
        )

    return translate


def _same_quanta(source: TensorInfo, result: TensorInfo) -> None:
    if abs(source.scale - result.scale) > 1e-6 or source.zero != result.zero:
        raise NotImplementedError("input and output with different scales or zero points")


def _sum(made: _Import, operator: Operator) -> NetworkOperator:
    first, second = made.info(operator, 0), made.info(operator, 1)
    result = made.result(operator)
    if first.shape != second.shape:
        raise NotImplementedError(f"a sum of {list(first.shape)} and {list(second.shape)}")
    twice = 2.0 * max(float(first.scale), float(second.scale))
    sources = made.data(operator, 0), made.data(operator, 1)
    tables = [_scaled_table(float(info.scale) / twice, info.zero) for info in (first, second)]
    factor = multiplier_of(twice / (float(1 << _SUM_BITS) * float(result.scale)))
    low, high = activation_range(_activation(operator), result.scale, result.zero)
    return Sum(
        sources=sources,
        result=operator.outputs[0],
        tables=(tables[0], tables[1]),
        requantise=Requantise(
            multipliers=np.array([factor[0]]),
            shifts=np.array([factor[1]]),
            zero=result.zero,
            low=low,
            high=high,
        ),
    )


def _scaled_table(real: float, zero: int) -> np.ndarray:
    numbers = (np.arange(-128, 128) - zero) << _SUM_BITS
    return scaled(numbers, *multiplier_of(real)).astype(np.int32)


def _softmax(made: _Import, operator: Operator) -> NetworkOperator:
    source, result = made.info(operator, 0), made.result(operator)
    if result.zero != INT8[0] or abs(result.scale - 1 / 256) > 1e-6:
        raise ValueError(f"a scale of {result.scale:.6g}, expected 1/256 from -128 on")
    return Softmax(
        source=made.data(operator),
        result=operator.outputs[0],
        exponentials=exponentials(float(source.scale), float(operator.options.get("Beta", 1.0))),
    )


def _reshape(made: _Import, operator: Operator) -> NetworkOperator:
    _same_quanta(made.info(operator, 0), made.result(operator))
    return Reshape(source=made.data(operator), result=operator.outputs[0])


_TRANSLATIONS: dict[str, Callable[[_Import, Operator], NetworkOperator]] = {
    "ADD": _sum,
    "AVERAGE_POOL_2D": _pool("average"),
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _dense,
    "MAX_POOL_2D": _pool("max"),
    "RESHAPE": _reshape,
    "SOFTMAX": _softmax,
}
