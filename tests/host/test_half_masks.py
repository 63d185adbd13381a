"""Masks far below the range of half: rows that are masked altogether come out even, as in float."""

import numpy as np
import pytest


def _mask(rows: int, keys: int) -> np.ndarray:
    mask = np.random.default_rng(0).random((rows, keys)) < 0.5
    mask[3] = True
    return mask


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_softmax(ops, device, preset):
    mask = _mask(6, 50)
    x = ops("MaxPool", ops.input(1, 8, 6, 50), kernel_shape=[1, 1])
    added = ops("Add", x, ops.const(np.where(mask, -1e9, 0.0)))
    chosen = ops("Where", ops.const(mask, np.bool_), ops.const(-3.4e38), x)
    ops.output(ops("Softmax", added, axis=-1), ops("Softmax", chosen, axis=-1))
    ops.check(device, preset, tolerance=1e-3)


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_attention(ops, device, preset):
    q, k, v = (ops("Tanh", ops.input(1, 2, 40, 32)) for _ in range(3))
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    masked = ops("Add", scores, ops.const(np.where(_mask(40, 40), -1e9, 0.0)))
    ops.output(ops("Relu", ops("MatMul", ops("Softmax", masked, axis=-1), v)))
    ops.check(device, preset, tolerance=1e-3)
    assert "attention" in ops.kernels
