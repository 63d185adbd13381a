"""Squares, long sums and coordinates: what no half holds, of large numbers and of small ones."""

import numpy as np
import pytest

from adrenoc.kernels.families.reduce import operator, reduce
from adrenoc.kernels.families.shared.rows import RowTile
from tests.host.run_op import Ops, relative_error

OPERANDS = {
    "taps": np.full((8, 1, 3, 3), 1 / 9),
    "flat": [8, 30],
    **{"first": [0], "one": [1], "channel": [1], "space": [2, 3], "last": [-1]},
    **{"two": 2.0, "three": 3.0, "third": 1 / 3},
    **{"e5": 1e-5, "e6": 1e-6, "e9": 1e-9, "e12": 1e-12},
}
WEIGHTS = {"g": (8,), "h": (8,), "g2": (2,), "h2": (2,), "g5": (5,), "h5": (5,)}
AROUND = "<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"
HALVED = "<kernel_shape = [2, 2]>"
NORMS = {
    # Local contrast: a weighted sum of squares around each place.
    "blurred": ("s = Mul(x, x) m = Conv <group = 8, pads = [1, 1, 1, 1]>(s, taps) y = Sqrt(m)"),
    # The features of a style, by its largest.
    "correlations": (
        "r = Reshape(x, flat) t = Transpose <perm = [1, 0]>(r) p = MatMul(r, t) m = ReduceMax(p) "
        "y = Div(p, m)"
    ),
    # Of each place and the largest around it.
    "cosine": (
        f"l = MaxPool {AROUND}(x) p = Mul(x, l) d = ReduceSum(p, channel) "
        "a = ReduceL2(x, channel) b = ReduceL2(l, channel) c = Mul(a, b) m = Max(c, e12) "
        "y = Div(d, m)"
    ),
    # From the first channel, the squares of it pooled.
    "distance": (
        f"f = Slice(x, first, one, channel) a = Sub(x, f) s = Mul(a, a) p = MaxPool {HALVED}(s) "
        "t = ReduceSum(p, channel) y = Sqrt(t)"
    ),
    # Of the size of each place and the largest around it.
    "geometric_mean": (
        f"l = MaxPool {AROUND}(x) a = Abs(x) b = Abs(l) p = Mul(a, b) m = MaxPool {HALVED}(p) "
        "y = Sqrt(m)"
    ),
    "global_lp_pool": "y = GlobalLpPool <p = 2>(x)",
    "group": "y = GroupNormalization <num_groups = 2, epsilon = 1e-12>(x, g2, h2)",
    "instance_tiny_epsilon": "y = InstanceNormalization <epsilon = 1e-12>(x, g, h)",
    "lp_pool": "y = LpPool <kernel_shape = [3, 3], p = 2>(x)",
    "lp_pool_3": "y = LpPool <kernel_shape = [3, 3], p = 3, pads = [1, 1, 1, 1]>(x)",
    "read_twice": (
        "s = Mul(x, x) a = ReduceMean(s, space) b = ReduceMean(s, channel) c = Sqrt(a) "
        "d = Sqrt(b) y = Add(c, d)"
    ),
    # The global response norm of ConvNeXt V2.
    "response": (
        "l = ReduceL2(x, space) a = ReduceMean(l, channel) m = Add(a, e6) d = Div(l, m) "
        "y = Mul(x, d)"
    ),
    "root_mean_square": (
        "s = Pow(x, two) a = ReduceMean(s, last) m = Add(a, e12) r = Sqrt(m) i = Reciprocal(r) "
        "y = Mul(x, i)"
    ),
    "to_the_third": f"a = Abs(x) c = Pow(a, three) m = MaxPool {HALVED}(c) y = Pow(m, third)",
    "weighted_mean": (
        "w = Relu(x) p = Mul(w, x) a = ReduceSum(p, channel) b = ReduceSum(w, channel) "
        "m = Add(b, e9) y = Div(a, m)"
    ),
    # A layer norm as exporters of older opsets write it.
    "by_hand": (
        "m = ReduceMean(x, last) c = Sub(x, m) s = Pow(c, two) v = ReduceMean(s, last) "
        "w = Add(v, e5) d = Sqrt(w) y = Div(c, d)"
    ),
    # The length of a vector, its square written as a product.
    "by_two_products": "s = Mul(x, x) t = ReduceSum(s, channel) l = Sqrt(t) y = Div(x, l)",
    # A layer norm with a factor that no constant holds: it runs in parts.
    "computed_factor": "f = Sigmoid(in0) y = LayerNormalization(x, f, in1)",
    "instance": "y = InstanceNormalization(x, g, h)",
    "layer": "y = LayerNormalization(x, g5, h5)",
    "lp_1": "y = LpNormalization <axis = 1, p = 1>(x)",
    "lp_2": "y = LpNormalization <axis = 1, p = 2>(x)",
    "mean_variance": "y = MeanVarianceNormalization <axes = [0, 2, 3]>(x)",
    "reduce_l1": "y = ReduceL1(x, channel)",
    "reduce_l2": "y = ReduceL2(x, channel)",
    "reduce_l2_space": "y = ReduceL2(x, space)",
    "log_of_sum_of_squares": "s = ReduceSumSquare(x, channel) y = Log(s)",
}


