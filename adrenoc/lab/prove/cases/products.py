"""Products of matrices, and attention."""

from __future__ import annotations

from functools import partial

import numpy as np

from adrenoc.lab.prove.case import Case
from adrenoc.lab.prove.net import CONTRIB, Net


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


CASES: tuple[Case, ...] = (
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
    Case(
        family="matmul", name="of a flattened image", build=_matmul_of_flattened, fusion="flattened"
    ),
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
