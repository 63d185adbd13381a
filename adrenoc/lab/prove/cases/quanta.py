"""What is quantised: convolutions and products of bytes, by dot products where a GPU has them.

Scales are powers of two, weights even and biases odd, so that no sum lies halfway between two
quanta: every correct kernel gives the same integers.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from adrenoc.lab.prove.case import Case
from adrenoc.lab.prove.net import CONTRIB, STEPS, Net

_LARGEST = 3
"""Weights are twice whole numbers up to this."""
_HALF_RANGE = 127


def _round(net: Net, x: str, step: float, zero: int) -> str:
    """As converters write it: to bytes and back."""
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


def _conv(net: Net, *, shape: tuple[int, ...], out: int, side: int, **attrs: Any) -> str:
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


CASES: tuple[Case, ...] = (
    Case(
        family="conv2d",
        kernel="conv2d_dot",
        name="bytes, 3x3 with a border, 9 to 10 channels",
        build=partial(_conv, shape=(1, 9, 9, 13), out=10, side=3, pads=[1] * 4),
        exact=True,
    ),
    Case(
        family="conv2d",
        kernel="conv2d_dot",
        name="bytes, 1x1 of 35 channels by steps of two",
        build=partial(_conv, shape=(1, 35, 15, 11), out=21, side=1, strides=[2, 2]),
        exact=True,
    ),
    Case(
        family="conv2d",
        kernel="depthwise_dot",
        name="bytes, depthwise 3x3 of 18 channels",
        build=partial(_conv, shape=(1, 18, 9, 13), out=18, side=3, group=18, pads=[1] * 4),
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