SIZES = {"small": 1e-3, "large": 2e3}


@pytest.mark.parametrize("name", NORMS)
def test_no_half_holds_squares(ops, device, name):
    around = 1.0 if "epsilon" in NORMS[name] else 0.0  # gains
    held = OPERANDS | {
        n: ops.values(*shape) + around * n.startswith("g") for n, shape in WEIGHTS.items()
    }
    for size in SIZES.values():
        x = ops.input(1, 8, 6, 5, low=-size, high=size)
        if name == "computed_factor":
            held |= {"in0": ops.input(5), "in1": ops.input(5)}
        # A tensor between kernels: what the norm reads has been stored in half.
        y = ops.text(NORMS[name], x=ops("MaxPool", x, kernel_shape=[1, 1]), **held)
        ops.output(ops("Relu", y))
    ops.check(device, "mixed")


@pytest.mark.parametrize("size", SIZES)
def test_activations_are_computed_in_float(device, size):
    ops = Ops(opset=20)
    x = ops.input(1, 8, 6, 5, low=-SIZES[size], high=SIZES[size])
    held = ops("MaxPool", x, kernel_shape=[1, 1])
    plain = ("Celu", "Elu", "Gelu", "HardSwish", "Mish", "Selu", "Softplus", "Softsign", "Softmax")
    made = [ops(op, held) for op in plain]
    made.append(ops("Gelu", held, approximate="tanh"))
    made.append(ops("Mul", held, ops("Sigmoid", held)))
    made.append(ops("ReduceLogSumExp", held, ops.ints(1)))
    ops.output(*(ops("Neg", y) for y in made))
    ops.check(device, "fp16", tolerance=2e-3)


def test_the_squares_are_computed_within_the_reduction(ops, device):
    x = ops.input(1, 8, 6, 5)
    ops.output(ops("ReduceSum", ops("Mul", x, x), ops.ints(1)))
    ops.check(device, "mixed")
    assert len(ops.kernels) == 1


@pytest.mark.parametrize("preset", ["mixed", "fp16"])
def test_taps_that_cancel_are_not_rounded(ops, device, preset):
    """What a folded batch norm makes of depthwise weights: large taps with a small sum."""
    x = ops.input(1, 8, 9, 7)
    ops.given(x, np.random.default_rng(0).integers(60, 64, (1, 8, 9, 7)).astype(np.float32))
    taps = np.random.default_rng(1).uniform(-30.0, 30.0, (8, 1, 3, 3))
    taps -= taps.mean(axis=(2, 3), keepdims=True)
    ops.output(ops("Relu", ops("Conv", x, ops.const(taps), group=8)))
    ops.check(device, preset, tolerance=1e-5 if preset == "mixed" else 4e-4)


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
