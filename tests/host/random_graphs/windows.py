"""Steps that slide a window over the data: convolutions and pools of one to three dimensions."""

import math
from typing import Any

from tests.host.random_graphs.grower import Grower, Made, Shape, Tensor

CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 24, 33)
MANY_CHANNELS = (16, 24, 32, 40, 64, 96)
"""Of tensors that are as large as those of networks."""
MOST_PRODUCTS = 1 << 22


def _extents(space: Shape, attrs: dict[str, Any]) -> list[int]:
    """What a window leaves of each extent.

    Nothing where `ceil_mode` asks for a window that begins behind the data: runtimes leave it
    out, the shape inference of this operator set does not.
    """
    left = []
    for i, extent in enumerate(space):
        reach = attrs["dilations"][i] * (attrs["kernel_shape"][i] - 1) + 1
        before, after = attrs["pads"][i], attrs["pads"][i + len(space)]
        stride, room = attrs["strides"][i], extent + before + after - reach
        count = room // stride + 1 if room >= 0 else 0
        if attrs.get("ceil_mode") and count and room % stride:
            if count * stride >= extent + before:
                return [0]
            count += 1
        left.append(count)
    return left


def _window(g: Grower, space: Shape, *, largest: int, dilated: bool = True) -> dict[str, Any]:
    kernel = [g.between(1, min(largest, e + 2)) for e in space]
    if g.maybe():
        kernel = [min(kernel[0], e + 2) for e in space]
    pads = [g.between(0, k - 1) for k in kernel] * 2
    if g.maybe():
        pads[len(space) :] = [g.between(0, k - 1) for k in kernel]
    return {
        "kernel_shape": kernel,
        "strides": [g.one_of((1, 1, 2, 3)) for _ in space],
        "dilations": [g.one_of((1, 1, 2, 3)) if dilated else 1 for _ in space],
        "pads": pads,
    }


def channels_of(x: Tensor) -> tuple[int, ...]:
    """How many channels a convolution of a tensor makes."""
    return MANY_CHANNELS if math.prod(x.shape) > 1 << 14 else CHANNELS


def conv(g: Grower, x: Tensor) -> Made:
    """A convolution: plain, grouped or depthwise."""
    if not 3 <= x.rank <= 5:
        return None
    attrs = _window(g, x.shape[2:], largest=5)
    channels = x.shape[1]
    groups = g.one_of([c for c in (1, 1, 2, 4, channels) if channels % c == 0])
    made = groups * (g.between(1, 2) if groups == channels > 1 else g.between(1, 5))
    if groups == 1:
        made = g.one_of(channels_of(x))
    return _finish_conv(g, x, attrs, groups, made)


def _finish_conv(g: Grower, x: Tensor, attrs: dict[str, Any], groups: int, made: int) -> Made:
    left = _extents(x.shape[2:], attrs)
    taps = x.shape[1] // groups
    for k in attrs["kernel_shape"]:
        taps *= k
    shape = (x.shape[0], made, *left)
    if not g.fits(shape) or taps * math.prod(shape) > MOST_PRODUCTS << 4:
        return None
    operands = [g.weight(made, x.shape[1] // groups, *attrs["kernel_shape"])]
    if g.maybe():
        operands.append(g.weight(made))
    return g("Conv", x, *operands, shape=shape, group=groups, **attrs)


def same_conv(g: Grower, x: Tensor) -> Made:
    """A 3 x 3 or 1 x 1 convolution that keeps the resolution, as most networks have."""
    if x.rank != 4:
        return None
    kernel = g.one_of((1, 3))
    attrs = {
        "kernel_shape": [kernel] * 2,
        "strides": [1, 1],
        "dilations": [1, 1],
        "pads": [kernel // 2] * 4,
    }
    depthwise = g.maybe() and g.maybe()
    made = x.shape[1] if depthwise or g.maybe() else g.one_of(channels_of(x))
    return _finish_conv(g, x, attrs, x.shape[1] if depthwise else 1, made)


def padded_conv(g: Grower, x: Tensor) -> Made:
    """A convolution that names its padding by `auto_pad`."""
    if x.rank != 4:
        return None
    kernel = [g.between(1, min(4, e)) for e in x.shape[2:]]
    strides = [g.between(1, 3) for _ in kernel]
    made, kind = g.one_of(CHANNELS), g.one_of(("SAME_UPPER", "SAME_LOWER", "VALID"))
    whole = [e if kind != "VALID" else e - k + 1 for e, k in zip(x.shape[2:], kernel, strict=True)]
    left = [-(-e // s) for e, s in zip(whole, strides, strict=True)]
    weight = g.weight(made, x.shape[1], *kernel)
    shape = (x.shape[0], made, *left)
    return g("Conv", x, weight, shape=shape, strides=strides, auto_pad=kind)


def conv_transpose(g: Grower, x: Tensor) -> Made:
    if not 3 <= x.rank <= 4:
        return None
    attrs = _window(g, x.shape[2:], largest=4)
    groups = g.one_of([c for c in (1, 1, 2, x.shape[1]) if x.shape[1] % c == 0])
    a_group = g.between(1, 5)
    extra = [g.between(0, s - 1) for s in attrs["strides"]]
    space = x.rank - 2
    left = []
    for i, extent in enumerate(x.shape[2:]):
        reach = attrs["dilations"][i] * (attrs["kernel_shape"][i] - 1) + 1
        cut = attrs["pads"][i] + attrs["pads"][i + space]
        left.append((extent - 1) * attrs["strides"][i] + extra[i] + reach - cut)
    operands = [g.weight(x.shape[1], a_group, *attrs["kernel_shape"])]
    if g.maybe():
        operands.append(g.weight(groups * a_group))
    return g(
        "ConvTranspose",
        x,
        *operands,
        shape=(x.shape[0], groups * a_group, *left),
        group=groups,
        output_padding=extra,
        **attrs,
    )


def pool(g: Grower, x: Tensor) -> Made:
    """A pool with every attribute that it may have."""
    if not 3 <= x.rank <= 5:
        return None
    kind = g.one_of(("MaxPool", "AveragePool", "LpPool"))
    spread = kind != "LpPool" and min(x.shape[2:]) > 6  # a tap of each window meets the data
    spread &= kind == "MaxPool" or g.ops.opset >= 19
    attrs = _window(g, x.shape[2:], largest=4, dilated=spread)
    attrs["ceil_mode"] = g.between(0, 1) if kind != "LpPool" else 0
    left = _extents(x.shape[2:], attrs)
    if kind == "LpPool" or (kind == "AveragePool" and g.ops.opset < 19):
        del attrs["dilations"]
    if kind == "AveragePool":
        attrs["count_include_pad"] = g.between(0, 1)
    if kind == "LpPool":
        del attrs["ceil_mode"]
        attrs["p"] = g.between(1, 2)
    return g(kind, x, shape=(*x.shape[:2], *left), **attrs)


def global_pool(g: Grower, x: Tensor) -> Made:
    """One value a channel."""
    if not 3 <= x.rank <= 5:
        return None
    kind = g.one_of(("GlobalAveragePool", "GlobalMaxPool"))
    return g(kind, x, shape=(*x.shape[:2], *[1] * (x.rank - 2)))


STEPS = (conv, conv, same_conv, same_conv, padded_conv, conv_transpose, pool, pool, global_pool)
