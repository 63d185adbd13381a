"""Networks with one planted weakness each, for the accuracy doctor."""

from pathlib import Path

import numpy as np
import onnx

from tests.host.run_op import Ops


def save(ops: Ops, folder: Path) -> Path:
    path = folder / "planted.onnx"
    onnx.save(ops._model(), path)
    return path


def overflow() -> Ops:
    """conv by 5e4, pool, conv by 2e-3: what lies between is beyond half."""
    ops = Ops()
    x = ops("Relu", ops.input(1, 8, 9, 7))
    first = ops("Conv", ops("MaxPool", x, kernel_shape=[1, 1]), ops.weight(8, 8, 1, 1))
    big = ops("Conv", first, ops.const(np.full((8, 8, 1, 1), 5e4)))
    pooled = ops("AveragePool", big, kernel_shape=[3, 3])
    back = ops("Conv", pooled, ops.const(np.full((4, 8, 1, 1), 2e-3)))
    ops.output(ops("Relu", ops("MaxPool", back, kernel_shape=[2, 2])))
    return ops


def tiny_epsilon() -> Ops:
    """Two convolutions by 1e-4 and two by 1e4: what lies between, half does not have."""
    ops = Ops()
    y = ops("MaxPool", ops("Relu", ops.input(1, 4, 6, 5)), kernel_shape=[1, 1])
    for factor in (1e-4, 1e-4, 1e4, 1e4):
        y = ops("Conv", y, ops.const(np.full((4, 4, 1, 1), factor)))
        y = ops("MaxPool", y, kernel_shape=[1, 1])
    ops.output(y)
    return ops


def scaled_by_1e8() -> Ops:
    """A tensor of numbers about 1e-8, which the compiler itself keeps in float32."""
    ops = Ops()
    x = ops("Relu", ops.input(1, 4, 6, 5))
    tiny = ops("Mul", ops("MaxPool", x, kernel_shape=[1, 1]), ops.const(1e-8))
    y = ops("Mul", ops("MaxPool", tiny, kernel_shape=[1, 1]), ops.const(1e8))
    ops.output(ops("AveragePool", y, kernel_shape=[2, 2]))
    return ops


def diffuse() -> Ops:
    """Convolutions in a row: each rounds a little."""
    ops = Ops()
    y = ops.input(1, 8, 6, 6)
    for _ in range(3):
        y = ops("Relu", ops("Conv", y, ops.weight(8, 8, 1, 1)))
    ops.output(ops("Conv", y, ops.weight(4, 8, 1, 1)))
    return ops


def product_of_inputs() -> Ops:
    """A product of two tensors: within half for small inputs, beyond it for large ones."""
    ops = Ops()
    x = ops.input(1, 4, 6, 5)
    other = ops("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4)
    y = ops("MaxPool", ops("Mul", x, other), kernel_shape=[2, 2])
    ops.output(ops("Conv", ops("MaxPool", y, kernel_shape=[1, 1]), ops.weight(4, 4, 1, 1)))
    return ops


def long_reduction() -> Ops:
    """A product by constants over 4096 terms of one sign, of so many rows that it is in half."""
    ops = Ops()
    a = ops("Softplus", ops.input(1, 96, 4096, low=0.0, high=1.0))
    held = ops("MaxPool", a, kernel_shape=[1])
    ops.output(ops("Relu", ops("MatMul", held, ops.weight(4096, 8, around=1.0))))
    return ops


def cancellation() -> Ops:
    """The difference of two convolutions that are almost the same."""
    ops = Ops()
    held = ops("MaxPool", ops.input(1, 8, 9, 7, low=0.5, high=1.0), kernel_shape=[1, 1])
    weight = np.random.default_rng(1).uniform(0.5, 1.0, (8, 8, 1, 1))
    nudge = np.random.default_rng(2).uniform(-1e-3, 1e-3, (8, 8, 1, 1))
    a = ops("MaxPool", ops("Conv", held, ops.const(weight * 64)), kernel_shape=[1, 1])
    b = ops("MaxPool", ops("Conv", held, ops.const((weight + nudge) * 64)), kernel_shape=[1, 1])
    ops.output(ops("MaxPool", ops("Sub", a, b), kernel_shape=[1, 1]))
    return ops


def sharp_softmax() -> Ops:
    """Logits of up to several hundred, near each other."""
    ops = Ops()
    held = ops("MaxPool", ops.input(1, 16, 4, 4, low=0.0, high=1.0), kernel_shape=[1, 1])
    weight = np.random.default_rng(3).uniform(16.0, 18.0, (10, 16, 1, 1))
    logits = ops("Conv", held, ops.const(weight))
    ops.output(ops("Softmax", logits, axis=1))
    return ops
