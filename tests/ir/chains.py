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


_PER_CHANNEL = np.linspace(0.5, 1.5, SHAPE[1]).reshape(SHAPE[1], 1, 1)


def _by(op: str, *values: object, **attrs) -> Step:
    return lambda net, x, _: net(op, x, *map(net.const, values), **attrs)


def _odd_parts(net: Ops, x: str, _: str) -> str:
    """Parts of three and five channels, which lie in no whole texels."""
    first, second = net.split(x, 1, 3, 5)
    return net("Concat", second, net("Relu", first), axis=1)


def _channel_shuffle(net: Ops, x: str, _: str) -> str:
    split = net("Reshape", x, net.ints(1, 2, 4, 6, 4))
    return net("Reshape", net("Transpose", split, perm=[0, 2, 1, 3, 4]), net.ints(*SHAPE))


def _slice_pad(net: Ops, x: str, _: str) -> str:
    bounds = (net.ints(1), net.ints(6), net.ints(2))
    return net("Pad", net("Slice", x, *bounds), net.ints(0, 0, 1, 0, 0, 0, 0, 0))


def _resize(net: Ops, x: str, _: str) -> str:
    up = net("Resize", x, "", net.const([1, 1, 2, 2]), mode="nearest")
    return net("AveragePool", up, kernel_shape=[2, 2], strides=[2, 2])


def _conv(kernel: int, group: int = 1) -> Step:
    def step(net: Ops, x: str, _: str) -> str:
        weight = net.weight(8, 8 // group, kernel, kernel)
        return net("Conv", x, weight, pads=[kernel // 2] * 4, group=group)

    return step


def _quanta(net: Ops, x: str, _: str) -> str:
    scale, zero = net.const(0.05), net.const(3, "int8")
    return net("DequantizeLinear", net("QuantizeLinear", x, scale, zero), scale, zero)


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
    **{f"{op} number": _by(op, 0.9) for op in _BINARY},
    "Mod number": lambda net, x, _: net("Mod", x, net.const(0.9), fmod=1),
    **{f"{op} channels": _by(op, _PER_CHANNEL) for op in ("Add", "Mul", "Div", "Max")},
    **{f"{op} twice": lambda net, x, _, op=op: net(op, x, x) for op in _BINARY},
    **{f"{op} ladder": lambda net, x, before, op=op: net(op, x, before) for op in _BINARY},
    "Clip": lambda net, x, _: net("Clip", x, net.const(-1.0), net.const(3.0)),
    "PRelu": _by("PRelu", np.full((SHAPE[1], 1, 1), 0.2)),
    "Where": lambda net, x, before: net("Where", net("Greater", x, before), x, before),
    "compared": lambda net, x, before: net("Cast", net("Less", x, before), to=1),
    "cast": lambda net, x, _: net("Cast", net("Cast", x, to=6), to=1),
    "silu": lambda net, x, _: net("Mul", x, net("Sigmoid", x)),
    "gelu": lambda net, x, _: net(
        "Mul", x, net("Add", net("Erf", net("Div", x, net.const(1.4142))), net.const(1.0))
    ),
    "centred": _centred,
    "Transpose": _unary("Transpose", perm=[0, 1, 2, 3]),
    "transposes": lambda net, x, _: net(
        "Transpose", net("Sigmoid", net("Transpose", x, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2]
    ),
    "reshapes": lambda net, x, _: net(
        "Reshape", net("Relu", net("Reshape", x, net.ints(1, 8, 24))), net.ints(*SHAPE)
    ),
    "Unsqueeze": lambda net, x, _: net("Squeeze", net("Unsqueeze", x, net.ints(2)), net.ints(2)),
    "Expand": lambda net, x, _: net(
        "Expand", net("ReduceMean", x, net.ints(2, 3), keepdims=1), net.ints(*SHAPE)
    ),
    "slice and pad": _slice_pad,
    "reversed": lambda net, x, _: net("Slice", x, *map(net.ints, (-1, -99, 2, -1))),
    # Split by channels, the halves the other way round side by side again.
    "halves": lambda net, x, _: net("Concat", *reversed(net.split(x, 1, 4, 4)), axis=1),
    "odd parts": _odd_parts,
    "nested concat": lambda net, x, before: net(
        "Slice", net("Concat", x, before, axis=1), *map(net.ints, (4, 12, 1))
    ),
    "Gather": lambda net, x, _: net("Gather", x, net.ints(3, 0, 1, 2, 4, 6, 5, 7), axis=1),
    "GatherElements": lambda net, x, _: net(
        "GatherElements", x, net.const(np.indices(SHAPE).sum(0) % SHAPE[2], "int64"), axis=2
    ),
    "pixel shuffle": lambda net, x, _: net(
        "SpaceToDepth", net("DepthToSpace", x, blocksize=2), blocksize=2
    ),
    "channel shuffle": _channel_shuffle,
    "Resize": _resize,
    "CumSum": lambda net, x, _: net("CumSum", x, net.const(3, "int64")),
    **{
        f"Reduce{op}": lambda net, x, _, op=op: net(
            "Sub", x, net(f"Reduce{op}", x, net.ints(1), keepdims=1)
        )
        for op in ("Max", "Mean", "Sum", "L2", "LogSumExp")
    },
    "MaxPool": _unary("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "AveragePool": _unary("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "BatchNormalization": _by("BatchNormalization", *(_PER_CHANNEL.ravel() + i for i in range(4))),
    "LayerNormalization": _by("LayerNormalization", np.ones(4), axis=-1),
    "InstanceNormalization": _by("InstanceNormalization", np.ones(8), np.zeros(8)),
    "MatMul": _by("MatMul", np.eye(4) / 2),
    "Conv 1x1": _conv(1),
    "Conv 3x3": _conv(3),
    "Conv depthwise": _conv(3, 8),
    "Conv and Relu": lambda net, x, before: net("Relu", _conv(1)(net, x, before)),
    "residual": lambda net, x, before: net("Add", x, net("Relu", _conv(3)(net, x, before))),
    # Squeeze and excitation: a tensor by what is computed of all of it.
    "scaled": lambda net, x, before: net(
        "Mul", x, net("Sigmoid", _conv(1)(net, net("GlobalAveragePool", x), before))
    ),
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
