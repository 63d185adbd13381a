"""Linear attention: products of matrices beyond half, of which ratios alone are read."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.host.run_op import Ops

HEADS, TOKENS, CHANNELS = 2, 80, 16
LARGEST = 60.0
"""Of queries and keys: 80 tokens of products are up to 1e7 with those of the queries."""


def _held(ops: Ops, low: float = -LARGEST) -> str:
    """Queries, keys or values, in a memory of their own."""
    x = ops.input(1, HEADS, TOKENS, CHANNELS, low=low, high=LARGEST)
    return ops("MaxPool", x, kernel_shape=[1, 1])


def _queries_and_keys(ops: Ops) -> tuple[str, str]:
    return ops("Relu", _held(ops)), ops("Relu", _held(ops))


def _with_ones(ops: Ops) -> str:
    """The denominator is a further column, as EfficientViT has it."""
    (q, k), v = _queries_and_keys(ops), _held(ops)
    ones = ops.const(np.ones((1, HEADS, TOKENS, 1)))
    context = ops("MatMul", ops("Transpose", k, perm=[0, 1, 3, 2]), ops("Concat", v, ones, axis=3))
    both = ops("MatMul", q, context)
    over, under = (
        ops("Slice", both, ops.ints(first), ops.ints(end), ops.ints(3))
        for first, end in ((0, CHANNELS), (CHANNELS, CHANNELS + 1))
    )
    return ops("Div", over, ops("Add", under, ops.const(1e-15)))


def _by_reciprocal(ops: Ops) -> str:
    """The sum of the keys is multiplied apart, and its reciprocal too."""
    (q, k), v = _queries_and_keys(ops), _held(ops)
    total = ops("ReduceSum", k, ops.ints(2))
    under = ops("MatMul", q, ops("Transpose", total, perm=[0, 1, 3, 2]))
    context = ops("MatMul", ops("Transpose", k, perm=[0, 1, 3, 2]), v)
    inverse = ops("Reciprocal", ops("Add", under, ops.const(1.0)))
    return ops("Mul", ops("MatMul", q, context), inverse)


def _by_einsum(ops: Ops) -> str:
    (q, k), v = _queries_and_keys(ops), _held(ops)
    context = ops("Einsum", k, v, equation="bhnd,bhne->bhde")
    over = ops("Einsum", q, context, equation="bhnd,bhde->bhne")
    under = ops("Einsum", q, ops("ReduceSum", k, ops.ints(2), keepdims=0), equation="bhnd,bhd->bhn")
    return ops("Div", over, ops("Unsqueeze", ops("Add", under, ops.const(1e-6)), ops.ints(3)))


def _of_products(ops: Ops) -> str:
    """Scores of every pair, divided by their sums: what softmax is without its exponentials."""
    q, k = _queries_and_keys(ops)
    v = _held(ops)
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    scores = ops("Mul", scores, scores)
    return ops("MatMul", ops("Div", scores, ops("ReduceSum", scores, ops.ints(3))), v)


KINDS: dict[str, Callable[[Ops], str]] = {
    "with_ones": _with_ones,
    "by_reciprocal": _by_reciprocal,
    "by_einsum": _by_einsum,
    "of_products": _of_products,
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_not_overflow(ops, device, kind):
    ops.output(ops("Mul", KINDS[kind](ops), ops.const(0.5)))
    ops.check(device, "mixed", tolerance=1e-2)
    assert any(d.taken == "float32" for d in ops.decisions)


def test_attention_with_a_softmax_stays_in_half(ops, device):
    q, k, v = (_held(ops, low=-1.0) for _ in range(3))
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    scaled = ops("Div", ops("Relu", scores), ops.const(np.full((1, HEADS, 1, 1), 400.0)))
    ops.output(ops("MatMul", ops("Softmax", scaled, axis=-1), v))
    ops.run(device, "mixed")
    assert not any("ratio" in d.reason for d in ops.decisions)
