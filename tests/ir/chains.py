"""Models that are one operator again and again: what their planning takes has to grow with them.

A chain applies it to its own result, a doubling takes that result twice, a ladder takes the last
result and the one before, and the mixed ones alternate between what fuses and what moves.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from model_zoo.tflite_net import TFLiteNet

from tests.host.run_op import Ops

SHAPE = (1, 8, 6, 4)
"""Of what goes through all of them: small, for the work that is counted is not arithmetic."""

Step = Callable[[Ops, str, str], str]
"""From the last result and the one before it, the next."""


def _unary(op: str, **attrs) -> Step:
    return lambda net, x, _: net(op, x, **attrs)


def _by_number(op: str, number: float = 0.9) -> Step:
    return lambda net, x, _: net(op, x, net.const(number))


def _by_channels(op: str) -> Step:
    values = np.linspace(0.5, 1.5, SHAPE[1]).reshape(SHAPE[1], 1, 1)
    return lambda net, x, _: net(op, x, net.const(values))


def _twice(op: str) -> Step:
    return lambda net, x, _: net(op, x, x)


def _ladder(op: str) -> Step:
    return lambda net, x, before: net(op, x, before)


def _clip(net: Ops, x: str, _: str) -> str:
    return net("Clip", x, net.const(-1.0), net.const(3.0))


def _slice_pad(net: Ops, x: str, _: str) -> str:
    bounds = (net.ints(1), net.ints(6), net.ints(2))
    return net("Pad", net("Slice", x, *bounds), net.ints(0, 0, 1, 0, 0, 0, 0, 0))


def _halves(net: Ops, x: str, _: str) -> str:
    """Split by channels, the halves the other way round side by side again."""
    first, second = net.split(x, 1, 4, 4)
    return net("Concat", second, first, axis=1)


def _odd_parts(net: Ops, x: str, _: str) -> str:
    """Parts of three and five channels, which lie in no whole texels."""
    first, second = net.split(x, 1, 3, 5)
    return net("Concat", second, net("Relu", first), axis=1)


def _nested_concat(net: Ops, x: str, before: str) -> str:
    bounds = (net.ints(4), net.ints(12), net.ints(1))
    return net("Slice", net("Concat", x, before, axis=1), *bounds)


def _reversed(net: Ops, x: str, _: str) -> str:
    bounds = (net.ints(-1), net.ints(-99))
    axis, step = net.ints(2), net.ints(-1)
    return net("Slice", x, *bounds, axis, step)


def _gather_elements(net: Ops, x: str, _: str) -> str:
    index = np.arange(np.prod(SHAPE)).reshape(SHAPE) % SHAPE[2]
    return net("GatherElements", x, net.const(index, "int64"), axis=2)


def _reshapes(net: Ops, x: str, _: str) -> str:
    flat = net("Reshape", x, net.ints(1, 8, 24))
    return net("Reshape", net("Relu", flat), net.ints(*SHAPE))


def _transposes(net: Ops, x: str, _: str) -> str:
    turned = net("Sigmoid", net("Transpose", x, perm=[0, 2, 3, 1]))
    return net("Transpose", turned, perm=[0, 3, 1, 2])


def _shuffle(net: Ops, x: str, _: str) -> str:
    return net("SpaceToDepth", net("DepthToSpace", x, blocksize=2), blocksize=2)


def _channel_shuffle(net: Ops, x: str, _: str) -> str:
    split = net("Reshape", x, net.ints(1, 2, 4, 6, 4))
    return net("Reshape", net("Transpose", split, perm=[0, 2, 1, 3, 4]), net.ints(*SHAPE))


def _unsqueeze(net: Ops, x: str, _: str) -> str:
    axes = net.ints(2)
    return net("Squeeze", net("Unsqueeze", x, axes), axes)


def _expand(net: Ops, x: str, _: str) -> str:
    return net("Expand", net("ReduceMean", x, net.ints(2, 3), keepdims=1), net.ints(*SHAPE))


def _reduce(op: str) -> Step:
    def step(net: Ops, x: str, _: str) -> str:
        return net("Sub", x, net(op, x, net.ints(1), keepdims=1))

    return step


def _resize(net: Ops, x: str, _: str) -> str:
    up = net("Resize", x, "", net.const([1, 1, 2, 2]), mode="nearest")
    return net("AveragePool", up, kernel_shape=[2, 2], strides=[2, 2])


def _conv(kernel: int, group: int = 1) -> Step:
    def step(net: Ops, x: str, _: str) -> str:
        weight = net.weight(8, 8 // group, kernel, kernel)
        return net("Conv", x, weight, pads=[kernel // 2] * 4, group=group)

    return step


def _residual(net: Ops, x: str, before: str) -> str:
    return net("Add", x, net("Relu", _conv(3)(net, x, before)))


def _scaled(net: Ops, x: str, before: str) -> str:
    """Squeeze and excitation: a tensor by what is computed of all of it."""
    mean = net("GlobalAveragePool", x)
    return net("Mul", x, net("Sigmoid", _conv(1)(net, mean, before)))


def _batch_norm(net: Ops, x: str, _: str) -> str:
    values = [net.const(np.linspace(0.5, 1.5, 8) + i) for i in range(4)]
    return net("BatchNormalization", x, *values)


def _matmul(net: Ops, x: str, _: str) -> str:
    return net("MatMul", x, net.const(np.eye(4) / 2))


def _quanta(net: Ops, x: str, _: str) -> str:
    scale, zero = net.const(0.05), net.const(3, "int8")
    return net("DequantizeLinear", net("QuantizeLinear", x, scale, zero), scale, zero)


def _silu(net: Ops, x: str, _: str) -> str:
    return net("Mul", x, net("Sigmoid", x))


def _gelu(net: Ops, x: str, _: str) -> str:
    inner = net("Erf", net("Div", x, net.const(1.4142)))
    return net("Mul", x, net("Add", inner, net.const(1.0)))


def _centred(net: Ops, x: str, _: str) -> str:
    """What a normalisation is written of: a difference, its square, a root, a quotient."""
    axes = net.ints(1)
    rest = net("Sub", x, net("ReduceMean", x, axes, keepdims=1))
    square = net("ReduceMean", net("Mul", rest, rest), axes, keepdims=1)
    return net("Div", rest, net("Sqrt", net("Add", square, net.const(1e-5))))


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
    "Mod number": lambda net, x, _: net("Mod", x, net.const(0.9), fmod=1),
    **{f"{op} channels": _by_channels(op) for op in ("Add", "Mul", "Div", "Max")},
    **{f"{op} twice": _twice(op) for op in _BINARY},
    **{f"{op} ladder": _ladder(op) for op in _BINARY},
    "Clip": _clip,
    "PRelu": lambda net, x, _: net("PRelu", x, net.const(np.full((SHAPE[1], 1, 1), 0.2))),
    "Where": lambda net, x, before: net("Where", net("Greater", x, before), x, before),
    "compared": lambda net, x, before: net("Cast", net("Less", x, before), to=1),
    "cast": lambda net, x, _: net("Cast", net("Cast", x, to=6), to=1),
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
    "Gather": lambda net, x, _: net("Gather", x, net.ints(3, 0, 1, 2, 4, 6, 5, 7), axis=1),
    "GatherElements": _gather_elements,
    "pixel shuffle": _shuffle,
    "channel shuffle": _channel_shuffle,
    "Resize": _resize,
    "CumSum": lambda net, x, _: net("CumSum", x, net.const(3, "int64")),
    **{f"Reduce{op}": _reduce(f"Reduce{op}") for op in ("Max", "Mean", "Sum", "L2", "LogSumExp")},
    "MaxPool": _unary("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "AveragePool": _unary("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": lambda net, x, _: net(
        "LayerNormalization", x, net.const(np.ones(4)), axis=-1
    ),
    "InstanceNormalization": lambda net, x, _: net(
        "InstanceNormalization", x, net.const(np.ones(8)), net.const(np.zeros(8))
    ),
    "MatMul": _matmul,
    "Conv 1x1": _conv(1),
    "Conv 3x3": _conv(3),
    "Conv depthwise": _conv(3, 8),
    "Conv and Relu": lambda net, x, before: net("Relu", _conv(1)(net, x, before)),
    "residual": _residual,
    "scaled": _scaled,
    "quanta": _quanta,
}
"""What is applied again and again, by name."""


_ONE = (
    *("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOG", "LOGISTIC", "NEG", "RELU"),
    *("RELU6", "ROUND", "RSQRT", "SIN", "SQRT", "SQUARE", "TANH"),
)
"""Operators of TFLite by element, of one operand."""
_TWO = (
    *("DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "MUL", "POW"),
    *("SQUARED_DIFFERENCE", "SUB"),
)
_OPTIONS = {
    kind: f"{kind.title().replace('_', '')}Options"
    for kind in ("COS", "EXP", "HARD_SWISH", "NEG", "SQUARE", *_TWO)
} | dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions")
"""Operator -> its table of options."""
TFLITE = (
    *(f"{kind} chain" for kind in _ONE),
    *(f"{kind} {form}" for kind in _TWO for form in ("twice", "ladder")),
)
"""The chains of TFLite's operators, by name."""


def tflite_chain(name: str, length: int) -> bytes:
    """The file that applies an operator of `TFLITE` so many times."""
    kind, form = name.split()
    n, c, h, w = SHAPE
    net = TFLiteNet((n, h, w, c))
    before = last = net.input
    for _ in range(length):
        operands = {"chain": (last,), "twice": (last, last), "ladder": (last, before)}[form]
        before, last = last, net.plain(kind, *operands, options=_OPTIONS.get(kind, ""))
    return net.finish(last)


def write_chain(folder: Path, name: str, length: int) -> Path:
    """A chain of either format as a file."""
    if name in TFLITE:
        path = folder / "chain.tflite"
        path.write_bytes(tflite_chain(name, length))
        return path
    net = Ops(opset=20)
    before = last = net.input(*SHAPE)
    for _ in range(length):
        before, last = last, CHAINS[name](net, last, before)
    net.output(last)
    path = folder / "chain.onnx"
    net.save(path)
    return path
