"""Quantised models in forms that exporters seldom write compute what onnxruntime computes."""

import numpy as np
import pytest
from onnx import helper

from adrenoc.base.decision import Decision
from tests.ir.import_and_run import check
from tests.models import graph, write

RNG = np.random.default_rng(0)
node = helper.make_node


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


@pytest.mark.parametrize("constant", [True, False])
def test_zeros_are_quantised_by_a_scale_of_one(tmp_path, constant):
    """Their range is nothing to divide by; onnxruntime says so."""
    data = "zeros" if constant else "none"
    nodes = [
        node("Mul", ["x", "nought"], ["none"]),
        node("DynamicQuantizeLinear", [data], ["q", "scale", "zero"]),
        node("Add", ["x", "scale"], ["y"]),
    ]
    held = {"zeros": np.zeros((2, 4), np.float32), "nought": number(0.0)}
    check(write(graph(nodes, {"x": (2, 4)}, ["q", "scale", "zero", "y"], held), tmp_path))


def test_a_scale_of_zero_quantises_to_the_ends(tmp_path):
    nodes = "q = QuantizeLinear(x, none, zero) y = DequantizeLinear(q, scale, zero)"
    held = {"none": number(0.0), "scale": number(0.1), "zero": np.array(7, np.uint8)}
    check(write(graph(nodes, {"x": (2, 4)}, ["y"], held), tmp_path))


def product(shape: tuple[int, ...], axis: int) -> tuple[list, dict[str, np.ndarray]]:
    """Quantised tensors' product, with a scale of the weight for each index along an axis."""
    channels = shape[axis]
    nodes = [
        node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["q"]),
        node("DequantizeLinear", ["q", "x_scale", "x_zero"], ["d"]),
        node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["f"], axis=axis),
        node("MatMul", ["d", "f"], ["m"]),
        node("QuantizeLinear", ["m", "y_scale", "x_zero"], ["r"]),
        node("DequantizeLinear", ["r", "y_scale", "x_zero"], ["y"]),
    ]
    held = {
        "w": RNG.integers(-100, 100, shape, dtype=np.int8),
        "w_scale": RNG.uniform(0.01, 0.02, channels).astype(np.float32),
        "w_zero": np.zeros(channels, np.int8),
        "x_scale": number(0.02),
        "x_zero": np.array(3, np.int8),
        "y_scale": number(0.2),
    }
    return nodes, held


@pytest.mark.parametrize(
    ("shape", "axis", "fused"),
    [
        ((8, 6), 1, True),
        ((8, 6), 0, False),
        ((2, 8, 6), 0, False),
        ((2, 8, 6), 1, False),
        ((2, 8, 6), 2, True),
        ((2, 8, 6), -1, True),
        ((8,), 0, False),
    ],
)
def test_a_weight_has_scales_along_any_axis(tmp_path, shape, axis, fused):
    """Those of its columns become a factor of sums; others are no factor of any sum."""
    nodes, held = product(shape, axis)
    imported, _ = check(write(graph(nodes, {"x": (2, 5, 8)}, ["y"], held), tmp_path))
    floats = [d for d in imported.decisions if "quantised tensors computed on floats" in d.taken]
    integers = [d for d in imported.decisions if "computed on the integers" in d.taken]
    assert bool(integers) == fused
    assert floats == ([] if fused else [_left(axis)])


def _left(axis: int) -> Decision:
    return Decision(
        subject="m",
        taken="MatMul between quantised tensors computed on floats",
        reason=f"the scales of its weight lie along axis {axis}",
    )
