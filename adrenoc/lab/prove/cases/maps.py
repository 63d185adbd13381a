"""Cases of maps and of folds: element by element, what moves elements, what goes along axes."""

from typing import Any

import numpy as np

from adrenoc.lab.net import CONTRIB, Net
from adrenoc.lab.prove.cases import Case, builder
from adrenoc.target.gpu import HALF_DENORMALS, NATIVE_FUNCTIONS


@builder
def _functions(net: Net, op: str) -> str:
    return net(op, net("Relu", net.input(1, 7, 5, 9)))


@builder
def _sigmoid_of_halves(net: Net, most: float) -> str:
    """Add a sigmoid of numbers up to `most`: a narrow range shows errors. A pool has the result
    stored."""
    found = net("Sigmoid", net.feed(net.values(1, 7, 6, 10) * np.float32(most)))
    return net("MaxPool", found, kernel_shape=[1, 2])


def _broadcast(net: Net) -> str:
    x, y = net("Relu", net.input(1, 7, 5, 9)), net("Relu", net.input(1, 7, 1, 1))
    return net("Sigmoid", net("Add", net("Mul", x, y), net("Relu", net.input(1, 1, 5, 1))))


def _concat(net: Net) -> str:
    parts = [net("Relu", net.input(1, channels, 6, 5)) for channels in (3, 5, 8)]
    return net("Tanh", net("Concat", *parts, axis=1))


def _slice(net: Net) -> str:
    x = net("Relu", net.input(1, 14, 9, 10))
    starts, ends, steps = net.ints(3, 1, 8), net.ints(10, 9, -11), net.ints(1, 2, -3)
    return net("Tanh", net("Slice", x, starts, ends, net.ints(1, 2, 3), steps))


def _transpose(net: Net) -> str:
    return net("Tanh", net("Transpose", net("Relu", net.input(1, 6, 7, 9)), perm=[0, 3, 1, 2]))


def _pad(net: Net) -> str:
    x = net("Relu", net.input(1, 6, 5, 7))
    return net("Tanh", net("Pad", x, net.ints(0, 0, 1, 2, 0, 0, 3, 4), mode="reflect"))


@builder
def _resize(net: Net, mode: str) -> str:
    sizes = net.const(np.array([1.0, 1.0, 2.0, 3.0]))
    return net("Tanh", net("Resize", net("Relu", net.input(1, 6, 5, 7)), "", sizes, mode=mode))


def _gather(net: Net) -> str:
    return net("Tanh", net("Gather", net("Relu", net.input(1, 6, 5, 7)), net.ints(3, 0, 4), axis=2))


def _five_axes(net: Net) -> str:
    x = net("Relu", net.input(1, 3, 4, 5, 6))
    return net("Tanh", net("Transpose", x, perm=[0, 4, 2, 1, 3]))


MAP_CASES: tuple[Case, ...] = (
    *(Case("map", op, _functions(op)) for op in ("Tanh", "Sigmoid", "Exp", "Erf", "Sqrt")),
    *(
        Case(
            "map",
            f"Sigmoid that a half stores, {where}",
            _sigmoid_of_halves(most),
            feature=NATIVE_FUNCTIONS,
        )
        for where, most in (("near zero", 0.5), ("far from zero", 200.0))
    ),
    Case("map", "sums of unlike shapes", _broadcast),
    Case("map", "joined channels, 3, 5 and 8", _concat),
    Case("map", "a slice with steps, backwards too", _slice),
    Case("map", "axes that change places", _transpose),
    Case("map", "borders that reflect", _pad),
    Case("map", "enlarged, nearest", _resize("nearest")),
    Case("map", "enlarged, linear", _resize("linear"), slack=2.0),
    Case("map", "rows that are picked", _gather),
    Case("map", "five axes, in a buffer of rows", _five_axes),
)


@builder
def _pool(net: Net, /, op: str, shape: tuple[int, ...], **attrs: Any) -> str:
    return net(op, net("Relu", net.input(*shape)), **attrs)


def _pick_largest(net: Net) -> str:
    """Return the largest of numbers that a half cannot hold: rounding shows."""
    values = net.values(1, 9, 6, 10) * np.float32(1.0001) + np.float32(2.0)
    return net("MaxPool", net.feed(values), kernel_shape=[2, 2], strides=[2, 2])


def _keep_from_zero(net: Net) -> str:
    """Logarithms of the largest of distances, some of which are a small half alone."""
    values = net.values(1, 9, 6, 10)
    values[..., ::3, :] = 0.0
    distance = net("Add", net("Abs", net.feed(values)), net.const(2.0**-16))
    return net("Log", net("MaxPool", distance, kernel_shape=[1, 2]))


@builder
def _reduce(net: Net, op: str, shape: tuple[int, ...], *axes: int) -> str:
    around = np.float32(1.5 if op == "ReduceProd" else 0.0)
    x = net("Tanh", net.feed(net.values(*shape) * np.float32(0.5) + around))
    return net(op, x, net.ints(*axes), keepdims=1)


