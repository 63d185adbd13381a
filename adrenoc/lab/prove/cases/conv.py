"""Convolutions: borders, strides, channels that fill no texel, rows as wide as images may be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from adrenoc.lab.prove.case import Build, Case
from adrenoc.lab.prove.net import Net

_CONV = "conv2d"


def _conv(net: Net, *, shape: tuple[int, ...], out: int, kernel: Any, **attrs: Any) -> str:
    return net.conv(net("Relu", net.input(*shape)), shape[1], out, kernel, **attrs)


def _plain(shape: tuple[int, ...], out: int, kernel: int | tuple[int, ...], **attrs: Any) -> Build:
    return partial(_conv, shape=shape, out=out, kernel=kernel, **attrs)


def _conv_transpose(net: Net, *, shape: tuple[int, ...], out: int, sides: Any, **attrs: Any) -> str:
    weight = net.weight(shape[1], out, *sides, terms=shape[1] * 4)
    return net("ConvTranspose", net("Relu", net.input(*shape)), weight, net.weight(out), **attrs)


def _residual(net: Net) -> str:
    x = net("Relu", net.input(1, 6, 7, 9))
    made = net("Relu", net.conv(x, 6, 6, 3, pads=[1, 1, 1, 1]))
    return net("Add", x, made)


def _image(net: Net) -> str:
    return net("Relu", net.conv(net.input(1, 3, 65, 67), 3, 18, 3, strides=[2, 2], pads=[1] * 4))


def _prologue(net: Net) -> str:
    x = net("MaxPool", net.input(1, 24, 15, 16), kernel_shape=[2, 2])
    scaled = net("Mul", x, net.weight(1, 24, 1, 1, around=1.0))
    moved = net("Relu", net("Add", scaled, net.weight(1, 24, 1, 1)))
    return net("Concat", x, net.conv(moved, 24, 20, 1), axis=1)


def _shuffle(net: Net) -> str:
    made = net.conv(net("Relu", net.input(1, 8, 20, 21)), 8, 24, 3, pads=[1] * 4)
    return net("Relu", net("DepthToSpace", made, blocksize=2))


def _block(net: Net, *, narrow: int, wide: int, size: int, kernel: int, expands: bool) -> str:
    x = net("Relu", net.input(1, narrow, size, size))
    made = net("Relu", net.conv(x, narrow, wide, 1)) if expands else x
    pad = kernel // 2
    between = net("Relu", net.conv(made, wide, wide, kernel, group=wide, pads=[pad] * 4))
    return between if expands else net.conv(between, wide, narrow, 1)


def _winograd(channels: int, size: int) -> Callable[[Net], str]:
    return _plain((1, channels, size, size), channels, 3, pads=[1] * 4)


CASES: tuple[Case, ...] = (
    Case(family=_CONV, name="1x1, 5 to 7 channels", build=_plain((1, 5, 9, 13), 7, 1)),
    Case(
        family=_CONV,
        name="3x3 with a border",
        build=_plain((1, 6, 9, 13), 10, 3, pads=[1, 1, 1, 1]),
    ),
    Case(
        family=_CONV, name="3x3 in one row", build=_plain((1, 6, 1, 17), 10, 3, pads=[1, 1, 1, 1])
    ),
    Case(
        family=_CONV,
        name="3x3 by steps of two, a batch of two",
        build=_plain((2, 8, 15, 11), 12, 3, pads=[1, 1, 1, 1], strides=[2, 2]),
    ),
    Case(
        family=_CONV,
        name="3x3 spread, borders that differ",
        build=_plain((1, 4, 11, 10), 8, 3, pads=[2, 1, 3, 0], dilations=[2, 2]),
    ),
    Case(
        family=_CONV,
        name="7x7 of many channels in few pixels",
        build=_plain((1, 33, 7, 7), 35, 7, pads=[3] * 4),
    ),
    Case(family=_CONV, name="1x1, 16384 wide", build=_plain((1, 5, 1, 16384), 7, 1)),
    Case(family=_CONV, name="one channel to one", build=_plain((1, 1, 8, 8), 1, 3)),
    Case(family=_CONV, name="two groups", build=_plain((1, 8, 9, 8), 12, 3, group=2, pads=[1] * 4)),
    Case(
        family=_CONV,
        name="depthwise 3x3 of 18 channels",
        build=_plain((1, 18, 9, 13), 18, 3, group=18, pads=[1] * 4),
    ),
    Case(
        family=_CONV,
        name="depthwise 5x5 of 7 channels by steps of two",
        build=_plain((1, 7, 12, 9), 7, 5, group=7, pads=[2] * 4, strides=[2, 2]),
    ),
    Case(family=_CONV, name="with a sum after it", build=_residual),
    Case(family=_CONV, name="of the model's own image", build=_image, fusion="image"),
    Case(family=_CONV, name="with maps before it", build=_prologue, fusion="prologue"),
    Case(
        family="conv2d_transpose",
        name="written as the pixels of channels",
        build=_shuffle,
        fusion="shuffle",
    ),
    Case(
        family="separable_conv2d",
        name="3x3, then 1x1",
        build=partial(_block, narrow=24, wide=24, size=56, kernel=3, expands=False),
        fusion="pair",
    ),
    Case(
        family="expand_depthwise_conv2d",
        name="1x1, then 3x3",
        build=partial(_block, narrow=24, wide=144, size=28, kernel=3, expands=True),
        fusion="pair",
    ),
    Case(
        family="winograd_conv",
        name="64 channels",
        build=_winograd(64, 56),
        fusion="winograd",
        slack=4.0,
    ),
    Case(
        family="winograd_multiply",
        name="192 channels, in three kernels",
        build=_winograd(192, 56),
        fusion="winograd",
        slack=4.0,
    ),
    Case(
        family="fold",
        name="3x3x3, which no family covers",
        build=_plain((1, 3, 4, 5, 6), 4, (3, 3, 3), pads=[1] * 6),
    ),
    Case(family="conv1d", name="5 of 40 channels", build=_plain((1, 40, 51), 9, (5,), pads=[2, 2])),
    Case(
        family="conv1d",
        name="depthwise",
        build=_plain((1, 10, 33), 10, (9,), pads=[4, 4], group=10),
    ),
    Case(
        family="conv2d_transpose",
        name="4x4 by steps of two",
        build=partial(
            _conv_transpose, shape=(1, 6, 7, 5), out=5, sides=(4, 4), strides=[2, 2], pads=[1] * 4
        ),
    ),
    Case(
        family="conv1d_transpose",
        name="3 by steps of two",
        build=partial(_conv_transpose, shape=(1, 6, 11), out=7, sides=(3,), strides=[2]),
    ),
)
