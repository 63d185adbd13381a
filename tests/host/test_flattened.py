"""Products of a flattened image, which read the image itself, against onnxruntime."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.run_op import Ops


@pytest.mark.parametrize(
    ("channels", "preset"), [(5, "fp32"), (8, "mixed"), (7, "buffer"), (6, "fp16")]
)
def test_products_read_the_image(device: Any, channels: int, preset: str) -> None:
    ops = Ops()
    image = ops("Relu", ops("Conv", ops.input(1, 3, 4, 5), ops.weight(channels, 3, 2, 3)))
    flat = ops("Flatten", image)
    wide, bias = ops.weight(channels * 9, 10), ops.weight(10)
    first = ops("Relu", ops("Gemm", flat, wide, bias))
    second = ops("MatMul", ops("Reshape", image, ops.ints(1, -1)), ops.weight(channels * 9, 3))
    ops.output(ops("MatMul", first, ops.weight(10, 4)), second)
    ops.check(device, preset)
    assert "reshape" not in ops.kernels


@pytest.mark.parametrize("preset", ["fp32"])
def test_what_else_reads_a_flattened_image_gets_it(device: Any, preset: str) -> None:
    ops = Ops()
    image = ops("Conv", ops.input(1, 3, 4, 5), ops.weight(6, 3, 2, 3))
    flat = ops("Flatten", image)
    ops.output(ops("MatMul", flat, ops.weight(54, 5)), ops("Softmax", flat, axis=1))
    several = ops("Flatten", ops("Conv", ops.input(2, 3, 4, 5), ops.weight(6, 3, 2, 3)))
    ops.output(ops("MatMul", several, ops.weight(54, 5)))
    ops.check(device, preset)
