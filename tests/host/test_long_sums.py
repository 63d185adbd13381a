"""Sums of tens of thousands of like numbers, and coordinates: what is no half."""

import numpy as np
import pytest

from adrenoc.kernels.families.reduce import operator, reduce
from adrenoc.kernels.families.shared.rows import RowTile
from tests.host.run_op import Ops, relative_error

NUMBER = np.float32(0.1)
TOLERANCE = 1e-5
OF_PRODUCTS = 3e-5


def like_numbers(ops: Ops, *shape: int) -> str:
    x = ops.input(*shape)
    ops.given(x, np.full(shape, NUMBER))
    return x


def off_by(ops: Ops, device, value: str, exact: np.ndarray | float, target: str = "host") -> float:
    ops.output(value)
    seen = ops.run(device, "fp32", target=target)[value]
    return relative_error(seen, np.asarray(exact, np.float64))


@pytest.fixture
def alone(monkeypatch) -> None:
    """Each thread makes its line without help, as where lines are very many."""
    tile = RowTile(work_group=(8, 1, 1))
    for rule in (reduce, operator):
        monkeypatch.setattr(rule, "pick_row_tile", lambda *_: tile)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 3, 2, 50021), (3,)),
        ((1, 3, 50021, 2), (2,)),
        ((1, 50021, 1, 2), (1,)),
        ((50021, 3), (0,)),
        ((3, 5, 113, 117), (0, 1, 2, 3)),
    ],
)
def test_sums_by_one_thread(ops, device, shape, axes):
    total = ops("ReduceSum", like_numbers(ops, *shape), ops.ints(*axes), keepdims=1)
    count = np.prod([shape[a] for a in axes])
    assert off_by(ops, device, total, np.float64(NUMBER) * count) <= TOLERANCE


@pytest.mark.usefixtures("alone")
def test_softmax_by_one_thread(ops, device):
    shares = ops("Softmax", like_numbers(ops, 1, 2, 50021), axis=2)
    assert off_by(ops, device, shares, 1 / 50021) <= TOLERANCE


@pytest.mark.usefixtures("alone")
def test_norms_by_one_thread(device):
    """Numbers of one sign about the origin: the first, 1, is the least."""
    ops, shape = Ops(), (1, 4, 200, 201)
    x = ops.input(*shape)
    values = np.random.default_rng(0).uniform(1.01, 1.02, shape).astype(np.float32)
    values[..., 0, 0] = 1.0
    ops.given(x, values)
    normed = ops(
        "InstanceNormalization", x, ops.const(np.ones(4)), ops.const(np.zeros(4)), epsilon=1e-9
    )
    data = values.astype(np.float64)
    mean, spread = data.mean((2, 3), keepdims=True), data.std((2, 3), keepdims=True)
    exact = (data - mean) / np.sqrt(spread**2 + 1e-9)
    assert off_by(ops, device, normed, exact) <= TOLERANCE


def test_pools(ops, device):
    mean = ops("AveragePool", like_numbers(ops, 1, 3, 230, 202), kernel_shape=[229, 201])
    assert off_by(ops, device, mean, NUMBER) <= TOLERANCE


@pytest.mark.parametrize("target", ["host", "host:610"])
@pytest.mark.parametrize("rows", [2, 200])
def test_products_with_constants(ops, device, rows, target):
    product = ops("MatMul", like_numbers(ops, rows, 50021), ops.const(np.full((50021, 8), NUMBER)))
    exact = np.float64(NUMBER) ** 2 * 50021
    assert off_by(ops, device, product, exact, target) <= OF_PRODUCTS


def test_products_of_two_activations(ops, device):
    x = like_numbers(ops, 1, 9, 50021)
    product = ops("MatMul", x, ops("Transpose", x, perm=[0, 2, 1]))
    assert off_by(ops, device, product, np.float64(NUMBER) ** 2 * 50021) <= OF_PRODUCTS


@pytest.mark.parametrize("target", ["host", "host:610"])
def test_convolutions(ops, device, target):
    weight = ops.const(np.full((8, 2000, 3, 3), NUMBER))
    conv = ops("Conv", like_numbers(ops, 1, 2000, 20, 20), weight)
    exact = np.float64(NUMBER) ** 2 * 2000 * 9
    assert off_by(ops, device, conv, exact, target) <= OF_PRODUCTS


_WIDTH, _HEIGHT = 1024, 6


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_grids_of_wide_images(ops, device, preset):
    """Pixels plus a flow, scaled and joined, as networks warp one image onto another."""
    image = ops.input(1, 3, _HEIGHT, _WIDTH)
    flow = ops("MaxPool", ops.input(1, 2, _HEIGHT, _WIDTH), kernel_shape=[1, 1])
    pixels = np.stack(np.meshgrid(np.arange(_WIDTH), np.arange(_HEIGHT)))[None]
    place = ops("Add", flow, ops.const(pixels.astype(np.float32)))
    last = np.array([_WIDTH - 1, _HEIGHT - 1], np.float32).reshape(1, 2, 1, 1)
    scaled = ops("Sub", ops("Mul", place, ops.const(2 / last)), ops.const(1.0))
    x, y = (
        ops("Slice", scaled, *(ops.const([v], np.int64) for v in (axis, axis + 1, 1)))
        for axis in (0, 1)
    )
    grid = ops("Transpose", ops("Concat", x, y, axis=1), perm=[0, 2, 3, 1])
    ops.output(ops("GridSample", image, grid, align_corners=1, padding_mode="border"))
    ops.check(device, preset, tolerance=2e-3)
    assert any(d.taken == "float32" for d in ops.decisions)


def test_indices_and_plain_windows_cost_nothing(ops, device):
    """Integers and the places that a kernel works out itself are no tensors of floats."""
    x = ops("MaxPool", ops.input(1, 8, 5, 7), kernel_shape=[1, 1])
    taken = ops("Gather", x, ops.const([3, 0, 2], np.int64), axis=3)
    ops.output(ops("Relu", ops("Resize", taken, "", ops.const([1.0, 1.0, 2.0, 2.0]))))
    ops.check(device, "mixed")
    assert not any("reads another tensor where it points" in d.reason for d in ops.decisions)
