"""What is NaN stays NaN: as onnxruntime has it, and where its answer hangs on the order in which a
CPU walks (pools, extremes of axes) as numpy has it."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.host.run_op import Ops

pytestmark = pytest.mark.operator

SHAPE = (1, 7, 6, 5)
MAPS: dict[str, Callable[[Ops, str], str]] = {
    **{
        kind: lambda ops, x, kind=kind: ops(kind, x)
        for kind in ("Relu", "Elu", "Celu", "Selu", "HardSigmoid", "HardSwish", "Sign", "Softplus")
    },
    "ThresholdedRelu": lambda ops, x: ops("ThresholdedRelu", x, alpha=0.5),
    "Clip": lambda ops, x: ops("Clip", x, ops.const(-1.0), ops.const(1.0)),
    "Clip to an end": lambda ops, x: ops("Clip", x, ops.const(0.0), ops.const(6.0)),
    "Max of a number": lambda ops, x: ops("Max", ops.const(0.3), x),
    "Min of a number": lambda ops, x: ops("Min", x, ops.const(0.3)),
    "Max of constants": lambda ops, x: ops("Max", x, ops.const(_values(3))),
    "Min of constants": lambda ops, x: ops("Min", ops.const(_values(3)), x),
    "Max of maps": lambda ops, x: ops("Max", x, ops("Sin", x), ops("Neg", x)),
    "Equal": lambda ops, x: ops("Where", ops("Equal", x, x), ops.const(1.0), ops.const(0.0)),
    "behind a product": lambda ops, x: ops(
        "Relu", ops("Conv", x, ops.weight(8, 7, 1, 1), ops.weight(8))
    ),
    "behind a depthwise product": lambda ops, x: ops(
        "Clip", ops("Conv", x, ops.weight(7, 1, 3, 3), group=7), ops.const(0.0), ops.const(6.0)
    ),
    "of the last axis": lambda ops, x: ops("LayerNormalization", x, ops.weight(5), ops.weight(5)),
    "log of sums": lambda ops, x: ops("ReduceLogSumExp", x, ops.ints(2)),
}


def _values(seed: int = 0) -> np.ndarray:
    """Numbers of which a few are NaN, of either sign, or infinite."""
    values = 2.0 * np.random.default_rng(seed).standard_normal(SHAPE)
    values[0, :, 1, 2] = np.nan
    values[0, 2, 4] = -np.inf
    values[0, 3, 3, 0], values[0, 4, 0, 4], values[0, 5, 2, 3] = np.inf, np.nan, -np.nan
    return values.astype(np.float32)


def _run(
    device, preset: str, build: Callable[[Ops, str], list[str]]
) -> tuple[dict[str, np.ndarray], Ops]:
    ops = Ops(opset=20)
    x = ops.input(*SHAPE)
    ops.output(*build(ops, x))
    ops.given(x, _values())
    ops.asked["keep_float32"] = True
    return ops.run(device, preset), ops


def test_of_maps(device, preset):
    seen, ops = _run(device, preset, lambda ops, x: [make(ops, x) for make in MAPS.values()])
    for kind, (name, value) in zip(MAPS, seen.items(), strict=True):
        right = ops.reference()[name]
        np.testing.assert_allclose(value, right, rtol=2e-2, atol=2e-2, err_msg=kind)


@pytest.mark.parametrize("preset", ["fp32", "mixed"])
def test_of_extremes(device, preset):
    """A pool or an axis with one NaN among its numbers is NaN."""

    def build(ops: Ops, x: str) -> list[str]:
        axes = [ops(kind, x, ops.ints(axis)) for axis in (1, 2, 3) for kind in kinds]
        return [*axes, ops("MaxPool", x, kernel_shape=[2, 2]), ops("GlobalMaxPool", x)]

    kinds = ("ReduceMax", "ReduceMin")
    seen, _ = _run(device, preset, build)
    x = _values()
    axes = [f(x, axis=axis, keepdims=True) for axis in (1, 2, 3) for f in (np.max, np.min)]
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(2, 3)).max(axis=(4, 5))
    right = [*axes, windows, x.max(axis=(2, 3), keepdims=True)]
    for value, expected in zip(seen.values(), right, strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-3)


@pytest.mark.parametrize("last", [0, 1])
def test_places_pass_over_nan_that_is_not_first(device, last):
    seen, ops = _run(
        device,
        "fp32",
        lambda ops, x: [
            ops(kind, x, axis=axis, select_last_index=last)
            for axis in (1, 2, 3)
            for kind in ("ArgMax", "ArgMin")
        ],
    )
    for name, value in seen.items():
        np.testing.assert_array_equal(value, ops.reference()[name])


def test_places_of_windows_lie_within(device):
    ops = Ops(opset=20)
    x = ops.input(*SHAPE)
    value, place = ops.several("MaxPool", [x], ["value", "place"], kernel_shape=[2, 2])
    ops.output(value, place)
    ops.given(x, values := _values())
    seen = ops.run(device, "fp32")
    np.testing.assert_array_equal(values.ravel()[seen[place]], seen[value])
