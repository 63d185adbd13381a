"""Convolutions: borders, strides, channels that fill no texel, rows as wide as images may be.

Quantised ones and products of bytes become dot products where a GPU has them.  Scales are powers of
two, weights even and biases odd, so that no sum lies halfway between two quanta: every correct
kernel gives the same integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from adrenoc.lab.net import CONTRIB, STEPS, Net
from adrenoc.lab.prove.case import Build, Case

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


def _block(net: Net, *, narrow: int, wide: int, size: int, kernel: int, expands: bool) -> str:
    x = net("Relu", net.input(1, narrow, size, size))
    made = net("Relu", net.conv(x, narrow, wide, 1)) if expands else x
    pad = kernel // 2
    between = net("Relu", net.conv(made, wide, wide, kernel, group=wide, pads=[pad] * 4))
    return between if expands else net.conv(between, wide, narrow, 1)


def _winograd(channels: int, size: int) -> Callable[[Net], str]:
    return _plain((1, channels, size, size), channels, 3, pads=[1] * 4)


CONV_CASES: tuple[Case, ...] = (
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


_LARGEST = 3
"""Weights are twice whole numbers up to this."""
_HALF_RANGE = 127


def _round(net: Net, x: str, step: float, zero: int) -> str:
    """Round to bytes and back, as converters write it."""
    scale, offset = net.const(step), net.const(zero, np.uint8)
    return net("DequantizeLinear", net("QuantizeLinear", x, scale, offset), scale, offset)


def _weights(net: Net, shape: tuple[int, ...], step: float) -> str:
    whole = 2 * np.rint(net.values(*shape) * _LARGEST)
    zero = net.const(0, np.int8)
    return net("DequantizeLinear", net.const(whole, np.int8), net.const(step), zero)


def _bias(net: Net, count: int, step: float) -> str:
    whole = 2 * np.rint(net.values(count) * STEPS) + 1
    zero = net.const(0, np.int32)
    return net("DequantizeLinear", net.const(whole, np.int32), net.const(step), zero)


def _step_of_sums(terms: int, unit: float) -> float:
    """Return a power of two of units, so that sums of so many products mostly fit a byte."""
    likely = STEPS * _LARGEST * math.sqrt(terms)
    return unit * 2.0 ** max(2, math.ceil(math.log2(likely / _HALF_RANGE)))


def _quantised_conv(net: Net, *, shape: tuple[int, ...], out: int, side: int, **attrs: Any) -> str:
    of_group = shape[1] // attrs.get("group", 1)
    step, fine = 1 / STEPS, 1 / 32
    x = _round(net, net("Relu", net.input(*shape)), step, 13)
    weight = _weights(net, (out, of_group, side, side), fine)
    made = net("Conv", x, weight, _bias(net, out, step * fine), **attrs)
    return _round(net, made, _step_of_sums(of_group * side * side, step * fine), 121)


def _product(net: Net, *, rows: int, depth: int, columns: int) -> str:
    step, fine = 1 / STEPS, 1 / 32
    x = _round(net, net("Relu", net.input(rows, depth)), step, 128)
    made = net("Gemm", x, _weights(net, (depth, columns), fine), _bias(net, columns, step * fine))
    return _round(net, made, _step_of_sums(depth, step * fine), 130)


def _product_of_few_bits(net: Net, *, depth: int, bits: int, block: int, zeros: bool) -> str:
    """Return a product of many tokens, which bytes hold exactly: of each group the largest is
    127."""
    rows, columns, group = 251, 262, min(block, 32)
    whole = np.rint(net.values(rows, depth // group, group) * 127)
    whole[..., -1] = 127
    x = net("Neg", net.feed(whole.reshape(rows, depth) / 128))
    blocks = depth // block
    operands = [
        x,
        net.whole((columns, blocks, block * bits // 8), 256),
        net.weight(columns, blocks, around=2.0, terms=4 ** (bits - 1) * depth),
    ]
    if zeros:
        operands.append(net.whole((columns * -(-blocks * bits // 8),), 256))
    attrs = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": 1}
    return net("MatMulNBits", *operands, domain=CONTRIB, **attrs)


QUANTA_CASES: tuple[Case, ...] = (
    Case(
        family="conv2d",
        kernel="conv2d_dot",
        name="bytes, 3x3 with a border, 9 to 10 channels",
        build=partial(_quantised_conv, shape=(1, 9, 9, 13), out=10, side=3, pads=[1] * 4),
        exact=True,
    ),
    Case(
        family="conv2d",
        kernel="conv2d_dot",
        name="bytes, 1x1 of 35 channels by steps of two",
        build=partial(_quantised_conv, shape=(1, 35, 15, 11), out=21, side=1, strides=[2, 2]),
        exact=True,
    ),
    Case(
        family="conv2d",
        kernel="depthwise_dot",
        name="bytes, depthwise 3x3 of 18 channels",
        build=partial(
            _quantised_conv, shape=(1, 18, 9, 13), out=18, side=3, group=18, pads=[1] * 4
        ),
        exact=True,
    ),
    Case(
        family="matmul",
        kernel="dense_dot",
        name="bytes, 17 x 33 by 33 x 21",
        build=partial(_product, rows=17, depth=33, columns=21),
        exact=True,
    ),
    Case(
        family="n_bits_dot",
        kernel="n_bits_dot",
        name="rounded tokens, 251 x 512 by 512 x 262 in 4 bits",
        build=partial(_product_of_few_bits, depth=512, bits=4, block=32, zeros=False),
    ),
    Case(
        family="n_bits_dot",
        kernel="n_bits_dot",
        name="rounded tokens, 251 x 512 by 512 x 262 in 2 bits with zero points",
        build=partial(_product_of_few_bits, depth=512, bits=2, block=64, zeros=True),
    ),
    Case(
        family="n_bits_dot",
        kernel="n_bits_dot",
        name="rounded tokens, 251 x 512 by 512 x 262 in 8 bits with zero points",
        build=partial(_product_of_few_bits, depth=512, bits=8, block=32, zeros=True),
    ),
    Case(
        family="matmul",
        kernel="gemv_dot",
        name="bytes, one row of 130",
        build=partial(_product, rows=1, depth=130, columns=70),
        exact=True,
    ),
)


def _dense(net: Net, *, rows: int, depth: int, columns: int) -> str:
    x = net("Relu", net.input(rows, depth))
    product = net("MatMul", x, net.weight(depth, columns, terms=depth))
    return net("Add", product, net.weight(columns))


def _multiply_normed(net: Net) -> str:
    """Return a layer norm that two products compute, of numbers far from zero."""
    x = net("Add", net("Relu", net.input(41, 72)), net.const(8.0))
    gains, offsets = net.weight(72, around=1.0), net.weight(72)
    norm = net("LayerNormalization", x, gains, offsets, axis=-1, epsilon=1e-3)
    products = [net("MatMul", norm, net.weight(72, n, terms=72)) for n in (21, 40)]
    return net("Concat", *products, axis=1)


def _batched_matmul(net: Net) -> str:
    x, y = net("Relu", net.input(3, 9, 14)), net("Relu", net.input(3, 14, 7))
    return net("MatMul", x, y)


def _matmul_of_flattened(net: Net) -> str:
    image = net("Relu", net.conv(net.input(1, 3, 6, 7), 3, 10, (2, 3)))
    return net("MatMul", net("Flatten", image), net.weight(250, 12, terms=250))


def _excite(net: Net) -> str:
    """Return an image times what two products make of its mean."""
    x = net("Relu", net.input(1, 22, 7, 9))
    hidden = net("Relu", net.conv(net("GlobalAveragePool", x), 22, 6, 1))
    return net("Mul", x, net("Sigmoid", net.conv(hidden, 6, 22, 1)))


def _attention(net: Net, *, heads: int, tokens: int, width: int) -> str:
    dim = heads * width
    x = net("Relu", net.input(1, tokens, dim))
    parts = []
    for _ in range(3):
        part = net("MatMul", x, net.weight(dim, dim, terms=dim))
        part = net("Reshape", part, net.ints(1, tokens, heads, width))
        parts.append(net("Transpose", part, perm=[0, 2, 1, 3]))
    query, key, value = parts
    scores = net("MatMul", query, net("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net("Mul", scores, net.const(0.25))
    mixed = net("MatMul", net("Softmax", scores, axis=-1), value)
    joined = net("Transpose", mixed, perm=[0, 2, 1, 3])
    return net("Reshape", joined, net.ints(1, tokens, dim))


def _matmul_few_bits(net: Net, *, rows: int, depth: int, columns: int, bits: int = 4) -> str:
    block = 16
    blocks = -(-depth // block)
    x = net("Relu", net.input(rows, depth))
    packed = net.whole((columns, blocks, block * bits // 8), 256)
    scales = net.weight(columns, blocks, around=2.0, terms=4 ** (bits - 1) * depth)
    zeros = net.whole((columns * -(-blocks * bits // 8),), 256)
    attrs = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": 1}
    product = net("MatMulNBits", x, packed, scales, zeros, domain=CONTRIB, **attrs)
    return net("Add", product, net.weight(columns))


def _attend_to_cache(net: Net, *, tokens: int, rows: int, before: int) -> str:
    """Attention of some tokens over a cache of so many rows, in which there are some before."""
    heads, kept, size = 4, 2, 16
    qkv = net("Relu", net.input(1, tokens, (heads + 2 * kept) * size))
    past = [net("Relu", net.input(1, kept, rows, size)) for _ in range(2)]
    angles = np.arange(rows)[:, None] * 8.0 ** -np.arange(size // 2)
    tables = [net.const(function(angles)) for function in (np.cos, np.sin)]
    length = net.const([before + tokens - 1], np.int32)
    total = net.const(rows, np.int32)
    mixed, keys, values = net.several(
        "GroupQueryAttention",
        [qkv, "", "", *past, length, total, *tables],
        3,
        domain=CONTRIB,
        num_heads=heads,
        kv_num_heads=kept,
        do_rotary=1,
        scale=0.25,
    )
    ends = net.ints(before + tokens)
    kept_rows = [net("Slice", x, net.ints(0), ends, net.ints(2)) for x in (keys, values)]
    flat = [net("Reshape", x, net.ints(1, -1)) for x in (mixed, *kept_rows)]
    return net("Concat", *flat, axis=1)


PRODUCT_CASES: tuple[Case, ...] = (
    Case(
        family="matmul",
        name="17 x 33 by 33 x 21",
        build=partial(_dense, rows=17, depth=33, columns=21),
    ),
    Case(
        family="matmul", name="one row of 130", build=partial(_dense, rows=1, depth=130, columns=70)
    ),
    Case(family="matmul", name="41 x 72 with their norm", build=_multiply_normed, slack=2.0),
    Case(
        family="n_bits",
        name="one row of 136 in 4 bits",
        build=partial(_matmul_few_bits, rows=1, depth=136, columns=70),
    ),
    Case(
        family="n_bits",
        name="11 x 72 by 72 x 21 in 4 bits",
        build=partial(_matmul_few_bits, rows=11, depth=72, columns=21),
    ),
    Case(
        family="n_bits",
        name="3 x 80 by 80 x 21 in 8 bits",
        build=partial(_matmul_few_bits, rows=3, depth=80, columns=21, bits=8),
    ),
    Case(
        family="n_bits",
        name="one row of 96 in 2 bits",
        build=partial(_matmul_few_bits, rows=1, depth=96, columns=70, bits=2),
    ),
    Case(
        family="append_rows",
        name="two new rows",
        build=partial(_attend_to_cache, tokens=2, rows=40, before=37),
    ),
    Case(
        family="cached_attention",
        name="five tokens after 60",
        build=partial(_attend_to_cache, tokens=5, rows=72, before=60),
    ),
    Case(family="matmul", name="three of data with data", build=_batched_matmul),
    Case(family="matmul", name="of a flattened image", build=_matmul_of_flattened),
    Case(family="excite", name="a block of 22 channels, 6 between", build=_excite),
    Case(
        family="step_attention",
        name="one token after 130",
        build=partial(_attend_to_cache, tokens=1, rows=150, before=130),
    ),
    Case(
        family="join_parts",
        name="one token after 20",
        build=partial(_attend_to_cache, tokens=1, rows=40, before=20),
    ),
    Case(
        family="attention",
        name="17 tokens, 2 heads of 12",
        build=partial(_attention, heads=2, tokens=17, width=12),
        fusion="attention",
        slack=2.0,
    ),
)
