"""Differences of which halves leave nothing: variances and covariances by means of products."""

import numpy as np
import pytest

from tests.host.run_op import Ops


def _mean(ops: Ops, x: str) -> str:
    return ops("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=0)


def _blurred(ops: Ops, x: str) -> str:
    bell = np.outer([1, 2, 1], [1, 2, 1]).reshape(1, 1, 3, 3) / 16
    return ops("Conv", x, ops.const(np.repeat(bell, 2, 0)), group=2, pads=[1] * 4)


def _image(ops: Ops) -> str:
    x = ops.input(1, 2, 12, 14, low=0.6, high=0.7)
    return ops("MaxPool", x, kernel_shape=[1, 1])


def _guided_filter(ops: Ops) -> str:
    x, y = _image(ops), _image(ops)
    mx, my = _mean(ops, x), _mean(ops, y)
    covariance = ops("Sub", _mean(ops, ops("Mul", x, y)), ops("Mul", mx, my))
    variance = ops("Sub", _mean(ops, ops("Mul", x, x)), ops("Mul", mx, mx))
    a = ops("Div", covariance, ops("Add", variance, ops.const(1e-5)))
    return ops("Add", ops("Mul", a, x), ops("Sub", my, ops("Mul", a, mx)))


def _similarity(ops: Ops) -> str:
    """The structure term of SSIM, with a Gaussian window as a depthwise convolution."""
    x, y = _image(ops), _image(ops)
    mx, my = _blurred(ops, x), _blurred(ops, y)
    sxy = ops("Sub", _blurred(ops, ops("Mul", x, y)), ops("Mul", mx, my))
    sxx = ops("Sub", _blurred(ops, ops("Mul", x, x)), ops("Mul", mx, mx))
    syy = ops("Sub", _blurred(ops, ops("Mul", y, y)), ops("Mul", my, my))
    above = ops("Add", ops("Mul", sxy, ops.const(2.0)), ops.const(9e-4))
    return ops("Div", above, ops("Add", ops("Add", sxx, syy), ops.const(9e-4)))


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_differences(ops, device, preset):
    ops.output(_guided_filter(ops), _similarity(ops))
    ops.check(device, preset, tolerance=2e-2)
