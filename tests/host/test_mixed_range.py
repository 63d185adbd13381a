"""Activations of a thousand and of a thousandth in half textures: the squares of the former are
beyond half, those of the latter have four bits left, so no half may hold them."""

import numpy as np
import pytest

from tests.host.run_op import Ops

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
