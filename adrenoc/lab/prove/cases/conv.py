"""Convolutions: borders, strides, channels that fill no texel, rows as wide as images may be.

Quantised ones and products of bytes become dot products where a GPU has them.  Scales are powers of
two, weights even and biases odd, so that no sum lies halfway between two quanta: every correct
kernel gives the same integers.
"""

import math
from typing import Any

import numpy as np

from adrenoc.lab.net import CONTRIB, STEPS, Net
from adrenoc.lab.prove.cases import Case, builder

_CONV = "conv2d"


@builder
def _conv(net: Net, /, shape: tuple[int, ...], out: int, kernel: Any, **attrs: Any) -> str:
    return net.conv(net("Relu", net.input(*shape)), shape[1], out, kernel, **attrs)


@builder
def _conv_transpose(net: Net, /, shape: tuple[int, ...], out: int, sides: Any, **attrs: Any) -> str:
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


@builder
def _block(net: Net, narrow: int, wide: int, size: int, kernel: int, *, expands: bool) -> str:
    x = net("Relu", net.input(1, narrow, size, size))
    made = net("Relu", net.conv(x, narrow, wide, 1)) if expands else x
    pad = kernel // 2
    between = net("Relu", net.conv(made, wide, wide, kernel, group=wide, pads=[pad] * 4))
    return between if expands else net.conv(between, wide, narrow, 1)


@builder
def _averaged(net: Net, narrow: int, wide: int, size: int) -> str:
    """Return what a depthwise convolution makes, times its mean; of more channels by a 1x1 one."""
    x = net("Relu", net.input(1, narrow, size, size))
    made = net("Relu", net.conv(x, narrow, wide, 1)) if wide > narrow else x
    image = net("Relu", net.conv(made, wide, wide, 3, group=wide, pads=[1] * 4))
    return net("Mul", image, net("GlobalAveragePool", image))


CONV_CASES: tuple[Case, ...] = (
    Case(_CONV, "1x1, 5 to 7 channels", _conv((1, 5, 9, 13), 7, 1)),
    Case(_CONV, "3x3 with a border", _conv((1, 6, 9, 13), 10, 3, pads=[1, 1, 1, 1])),
    Case(_CONV, "3x3 in one row", _conv((1, 6, 1, 17), 10, 3, pads=[1, 1, 1, 1])),
    Case(
        _CONV,
        "3x3 by steps of two, a batch of two",
        _conv((2, 8, 15, 11), 12, 3, pads=[1, 1, 1, 1], strides=[2, 2]),
    ),
    Case(
        _CONV,
        "3x3 spread, borders that differ",
        _conv((1, 4, 11, 10), 8, 3, pads=[2, 1, 3, 0], dilations=[2, 2]),
    ),
    Case(_CONV, "7x7 of many channels in few pixels", _conv((1, 33, 7, 7), 35, 7, pads=[3] * 4)),
    Case(_CONV, "1x1 of 64 channels, by the constant file", _conv((1, 64, 28, 28), 64, 1)),
    Case(_CONV, "1x1, 16384 wide", _conv((1, 5, 1, 16384), 7, 1)),
    Case(_CONV, "one channel to one", _conv((1, 1, 8, 8), 1, 3)),
    Case(_CONV, "two groups", _conv((1, 8, 9, 8), 12, 3, group=2, pads=[1] * 4)),
    Case(
        _CONV, "depthwise 3x3 of 18 channels", _conv((1, 18, 9, 13), 18, 3, group=18, pads=[1] * 4)
    ),
    Case(
        _CONV,
        "depthwise 5x5 of 7 channels by steps of two",
        _conv((1, 7, 12, 9), 7, 5, group=7, pads=[2] * 4, strides=[2, 2]),
    ),
    Case(_CONV, "with a sum after it", _residual),
    Case(_CONV, "of the model's own image", _image, fusion="image"),
    Case(_CONV, "with maps before it", _prologue, fusion="prologue"),
    Case(_CONV, "depthwise 3x3 with its mean", _averaged(30, 30, 28), fusion="mean"),
    Case(
        "expand_depthwise_conv2d",
        "1x1, then 3x3 with its mean",
        _averaged(24, 144, 28),
        fusion="mean",
    ),
    Case("separable_conv2d", "3x3, then 1x1", _block(24, 24, 56, 3, expands=False), fusion="pair"),
    Case(
        "expand_depthwise_conv2d",
        "1x1, then 3x3",
        _block(24, 144, 28, 3, expands=True),
        fusion="pair",
    ),
    Case(
        "winograd_conv",
        "64 channels",
        _conv((1, 64, 56, 56), 64, 3, pads=[1] * 4),
        fusion="winograd",
        slack=4.0,
    ),
    Case(
        "winograd_multiply",
        "192 channels, in three kernels",
        _conv((1, 192, 56, 56), 192, 3, pads=[1] * 4),
        fusion="winograd",
        slack=4.0,
    ),
    Case(
        "fold", "3x3x3, which no family covers", _conv((1, 3, 4, 5, 6), 4, (3, 3, 3), pads=[1] * 6)
    ),
    Case("conv1d", "5 of 40 channels", _conv((1, 40, 51), 9, (5,), pads=[2, 2])),
    Case("conv1d", "depthwise", _conv((1, 10, 33), 10, (9,), pads=[4, 4], group=10)),
    Case(
        "conv2d_transpose",
        "4x4 by steps of two",
        _conv_transpose((1, 6, 7, 5), 5, (4, 4), strides=[2, 2], pads=[1] * 4),
    ),
    Case(
        "conv1d_transpose", "3 by steps of two", _conv_transpose((1, 6, 11), 7, (3,), strides=[2])
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


@builder
def _quantised_conv(net: Net, /, shape: tuple[int, ...], out: int, side: int, **attrs: Any) -> str:
    of_group = shape[1] // attrs.get("group", 1)
    step, fine = 1 / STEPS, 1 / 32
    x = _round(net, net("Relu", net.input(*shape)), step, 13)
    weight = _weights(net, (out, of_group, side, side), fine)
    made = net("Conv", x, weight, _bias(net, out, step * fine), **attrs)
    return _round(net, made, _step_of_sums(of_group * side * side, step * fine), 121)


@builder
def _product(net: Net, rows: int, depth: int, columns: int) -> str:
    step, fine = 1 / STEPS, 1 / 32
    x = _round(net, net("Relu", net.input(rows, depth)), step, 128)
    made = net("Gemm", x, _weights(net, (depth, columns), fine), _bias(net, columns, step * fine))
    return _round(net, made, _step_of_sums(depth, step * fine), 130)


@builder
def _product_of_few_bits(net: Net, depth: int, bits: int, block: int, *, zeros: bool) -> str:
    """Return a product of many tokens that bytes hold exactly: each group's largest is 127."""
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
        "conv2d",
        "bytes, 3x3 with a border, 9 to 10 channels",
        _quantised_conv((1, 9, 9, 13), 10, 3, pads=[1] * 4),
        kernel="conv2d_dot",
        exact=True,
    ),
    Case(
        "conv2d",
        "bytes, 1x1 of 35 channels by steps of two",
        _quantised_conv((1, 35, 15, 11), 21, 1, strides=[2, 2]),
        kernel="conv2d_dot",
        exact=True,
    ),
    Case(
        "conv2d",
        "bytes, depthwise 3x3 of 18 channels",
        _quantised_conv((1, 18, 9, 13), 18, 3, group=18, pads=[1] * 4),
        kernel="depthwise_dot",
        exact=True,
    ),
    Case(
        "matmul", "bytes, 17 x 33 by 33 x 21", _product(17, 33, 21), kernel="dense_dot", exact=True
    ),
    Case(
        "n_bits_dot",
        "rounded tokens, 251 x 512 by 512 x 262 in 4 bits",
        _product_of_few_bits(512, 4, 32, zeros=False),
        kernel="n_bits_dot",
    ),
    Case(
        "n_bits_dot",
        "rounded tokens, 251 x 512 by 512 x 262 in 2 bits with zero points",
        _product_of_few_bits(512, 2, 64, zeros=True),
        kernel="n_bits_dot",
    ),
    Case(
        "n_bits_dot",
        "rounded tokens, 251 x 512 by 512 x 262 in 8 bits with zero points",
        _product_of_few_bits(512, 8, 32, zeros=True),
        kernel="n_bits_dot",
    ),
    Case("matmul", "bytes, one row of 130", _product(1, 130, 70), kernel="gemv_dot", exact=True),
)