def _invert(net: Net) -> str:
    """Matrices far from singular, whose pivots lie in other rows."""
    near = net.values(5, 7, 7) + 4 * np.eye(7, dtype=np.float32)[::-1]
    return net("Inverse", net.feed(near), domain=CONTRIB)


@builder
def _scan_axis(net: Net, op: str, shape: tuple[int, ...], axis: int) -> str:
    return net(op, net("Tanh", net.input(*shape)), axis=axis)


def _layer_norm(net: Net) -> str:
    x = net("Tanh", net.input(1, 19, 30))
    return net("LayerNormalization", x, net.weight(30, around=1.0), net.weight(30), axis=-1)


def _rms_norm(net: Net) -> str:
    x = net("Tanh", net.input(1, 19, 30))
    return net("SimplifiedLayerNormalization", x, net.weight(30, around=1.0), axis=-1)


def _instance_norm(net: Net) -> str:
    x = net("Tanh", net.input(1, 6, 9, 11))
    return net("InstanceNormalization", x, net.weight(6, around=1.0), net.weight(6))


def _group_norm(net: Net) -> str:
    x = net("Tanh", net.input(1, 12, 6, 7))
    return net("GroupNormalization", x, net.weight(3, around=1.0), net.weight(3), num_groups=3)


@builder
def _recurrent(net: Net, kind: str, units: int) -> str:
    steps, depth, gates = 7, 12, {"GRU": 3, "LSTM": 4}[kind]
    x = net("Relu", net.input(steps, 1, depth))
    operands = [
        net.weight(2, gates * units, depth, terms=depth),
        net.weight(2, gates * units, units, terms=units),
        net.weight(2, 2 * gates * units),
    ]
    return net(kind, x, *operands, hidden_size=units, direction="bidirectional")


@builder
def _running(net: Net, shape: tuple[int, ...], axis: int) -> str:
    return net("CumSum", net("Tanh", net.input(*shape)), net.const(axis, np.int64))


_IMAGE = (1, 10, 7, 9)

FOLD_CASES: tuple[Case, ...] = (
    Case(
        "avg_pool2d",
        "3x3 with a border",
        _pool("AveragePool", (1, 7, 9, 10), kernel_shape=[3, 3], pads=[1] * 4),
    ),
    Case(
        "max_pool2d",
        "3x3 by steps of two with a border",
        _pool("MaxPool", (1, 7, 9, 10), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    ),
    Case("max_pool2d", "what halves round", _pick_largest, exact=True),
    Case(
        "max_pool2d", "what a small half keeps from zero", _keep_from_zero, feature=HALF_DENORMALS
    ),
    Case(
        "avg_pool1d",
        "3 by steps of two",
        _pool("AveragePool", (1, 6, 21), kernel_shape=[3], strides=[2]),
    ),
    Case(
        "max_pool1d", "4 with a border", _pool("MaxPool", (1, 6, 21), kernel_shape=[4], pads=[1, 2])
    ),
    Case("mean", "whole images", _pool("GlobalAveragePool", (1, 21, 13, 11))),
    Case("mean", "of channels", _reduce("ReduceMean", _IMAGE, 1)),
    Case("mean", "of pixels", _reduce("ReduceMean", _IMAGE, 2, 3)),
    Case("sum", "of rows", _reduce("ReduceSum", _IMAGE, 3)),
    Case("sum", "of one long row", _reduce("ReduceSum", (1, 1, 1, 1030), 3), slack=4.0),
    Case("max", "of channels", _reduce("ReduceMax", _IMAGE, 1)),
    Case("min", "of columns", _reduce("ReduceMin", _IMAGE, 2)),
    Case("prod", "of channels", _reduce("ReduceProd", _IMAGE, 1), slack=4.0),
    Case("softmax", "along channels", _scan_axis("Softmax", (1, 10, 7, 5), 1)),
    Case("softmax", "along rows of 77", _scan_axis("Softmax", (1, 9, 77), 2)),
    Case("log_softmax", "of 130 classes", _scan_axis("LogSoftmax", (1, 130), 1)),
    Case("instance_norm", "6 channels", _instance_norm, slack=4.0),
    Case("layer_norm", "rows of 30", _layer_norm, slack=4.0),
    Case("rms_norm", "rows of 30", _rms_norm, slack=4.0),
    Case("group_norm", "3 groups of 4", _group_norm, slack=4.0),
    Case("recurrent", "an LSTM of 10 units, both ways", _recurrent("LSTM", 10), slack=2.0),
    Case("recurrent", "a GRU of 8 units that resets first", _recurrent("GRU", 8), slack=2.0),
    Case("inverse", "matrices of 7 rows", _invert, slack=4.0),
    Case("cumsum", "along channels", _running((1, 11, 6, 5), 1), slack=2.0),
)
