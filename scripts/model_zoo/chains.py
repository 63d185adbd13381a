"""Models that are one operator again and again: what their planning takes has to grow with them.

A chain applies it to its own result, a doubling takes that result twice, a ladder takes the last
result and the one before, and the mixed ones alternate between what fuses and what moves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from model_zoo.tflite_net import PLAIN, TFLiteNet

SHAPE = (1, 8, 6, 4)
"""Of what goes through all of them: small, for the work that is counted is not arithmetic."""

Step = Callable[["Chain", str, str], str]
"""From the last result and the one before it, the next."""


class Chain:
    """An ONNX model under construction."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def add(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> str:
        """An operator; returns its first output."""
        names = [f"t{len(self.nodes)}" + (f"_{i}" if i else "") for i in range(outputs)]
        domain = str(attrs.pop("domain", ""))
        node = helper.make_node(op, list(inputs), names, domain=domain, **attrs)
        self.nodes.append(node)
        return names[0]

    def constant(self, value: object, dtype: str = "float32") -> str:
        """An initialiser; equal ones are one."""
        array = np.array(value, dtype)
        name = f"c_{dtype}_{array.shape}_{array.tobytes().hex()[:64]}"
        self.constants[name] = array
        return name

    def finish(self, output: str) -> onnx.ModelProto:
        """The model."""
        graph = helper.make_graph(
            self.nodes,
            "chain",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, SHAPE)],
            [onnx.ValueInfoProto(name=output)],
            [numpy_helper.from_array(v, n) for n, v in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
        model.ir_version = 9
        return model


def _unary(op: str, **attrs: Any) -> Step:
    return lambda net, x, _: net.add(op, x, **attrs)


def _by_number(op: str, number: float = 0.9) -> Step:
    return lambda net, x, _: net.add(op, x, net.constant(number))


def _by_channels(op: str) -> Step:
    values = np.linspace(0.5, 1.5, SHAPE[1]).reshape(SHAPE[1], 1, 1)
    return lambda net, x, _: net.add(op, x, net.constant(values))


def _twice(op: str) -> Step:
    return lambda net, x, _: net.add(op, x, x)


def _ladder(op: str) -> Step:
    return lambda net, x, before: net.add(op, x, before)


def _clip(net: Chain, x: str, _: str) -> str:
    return net.add("Clip", x, net.constant(-1.0), net.constant(3.0))


def _where(net: Chain, x: str, before: str) -> str:
    return net.add("Where", net.add("Greater", x, before), x, before)


def _compared(net: Chain, x: str, before: str) -> str:
    return net.add("Cast", net.add("Less", x, before), to=1)


def _cast(net: Chain, x: str, _: str) -> str:
    return net.add("Cast", net.add("Cast", x, to=6), to=1)


def _prelu(net: Chain, x: str, _: str) -> str:
    return net.add("PRelu", x, net.constant(np.full((SHAPE[1], 1, 1), 0.2)))


def _slice_pad(net: Chain, x: str, _: str) -> str:
    bounds = (net.constant([1], "int64"), net.constant([6], "int64"), net.constant([2], "int64"))
    cut = net.add("Slice", x, *bounds)
    return net.add("Pad", cut, net.constant([0, 0, 1, 0, 0, 0, 0, 0], "int64"))


def _halves(net: Chain, x: str, _: str) -> str:
    """Split by channels, the halves the other way round side by side again."""
    first = net.add("Split", x, outputs=2, axis=1, num_outputs=2)
    return net.add("Concat", f"{first}_1", first, axis=1)


def _odd_parts(net: Chain, x: str, _: str) -> str:
    """Parts of three and five channels, which lie in no whole texels."""
    first = net.add("Split", x, net.constant([3, 5], "int64"), outputs=2, axis=1)
    return net.add("Concat", f"{first}_1", net.add("Relu", first), axis=1)


def _nested_concat(net: Chain, x: str, before: str) -> str:
    bounds = (net.constant([4], "int64"), net.constant([12], "int64"), net.constant([1], "int64"))
    return net.add("Slice", net.add("Concat", x, before, axis=1), *bounds)


def _reversed(net: Chain, x: str, _: str) -> str:
    bounds = (net.constant([-1], "int64"), net.constant([-99], "int64"))
    axis, step = net.constant([2], "int64"), net.constant([-1], "int64")
    return net.add("Slice", x, *bounds, axis, step)


def _gather(net: Chain, x: str, _: str) -> str:
    return net.add("Gather", x, net.constant([3, 0, 1, 2, 4, 6, 5, 7], "int64"), axis=1)


def _gather_elements(net: Chain, x: str, _: str) -> str:
    index = np.arange(np.prod(SHAPE)).reshape(SHAPE) % SHAPE[2]
    return net.add("GatherElements", x, net.constant(index, "int64"), axis=2)


def _reshapes(net: Chain, x: str, _: str) -> str:
    flat = net.add("Reshape", x, net.constant([1, 8, 24], "int64"))
    return net.add("Reshape", net.add("Relu", flat), net.constant(SHAPE, "int64"))


def _transposes(net: Chain, x: str, _: str) -> str:
    turned = net.add("Sigmoid", net.add("Transpose", x, perm=[0, 2, 3, 1]))
    return net.add("Transpose", turned, perm=[0, 3, 1, 2])


def _shuffle(net: Chain, x: str, _: str) -> str:
    wide = net.add("DepthToSpace", x, blocksize=2)
    return net.add("SpaceToDepth", wide, blocksize=2)


def _channel_shuffle(net: Chain, x: str, _: str) -> str:
    split = net.add("Reshape", x, net.constant([1, 2, 4, 6, 4], "int64"))
    turned = net.add("Transpose", split, perm=[0, 2, 1, 3, 4])
    return net.add("Reshape", turned, net.constant(SHAPE, "int64"))


def _unsqueeze(net: Chain, x: str, _: str) -> str:
    axes = net.constant([2], "int64")
    return net.add("Squeeze", net.add("Unsqueeze", x, axes), axes)


def _expand(net: Chain, x: str, _: str) -> str:
    one = net.add("ReduceMean", x, net.constant([2, 3], "int64"), keepdims=1)
    return net.add("Expand", one, net.constant(SHAPE, "int64"))


def _reduce(op: str) -> Step:
    def step(net: Chain, x: str, _: str) -> str:
        return net.add("Sub", x, net.add(op, x, net.constant([1], "int64"), keepdims=1))

    return step


def _resize(net: Chain, x: str, _: str) -> str:
    up = net.add("Resize", x, "", net.constant([1, 1, 2, 2]), mode="nearest")
    return net.add("AveragePool", up, kernel_shape=[2, 2], strides=[2, 2])


def _conv(kernel: int, group: int = 1) -> Step:
    def step(net: Chain, x: str, _: str) -> str:
        shape = (8, 8 // group, kernel, kernel)
        weight = np.random.default_rng(len(net.nodes)).standard_normal(shape) / 5
        return net.add("Conv", x, net.constant(weight), pads=[kernel // 2] * 4, group=group)

    return step


def _conv_relu(net: Chain, x: str, before: str) -> str:
    return net.add("Relu", _conv(1)(net, x, before))


def _residual(net: Chain, x: str, before: str) -> str:
    return net.add("Add", x, net.add("Relu", _conv(3)(net, x, before)))


def _scaled(net: Chain, x: str, before: str) -> str:
    """Squeeze and excitation: a tensor by what is computed of all of it."""
    mean = net.add("GlobalAveragePool", x)
    return net.add("Mul", x, net.add("Sigmoid", _conv(1)(net, mean, before)))


def _batch_norm(net: Chain, x: str, _: str) -> str:
    values = [net.constant(np.linspace(0.5, 1.5, 8) + i) for i in range(4)]
    return net.add("BatchNormalization", x, *values)


def _layer_norm(net: Chain, x: str, _: str) -> str:
    return net.add("LayerNormalization", x, net.constant(np.ones(4)), axis=-1)


def _instance_norm(net: Chain, x: str, _: str) -> str:
    return net.add("InstanceNormalization", x, net.constant(np.ones(8)), net.constant(np.zeros(8)))


def _matmul(net: Chain, x: str, _: str) -> str:
    return net.add("MatMul", x, net.constant(np.eye(4) / 2))


def _quanta(net: Chain, x: str, _: str) -> str:
    scale, zero = net.constant(0.05), net.constant(3, "int8")
    return net.add("DequantizeLinear", net.add("QuantizeLinear", x, scale, zero), scale, zero)


def _silu(net: Chain, x: str, _: str) -> str:
    return net.add("Mul", x, net.add("Sigmoid", x))


def _gelu(net: Chain, x: str, _: str) -> str:
    inner = net.add("Erf", net.add("Div", x, net.constant(1.4142)))
    return net.add("Mul", x, net.add("Add", inner, net.constant(1.0)))


def _centred(net: Chain, x: str, _: str) -> str:
    """What a normalisation is written of: a difference, its square, a root, a quotient."""
    axes = net.constant([1], "int64")
    rest = net.add("Sub", x, net.add("ReduceMean", x, axes, keepdims=1))
    square = net.add("ReduceMean", net.add("Mul", rest, rest), axes, keepdims=1)
    return net.add("Div", rest, net.add("Sqrt", net.add("Add", square, net.constant(1e-5))))


_UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh"),
    *("Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu"),
    *("Log", "LogSoftmax", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu"),
)
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mean", "Sum")

CHAINS: dict[str, Step] = {
    **{op: _unary(op) for op in _UNARY},
    **{f"{op} number": _by_number(op) for op in _BINARY},
    "Mod number": lambda net, x, _: net.add("Mod", x, net.constant(0.9), fmod=1),
    **{f"{op} channels": _by_channels(op) for op in ("Add", "Mul", "Div", "Max")},
    **{f"{op} twice": _twice(op) for op in _BINARY},
    **{f"{op} ladder": _ladder(op) for op in _BINARY},
    "Clip": _clip,
    "PRelu": _prelu,
    "Where": _where,
    "compared": _compared,
    "cast": _cast,
    "silu": _silu,
    "gelu": _gelu,
    "centred": _centred,
    "Transpose": _unary("Transpose", perm=[0, 1, 2, 3]),
    "transposes": _transposes,
    "reshapes": _reshapes,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "slice and pad": _slice_pad,
    "reversed": _reversed,
    "halves": _halves,
    "odd parts": _odd_parts,
    "nested concat": _nested_concat,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "pixel shuffle": _shuffle,
    "channel shuffle": _channel_shuffle,
    "Resize": _resize,
    "CumSum": lambda net, x, _: net.add("CumSum", x, net.constant(3, "int64")),
    **{f"Reduce{op}": _reduce(f"Reduce{op}") for op in ("Max", "Mean", "Sum", "L2", "LogSumExp")},
    "MaxPool": _unary("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "AveragePool": _unary("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "MatMul": _matmul,
    "Conv 1x1": _conv(1),
    "Conv 3x3": _conv(3),
    "Conv depthwise": _conv(3, 8),
    "Conv and Relu": _conv_relu,
    "residual": _residual,
    "scaled": _scaled,
    "quanta": _quanta,
}
"""What is applied again and again, by name."""


TFLITE = tuple(
    f"{kind} {form}"
    for kind, (_, operands) in PLAIN.items()
    for form in (("chain",) if operands == 1 else ("twice", "ladder"))
)
"""The chains of TFLite's operators, by name."""


def chain(name: str, length: int) -> onnx.ModelProto:
    """The model that applies `CHAINS[name]` so many times."""
    net = Chain()
    before, last = "x", "x"
    for _ in range(length):
        before, last = last, CHAINS[name](net, last, before)
    return net.finish(last)


def tflite_chain(name: str, length: int) -> bytes:
    """The file that applies an operator of `TFLITE` so many times."""
    kind, form = name.split()
    n, c, h, w = SHAPE
    net = TFLiteNet((n, h, w, c))
    before = last = net.input
    for _ in range(length):
        operands = {"chain": (last,), "twice": (last, last), "ladder": (last, before)}[form]
        before, last = last, net.plain(kind, *operands)
    return net.finish(last)


def write_chain(folder: Path, name: str, length: int) -> Path:
    """A chain of either format as a file."""
    if name in TFLITE:
        path = folder / "chain.tflite"
        path.write_bytes(tflite_chain(name, length))
    else:
        path = folder / "chain.onnx"
        path.write_bytes(chain(name, length).SerializeToString())
    return path