@builder
def _dense(net: Net, rows: int, depth: int, columns: int) -> str:
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


@builder
def _attention(net: Net, heads: int, tokens: int, width: int) -> str:
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


@builder
def _matmul_few_bits(net: Net, rows: int, depth: int, columns: int, bits: int = 4) -> str:
    block = 16
    blocks = -(-depth // block)
    x = net("Relu", net.input(rows, depth))
    packed = net.whole((columns, blocks, block * bits // 8), 256)
    scales = net.weight(columns, blocks, around=2.0, terms=4 ** (bits - 1) * depth)
    zeros = net.whole((columns * -(-blocks * bits // 8),), 256)
    attrs = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": 1}
    product = net("MatMulNBits", x, packed, scales, zeros, domain=CONTRIB, **attrs)
    return net("Add", product, net.weight(columns))


@builder
def _attend_to_cache(net: Net, tokens: int, rows: int, before: int) -> str:
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
    Case("matmul", "17 x 33 by 33 x 21", _dense(17, 33, 21)),
    Case("matmul", "one row of 130", _dense(1, 130, 70)),
    Case("matmul", "41 x 72 with their norm", _multiply_normed, slack=2.0),
    Case("n_bits", "one row of 136 in 4 bits", _matmul_few_bits(1, 136, 70)),
    Case("n_bits", "11 x 72 by 72 x 21 in 4 bits", _matmul_few_bits(11, 72, 21)),
    Case("n_bits", "3 x 80 by 80 x 21 in 8 bits", _matmul_few_bits(3, 80, 21, 8)),
    Case("n_bits", "one row of 96 in 2 bits", _matmul_few_bits(1, 96, 70, 2)),
    Case("append_rows", "two new rows", _attend_to_cache(2, 40, 37)),
    Case("cached_attention", "five tokens after 60", _attend_to_cache(5, 72, 60)),
    Case("matmul", "three of data with data", _batched_matmul),
    Case("matmul", "of a flattened image", _matmul_of_flattened),
    Case("excite", "a block of 22 channels, 6 between", _excite),
    Case("step_attention", "one token after 130", _attend_to_cache(1, 150, 130)),
    Case("join_parts", "one token after 20", _attend_to_cache(1, 40, 20)),
    Case(
        "attention",
        "17 tokens, 2 heads of 12",
        _attention(2, 17, 12),
        fusion="attention",
        slack=2.0,
    ),
)
