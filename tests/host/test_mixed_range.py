"""Activations of a thousand and of a thousandth in half textures: the squares of the former are
beyond half, those of the latter have four bits left, so no half may hold them."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.host.run_op import Ops

Norm = Callable[[Ops, str], str]


def _by_hand(ops: Ops, x: str) -> str:
    """A layer norm as exporters of older opsets write it."""
    centred = ops("Sub", x, ops("ReduceMean", x, ops.ints(-1)))
    variance = ops("ReduceMean", ops("Pow", centred, ops.const(2.0)), ops.ints(-1))
    deviation = ops("Sqrt", ops("Add", variance, ops.const(1e-5)))
    return ops("Div", centred, deviation)


def _by_two_products(ops: Ops, x: str) -> str:
    """The length of a vector, its square written as a product."""
    squares = ops("ReduceSum", ops("Mul", x, x), ops.ints(1))
    return ops("Div", x, ops("Sqrt", squares))


def _computed_factor(ops: Ops, x: str) -> str:
    """A layer norm with a factor that no constant holds: it runs in parts."""
    return ops("LayerNormalization", x, ops("Sigmoid", ops.input(5)), ops.input(5))


def _blurred(ops: Ops, x: str) -> str:
    """Local contrast: a weighted sum of squares around each place."""
    taps = ops.const(np.full((8, 1, 3, 3), 1 / 9))
    return ops("Sqrt", ops("Conv", ops("Mul", x, x), taps, group=8, pads=[1, 1, 1, 1]))


def _correlations(ops: Ops, x: str) -> str:
    """The features of a style, by its largest."""
    rows = ops("Reshape", x, ops.ints(8, 30))
    products = ops("MatMul", rows, ops("Transpose", rows, perm=[1, 0]))
    return ops("Div", products, ops("ReduceMax", products))


def _cosine(ops: Ops, x: str) -> str:
    """Of each place and the largest around it."""
    y = ops("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    dot = ops("ReduceSum", ops("Mul", x, y), ops.ints(1))
    lengths = ops("Mul", *(ops("ReduceL2", t, ops.ints(1)) for t in (x, y)))
    return ops("Div", dot, ops("Max", lengths, ops.const(1e-12)))


def _distance(ops: Ops, x: str) -> str:
    """From the first channel, the squares of it pooled."""
    first = ops("Slice", x, ops.ints(0), ops.ints(1), ops.ints(1))
    apart = ops("Sub", x, first)
    squares = ops("MaxPool", ops("Mul", apart, apart), kernel_shape=[2, 2])
    return ops("Sqrt", ops("ReduceSum", squares, ops.ints(1)))


def _geometric_mean(ops: Ops, x: str) -> str:
    """Of the size of each place and the largest around it."""
    y = ops("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    product = ops("Mul", ops("Abs", x), ops("Abs", y))
    return ops("Sqrt", ops("MaxPool", product, kernel_shape=[2, 2]))


def _read_twice(ops: Ops, x: str) -> str:
    squares = ops("Mul", x, x)
    means = [ops("ReduceMean", squares, ops.ints(*axes)) for axes in ((2, 3), (1,))]
    return ops("Add", *(ops("Sqrt", mean) for mean in means))


def _response(ops: Ops, x: str) -> str:
    """The global response norm of ConvNeXt V2."""
    length = ops("ReduceL2", x, ops.ints(2, 3))
    mean = ops("Add", ops("ReduceMean", length, ops.ints(1)), ops.const(1e-6))
    return ops("Mul", x, ops("Div", length, mean))


def _root_mean_square(ops: Ops, x: str) -> str:
    mean = ops("ReduceMean", ops("Pow", x, ops.const(2.0)), ops.ints(-1))
    return ops("Mul", x, ops("Reciprocal", ops("Sqrt", ops("Add", mean, ops.const(1e-12)))))


def _to_the_third(ops: Ops, x: str) -> str:
    cubes = ops("MaxPool", ops("Pow", ops("Abs", x), ops.const(3.0)), kernel_shape=[2, 2])
    return ops("Pow", cubes, ops.const(1 / 3))


def _eps(ops: Ops, op: str, x: str, size: int, **attrs) -> str:
    return ops(op, x, ops.weight(size, around=1.0), ops.weight(size), epsilon=1e-12, **attrs)


def _weighted_mean(ops: Ops, x: str) -> str:
    weight = ops("Relu", x)
    parts = [ops("ReduceSum", t, ops.ints(1)) for t in (ops("Mul", weight, x), weight)]
    return ops("Div", parts[0], ops("Add", parts[1], ops.const(1e-9)))


NORMS: dict[str, Norm] = {
    "blurred": _blurred,
    "correlations": _correlations,
    "cosine": _cosine,
    "distance": _distance,
    "geometric_mean": _geometric_mean,
    "global_lp_pool": lambda ops, x: ops("GlobalLpPool", x, p=2),
    "group": lambda ops, x: _eps(ops, "GroupNormalization", x, 2, num_groups=2),
    "instance_tiny_epsilon": lambda ops, x: _eps(ops, "InstanceNormalization", x, 8),
    "lp_pool": lambda ops, x: ops("LpPool", x, kernel_shape=[3, 3], p=2),
    "lp_pool_3": lambda ops, x: ops("LpPool", x, kernel_shape=[3, 3], p=3, pads=[1, 1, 1, 1]),
    "read_twice": _read_twice,
    "response": _response,
    "root_mean_square": _root_mean_square,
    "to_the_third": _to_the_third,
    "weighted_mean": _weighted_mean,
    "by_hand": _by_hand,
    "by_two_products": _by_two_products,
    "computed_factor": _computed_factor,
    "instance": lambda ops, x: ops("InstanceNormalization", x, ops.weight(8), ops.weight(8)),
    "layer": lambda ops, x: ops("LayerNormalization", x, ops.weight(5), ops.weight(5)),
    "lp_1": lambda ops, x: ops("LpNormalization", x, axis=1, p=1),
    "lp_2": lambda ops, x: ops("LpNormalization", x, axis=1, p=2),
    "mean_variance": lambda ops, x: ops("MeanVarianceNormalization", x, axes=[0, 2, 3]),
    "reduce_l1": lambda ops, x: ops("ReduceL1", x, ops.ints(1)),
    "reduce_l2": lambda ops, x: ops("ReduceL2", x, ops.ints(1)),
    "reduce_l2_space": lambda ops, x: ops("ReduceL2", x, ops.ints(2, 3)),
    "log_of_sum_of_squares": lambda ops, x: ops("Log", ops("ReduceSumSquare", x, ops.ints(1))),
}


SIZES = {"small": 1e-3, "large": 2e3}


@pytest.mark.parametrize("name", NORMS)
def test_no_half_holds_squares(ops, device, name):
    for size in SIZES.values():
        x = ops.input(1, 8, 6, 5, low=-size, high=size)
        # A tensor between kernels: what the norm reads has been stored in half.
        y = NORMS[name](ops, ops("MaxPool", x, kernel_shape=[1, 1]))
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
