"""Element by element, and what moves elements from place to place."""

from __future__ import annotations

from functools import partial

import numpy as np

from adrenoc.lab.prove.case import Case
from adrenoc.lab.prove.net import Net
from adrenoc.target.avoid import NATIVE_FUNCTIONS


def _functions(net: Net, *, op: str) -> str:
    return net(op, net("Relu", net.input(1, 7, 5, 9)))


def _sigmoid_of_halves(net: Net, *, most: float) -> str:
    """Of numbers up to `most`: a narrow range shows errors.  A pool has the result stored."""
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


def _resize(net: Net, *, mode: str) -> str:
    sizes = net.const(np.array([1.0, 1.0, 2.0, 3.0]))
    return net("Tanh", net("Resize", net("Relu", net.input(1, 6, 5, 7)), "", sizes, mode=mode))


def _gather(net: Net) -> str:
    return net("Tanh", net("Gather", net("Relu", net.input(1, 6, 5, 7)), net.ints(3, 0, 4), axis=2))


def _five_axes(net: Net) -> str:
    x = net("Relu", net.input(1, 3, 4, 5, 6))
    return net("Tanh", net("Transpose", x, perm=[0, 4, 2, 1, 3]))


CASES: tuple[Case, ...] = (
    *(
        Case(family="map", name=op, build=partial(_functions, op=op))
        for op in ("Tanh", "Sigmoid", "Exp", "Erf", "Sqrt")
    ),
    *(
        Case(
            family="map",
            name=f"Sigmoid that a half stores, {where}",
            build=partial(_sigmoid_of_halves, most=most),
            feature=NATIVE_FUNCTIONS,
        )
        for where, most in (("near zero", 0.5), ("far from zero", 200.0))
    ),
    Case(family="map", name="sums of unlike shapes", build=_broadcast),
    Case(family="map", name="joined channels, 3, 5 and 8", build=_concat),
    Case(family="map", name="a slice with steps, backwards too", build=_slice),
    Case(family="map", name="axes that change places", build=_transpose),
    Case(family="map", name="borders that reflect", build=_pad),
    Case(family="map", name="enlarged, nearest", build=partial(_resize, mode="nearest")),
    Case(family="map", name="enlarged, linear", build=partial(_resize, mode="linear"), slack=2.0),
    Case(family="map", name="rows that are picked", build=_gather),
    Case(family="map", name="five axes, in a buffer of rows", build=_five_axes),
)
