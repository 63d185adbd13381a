"""Resizes of whole numbers equal onnxruntime's: what is cut off shows each last bit."""

import numpy as np
import pytest

from tests.host.run_op import Ops

_MODES = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
_SIZES = (((1, 1), (9, 11)), ((5, 7), (3, 4)), ((5, 7), (8, 9)), ((4, 4), (12, 20)))


def _equal(ops: Ops, device, preset: str) -> None:
    seen = ops.run(device, preset)
    wrong = {
        name: int((seen[name] != expected).sum())
        for name, expected in ops.reference().items()
        if not np.array_equal(seen[name], expected)
    }
    assert not wrong


def _whole(ops: Ops, dtype, *shape: int) -> str:
    """Any bytes, signed or not."""
    bounds = np.iinfo(dtype)
    x = ops.whole_input(*shape, count=2, dtype=dtype)
    low, high = max(bounds.min, -128), min(bounds.max, 255)
    ops.given(x, np.random.default_rng(5).integers(low, high + 1, shape).astype(dtype))
    return x


@pytest.mark.parametrize(
    ("preset", "dtype", "last"),
    (
        *(("fp32", np.int8, False), ("mixed", np.uint8, False), ("fp16", np.int32, False)),
        *(("fp32", dtype, True) for dtype in (np.int8, np.uint8, np.int32)),
    ),
)
def test_linear_resizes_of_whole_numbers_are_exact(device, preset, dtype, last):
    """With channels last onnxruntime computes bytes in fixed point, other integers in floats."""
    ops = Ops(opset=19)
    for mode in _MODES:
        for source, target in _SIZES:
            shapes = [(1, *size, 3) if last else (1, 2, *size) for size in (source, target)]
            attrs = {"mode": "linear", "coordinate_transformation_mode": mode}
            x = _whole(ops, dtype, *shapes[0])
            ops.output(ops("Resize", x, "", "", ops.ints(*shapes[1]), **attrs))
    _equal(ops, device, preset)


def test_nearest_elements_are_those_of_floats(device):
    """Where a sample lies on an element in thirds and ninths, the last bit says which it is."""
    ops = Ops(opset=19)
    x = ops.whole_input(1, 2, 5, 7, count=127, dtype=np.uint8)
    for mode in _MODES:
        for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
            attrs = {"coordinate_transformation_mode": mode, "nearest_mode": rounding}
            ops.output(ops("Resize", x, "", "", ops.ints(1, 2, 8, 9), **attrs))
    _equal(ops, device, "fp32")


@pytest.mark.parametrize(
    ("preset", "dtype", "last"),
    (("fp32", np.int8, False), ("mixed", np.uint8, False), ("fp32", np.uint8, True)),
)
def test_quanta_that_tie_fall_as_onnxruntimes_do(device, preset, dtype, last):
    """Half way between two quanta the last bit of a sum of floats decides, in 1.2 % of them."""
    ops = Ops(opset=17)
    zero = ops.const(np.iinfo(dtype).min // 2 + 3, dtype)
    for number, mode in enumerate(("asymmetric", "half_pixel", "align_corners")):
        scale = ops.const(0.02830894 * (1 + number))
        shape, target = (1, 4, 16, 16), (1, 4, 32, 32)
        if last:
            shape, target = (1, 16, 16, 4), (1, 32, 32, 4)
        floats = ops("DequantizeLinear", _whole(ops, dtype, *shape), scale, zero)
        attrs = {"mode": "linear", "coordinate_transformation_mode": mode}
        resized = ops("Resize", floats, "", "", ops.ints(*target), **attrs)
        ops.output(ops("QuantizeLinear", resized, scale, zero))
    _equal(ops, device, preset)


def test_other_resizes_of_whole_numbers_do_not_lose_their_shares(ops, device):
    """Along three axes there are matrices of fractions, which must not be cut to integers."""
    x = ops.whole_input(1, 2, 3, 4, 5, count=200, dtype=np.uint8)
    ops.output(ops("Resize", x, "", "", ops.ints(1, 2, 6, 8, 10), mode="linear"))
    (seen,) = ops.run(device, "fp32").values()
    (expected,) = ops.reference().values()
    assert np.abs(seen.astype(int) - expected.astype(int)).max() <= 1


def test_old_exports_take_the_middle_of_pixels_for_nearest_ones(device):
    """tf2onnx wrote `tf_half_pixel_for_nn` before opset 13."""
    ops = Ops(opset=11)
    x, empty = ops.input(1, 2, 5, 7), ops.const(())
    for sizes in ((1, 2, 10, 14), (1, 2, 8, 9), (1, 2, 3, 4)):
        for rounding in ("floor", "round_prefer_ceil"):
            mode = {"coordinate_transformation_mode": "tf_half_pixel_for_nn"}
            attrs = {**mode, "nearest_mode": rounding}
            ops.output(ops("Resize", x, empty, empty, ops.ints(*sizes), **attrs))
    _equal(ops, device, "fp32")
