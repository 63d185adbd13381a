"""What leaves the range of halves: by formulas, by sizes, and a small factor a layer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.host.run_op import Ops

Build = Callable[[Ops], str]

_BEYOND = "half ends at 65504"


def _held(ops: Ops, *shape: int, low: float = -1.0, high: float = 1.0) -> str:
    """A tensor between kernels."""
    return ops("MaxPool", ops.input(*shape, low=low, high=high), kernel_shape=[1, 1])


def _weighted(*extents: int) -> Build:
    """A convolution with weights that are not negative adds up large numbers, in any dimension."""

    def build(ops: Ops) -> str:
        one = [1] * len(extents)
        x = ops("MaxPool", ops.input(1, 8, *extents, low=5.0, high=20.0), kernel_shape=one)
        total = ops("Conv", ops("Exp", x), ops.const(np.full((4, 8, *one), 0.5)))
        return ops("Log", ops("MaxPool", total, kernel_shape=one))

    return build


LARGE: dict[str, Build] = {
    # Features weighted by one over their distance, some of which are zero.
    "by_distance": lambda ops: ops.text(
        "d = Relu(x) m = Add(d, e8) w = Div(one, m) t = ReduceSum(w, axis) y = Div(w, t)",
        **{"x": _held(ops, 1, 3, 6, 5), "one": 1.0, "e8": 1e-8, "axis": [1]},
    ),
    # A softmax without the largest subtracted, as linear attention has it.
    "by_exponentials": lambda ops: ops.text(
        "w = Exp(x) t = ReduceSum(w, axis) y = Div(w, t)",
        **{"x": _held(ops, 1, 8, 6, 5, low=-20.0, high=20.0), "axis": [2]},
    ),
    "by_reciprocal": lambda ops: ops.text(
        "d = Relu(x) m = Max(d, e10) w = Reciprocal(m) t = ReduceSum(w, axis) y = Div(w, t)",
        **{"x": _held(ops, 1, 3, 6, 5), "e10": 1e-10, "axis": [1]},
    ),
    "log_of_sum": lambda ops: ops.text(
        "e = Exp(x) t = ReduceSum(e, axis) s = Mul(t, three) "
        "m = MaxPool <kernel_shape = [1, 1]>(s) y = Log(m)",
        **{"x": _held(ops, 1, 8, 6, 5, low=5.0, high=20.0), "three": 3.0, "axis": [1]},
    ),
    "weighted_1d": _weighted(30),
    "weighted_2d": _weighted(6, 5),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_numbers_between_kernels_do_not_overflow(ops, device, name):
    ops.output(ops("Relu", LARGE[name](ops)))
    ops.check(device, "mixed", tolerance=2e-2)
    assert any(d.taken == "float32" for d in ops.decisions)


BOUNDED = {
    "elu": "y = Elu(x)",
    "gaussian": "s = Mul(x, x) m = Mul(s, minus) y = Exp(m)",
    "gelu": "e = Erf(x) y = Mul(x, e)",
    "mish": "s = Softplus(x) t = Tanh(s) y = Mul(x, t)",
    "sigmoid": "y = Sigmoid(x)",
    "softmax_by_hand": (
        "m = ReduceMax(x, axis) d = Sub(x, m) w = Exp(d) t = ReduceSum(w, axis) y = Div(w, t)"
    ),
    "softplus": "y = Softplus(x)",
}


@pytest.mark.parametrize("name", BOUNDED)
def test_what_stays_within_half_costs_nothing(ops, device, name):
    y = ops.text(BOUNDED[name], x=_held(ops, 1, 8, 6, 5), minus=-4.0, axis=[1])
    ops.output(_between(ops, y))
    ops.check(device, "mixed", tolerance=2e-3)
    assert not any(_BEYOND in d.reason for d in ops.decisions)


@pytest.mark.parametrize("form", ("divided", "multiplied"))
@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_vectors_of_zeros_have_a_length_kept_from_zero(ops, device, form, preset):
    x = ops.input(1, 8, 6, 5)
    values = np.random.default_rng(0).standard_normal((1, 8, 6, 5)).astype(np.float32)
    values[:, :, 2] = 0
    ops.given(x, values)
    length = ops("Max", ops("ReduceL2", x, ops.ints(1)), ops.const(1e-12))
    if form == "divided":
        ops.output(ops("Div", x, length))
    else:
        ops.output(ops("Mul", x, ops("Reciprocal", length)))
    ops.check(device, "mixed", tolerance=2e-3)


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_peaks_are_found_once(ops, device, preset):
    """Scores of neighbours that are one number in half: only the larger one is a peak."""
    scores = 0.9 + np.random.default_rng(0).permutation(160).reshape(1, 2, 8, 10) * 1e-5
    x = ops.input(1, 2, 8, 10)
    ops.given(x, np.log(scores / (1 - scores)).astype(np.float32))
    score = ops("Sigmoid", x)
    pooled = ops("MaxPool", score, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    ops.output(ops("Where", ops("Equal", score, pooled), score, ops.const(0.0)))
    ops.check(device, preset, tolerance=1e-3)
    assert any(d.taken == "float32" for d in ops.decisions)


def test_the_place_of_the_largest_needs_no_float32(ops, device):
    x = _held(ops, 1, 8, 6, 5)
    ops.output(ops("ArgMax", ops("Sigmoid", x), axis=1))
    ops.run(device, "mixed")
    assert not any("tells its numbers apart" in d.reason for d in ops.decisions)


def _between(ops: Ops, x: str) -> str:
    """The same after a kernel of its own, so that it has been stored."""
    return ops("MaxPool", x, kernel_shape=[1, 1])


def _x(ops: Ops) -> str:
    return _between(ops, ops.input(1, 8, 6, 5))


def _steps(*factors: float) -> Build:
    """Factors, each in a kernel of its own."""

    def build(ops: Ops) -> str:
        y = _x(ops)
        for factor in factors:
            y = _between(ops, ops("Mul", y, ops.const(factor)))
        return y

    return build


def _through_convolutions(ops: Ops) -> str:
    """Products of what is tiny are tiny, too."""
    y = ops("Mul", _x(ops), ops.const(1e-7))
    for _ in range(2):
        y = ops("Conv", y, ops.weight(8, 8, 3, 3), pads=[1] * 4)
    return ops("Mul", _between(ops, y), ops.const(1e7))


def _similarity(ops: Ops) -> str:
    """A product of two computed matrices, one of which is tiny."""
    x = _between(ops, ops.input(1, 2, 12, 16))
    tiny = _between(ops, ops("Mul", x, ops.const(1e-7)))
    y = ops("MatMul", tiny, ops("Transpose", ops("Tanh", x), perm=[0, 1, 3, 2]))
    return ops("Mul", _between(ops, y), ops.const(1e7))


def _one_channel(size: float) -> np.ndarray:
    """Factors of eight channels, all of which are one but the third."""
    return np.where(np.arange(8) == 2, size, 1.0)


def _one_of_weights(ops: Ops) -> str:
    """Convolutions of which the first makes one channel tiny, and the second reads it so."""
    first = ops.values(8, 8, 3, 3) * _one_channel(1e-8).reshape(8, 1, 1, 1)
    second = ops.values(8, 8, 1, 1) * _one_channel(1e8).reshape(1, 8, 1, 1)
    y = ops("Relu", ops("Conv", _x(ops), ops.const(first), pads=[1] * 4))
    y = _between(ops, y)
    y = ops("Conv", y, ops.const(_one_channel(1e4).reshape(8, 1, 1, 1)), group=8)
    second[:, 2] *= 1e-4
    alone = ops.const(np.where(np.arange(8).reshape(1, 8, 1, 1) == 2, second, 0.0))
    return ops("Conv", y, alone)


def _one_of(kind: str, *extents: int, groups: int = 1) -> Build:
    """The same by convolutions of another kind: transposed, along W alone, in groups."""

    def build(ops: Ops) -> str:
        taps, size = [1] * len(extents), 8 // groups
        x = ops("Relu", ops.input(1, 8, *extents))
        tiny, large = _one_channel(1e-8), _one_channel(1e8) * 1e-3
        if kind == "ConvTranspose":
            tiny, large = tiny.reshape(1, 8, *taps), large.reshape(8, 1, *taps)
        else:  # each output has the inputs of its group
            tiny = tiny.reshape(8, 1, *taps)
            large = np.repeat(large.reshape(groups, size), size, axis=0).reshape(8, size, *taps)
        y = ops("Relu", ops(kind, x, ops.const(ops.values(8, 8, *taps) * tiny)))
        return ops(kind, y, ops.const(ops.values(8, size, *taps) * large), group=groups)

    return build


def _one_column(ops: Ops) -> str:
    x = _between(ops, ops.input(1, 1, 40, 24))
    y = ops("MatMul", x, ops.const(ops.values(24, 8) * _one_channel(1e-8)))
    weights = ops.values(8, 12) * np.where(np.arange(8) == 2, 1e8, 1e-3).reshape(8, 1)
    return ops("MatMul", y, ops.const(weights))


def _of(nodes: str, **operands: object) -> Build:
    """What `nodes` make of a tensor between kernels; `b` is a tensor of its own."""
    return lambda ops: ops.text(nodes, x=_x(ops), b=_x(ops), **operands)


_ALONE = "MaxPool <kernel_shape = [1, 1]>"
_CHANNELS = (8, 1, 1)
SIZES: dict[str, Build] = {
    "one_column": _one_column,
    "one_factor": _of(
        f"t = Mul(x, tiny) m = {_ALONE}(t) y = Mul(m, large)",
        tiny=_one_channel(1e-8).reshape(_CHANNELS),
        large=_one_channel(1e8).reshape(_CHANNELS),
    ),
    "one_of_weights": _one_of_weights,
    "one_of_groups": _one_of("Conv", 6, 5, groups=2),
    "one_of_rows": _one_of("Conv", 9),
    "one_of_transposed": _one_of("ConvTranspose", 6, 5),
    "one_of_transposed_rows": _one_of("ConvTranspose", 9),
    "tiny": _steps(1e-7, 1e7),
    "tiny_in_steps": _steps(1e-3, 1e-3, 1e-3, 1e9),
    "large": _steps(-1e6, 1e-6),
    "large_in_steps": _steps(3e3, 3e3, 1e-7),
    "divided": _of(f"t = Div(x, by) m = {_ALONE}(t) y = Mul(m, by)", by=1e6),
    "through_convolutions": _through_convolutions,
    # A convolution of tiny weights, and one of others that reads its result.
    "after_weights": lambda ops: ops.text(
        f"t = Conv(x, tiny) c = Conv(t, w) m = {_ALONE}(c) y = Mul(m, back)",
        **{"x": _x(ops), "tiny": ops.values(8, 8, 1, 1) * 1e-7},
        **{"w": ops.values(8, 8, 1, 1), "back": 1e7},
    ),
    "similarity": _similarity,
    "summed": _of(
        f"t = Mul(x, tiny) m = {_ALONE}(t) s = ReduceMean(m, axes) h = Tanh(s) y = Div(h, tiny)",
        tiny=1e-8,
        axes=[2, 3],
    ),
    "joined": _of(
        f"t = Mul(x, tiny) r = Relu(t) c = Concat <axis = 1>(r, b) m = {_ALONE}(c) "
        "y = Mul(m, back)",
        tiny=1e-8,
        back=np.repeat([1e8, 1.0], 8).reshape(1, 16, 1, 1),
    ),
}


@pytest.mark.parametrize(
    ("preset", "names"),
    [("mixed", tuple(SIZES)), ("fp16", ("through_convolutions", "after_weights", "similarity"))],
)
def test_numbers_beyond_half(ops, device, preset, names):
    ops.output(*(SIZES[name](ops) for name in names))
    ops.check(device, preset)
    assert any(d.taken == "float32" for d in ops.decisions)


_REASON = "of data of one"


def _grow(
    shape: tuple[int, ...],
    weights: np.ndarray | Callable[[Ops], np.ndarray],
    *,
    op: str = "Conv",
    act: str = "Relu",
    count: int = 4,
    low: float = 0.0,
    pooled: bool = True,
    **attrs: Any,
) -> Build:
    """Products by the same weights in a row, each with an activation."""

    def build(ops: Ops) -> str:
        y = ops.input(*shape, low=low)
        made = weights(ops) if callable(weights) else weights
        for _ in range(count):
            y = ops(op, y, ops.const(made), **attrs)
            if act == "SiLU":
                y = ops("Mul", y, ops("Sigmoid", y))
            elif act:
                y = ops(act, y)
        return ops("MaxPool", y, kernel_shape=[2, 2]) if pooled else y

    return build


def _layers(
    weights: float | Callable[[Ops], np.ndarray], channels: int = 32, groups: int = 1, **more: Any
) -> Build:
    """Convolutions of 3x3 whose weights are all one number, or drawn."""
    if not callable(weights):
        weights = np.full((channels, channels // groups, 3, 3), weights)
    return _grow((1, channels, 6, 5), weights, pads=[1] * 4, group=groups, **more)


def _dense(ops: Ops) -> str:
    y = ops.input(4, 96, low=0)
    for _ in range(4):
        y = ops("Relu", ops("Gemm", y, ops.const(np.full((96, 96), 0.2)), ops.weight(96)))
    return y


def _one_row(ops: Ops) -> np.ndarray:
    """One channel alone is beyond half, and what reads it."""
    weights = ops.values(32, 32, 3, 3) * 0.1
    weights[5] = np.abs(weights[5]) * 100
    return weights


def _biases(ops: Ops) -> str:
    y = ops.input(1, 8, 6, 5)
    for _ in range(2):
        weights, bias = ops.weight(8, 8, 3, 3), ops.const(np.full(8, 5e4))
        y = ops("Relu", ops("Conv", y, weights, bias, pads=[1] * 4))
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _sum_of_biases(ops: Ops) -> str:
    x, bias = ops.input(1, 8, 6, 5), ops.const(np.full(8, 3e4))
    y = ops("Sum", *(ops("Conv", x, ops.weight(8, 8, 1, 1), bias) for _ in range(3)))
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _folded_norms(ops: Ops) -> str:
    y = ops.input(1, 8, 6, 5)
    for _ in range(2):
        y = ops("Conv", y, ops.weight(8, 8, 3, 3), pads=[1] * 4)
        scale, offset = ops.const(np.full(8, 2e3)), ops.const(np.zeros(8))
        variance = ops.const(np.ones(8))
        y = ops("Relu", ops("BatchNormalization", y, scale, offset, offset, variance))
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _doubled(ops: Ops) -> str:
    """What is added to itself seventeen times."""
    y = ops.input(1, 8, 6, 5, low=0)
    for _ in range(17):
        y = ops("MaxPool", ops("Add", y, y), kernel_shape=[1, 1])
    return y


def _of_bytes(ops: Ops) -> str:
    y = ops("Cast", ops.whole_input(1, 32, 6, 5, count=256, dtype=np.uint8), to=1)
    for _ in range(2):
        y = ops("Relu", ops("Conv", y, ops.const(np.full((32, 32, 3, 3), 0.1)), pads=[1] * 4))
    return ops("MaxPool", y, kernel_shape=[2, 2])


GROWN: dict[str, Build] = {
    "positive": _layers(0.1),
    "negative": _layers(-0.1, act=""),
    "of_data_of_both_signs": _layers(0.3, low=-1.0),
    "leaky": _layers(0.1, act="LeakyRelu"),
    "depthwise": _layers(0.9, count=7, groups=32),
    "grouped": _layers(0.4, groups=4),
    # Most weights are positive, as a mean of .06 under noise of .12 is.
    "of_both_signs": _layers(lambda ops: ops.values(32, 32, 3, 3) * 0.4 + 0.06),
    "silu": _layers(0.1, act="SiLU"),
    "dense": _dense,
    "one_row": _layers(_one_row, count=3),
    "transposed": _grow(
        *((1, 24, 3, 2), np.full((24, 24, 4, 4), 0.5)),
        **{"op": "ConvTranspose", "count": 3, "strides": [2, 2], "pads": [1] * 4},
    ),
    "of_sequences": _grow((1, 24, 20), np.full((24, 24, 3), 0.3), pads=[1, 1], pooled=False),
    "of_volumes": _grow((1, 8, 4, 4, 4), np.full((8, 8, 3, 3, 3), 0.2), pads=[1] * 6, pooled=False),
    "biases": _biases,
    "sum_of_biases": _sum_of_biases,
    "folded_norms": _folded_norms,
    "doubled": _doubled,
    "of_bytes": _of_bytes,
}


@pytest.mark.parametrize("preset", ["mixed", "fp16"])
def test_grown_tensors_are_no_infinities(ops, device, preset):
    ops.output(*(ops("Mul", build(ops), ops.const(0.5)) for build in GROWN.values()))
    ops.check(device, preset)
    assert any(_REASON in d.reason for d in ops.decisions)


def test_running_sums_are_no_infinities(ops, device):
    """Of 40,000 numbers of up to four."""
    x = ops("Relu", ops.input(1, 40000, low=0.0, high=4.0))
    total = ops("CumSum", x, ops.const(1, np.int64), reverse=1)
    ops.output(ops("Mul", total, ops.const(0.5)))
    ops.check(device, "mixed")


def test_what_hides_is_no_size(ops, device):
    """Masks and the padding of maxima are far below zero and make nothing large."""
    x = ops.input(1, 8, 6, 5)
    padded = ops("Pad", x, ops.ints(0, 0, 1, 1, 0, 0, 1, 1), ops.const(-np.inf))
    largest = ops("MaxPool", padded, kernel_shape=[3, 3])
    mask = ops.const(np.where(np.arange(5) < 3, 0.0, -3e4))
    scores = ops("MaxPool", ops("Add", largest, mask), kernel_shape=[1, 1])
    ops.output(ops("Softmax", scores, axis=-1))
    ops.check(device, "mixed")
    assert not any(_REASON in d.reason for d in ops.decisions)


def test_a_gate_beyond_half_is_no_infinity(device):
    """The factors are up to 800 each; in a layer of a Llama they were 256 and 262."""
    ops = Ops(seed=3)
    x = ops("Tanh", ops("MatMul", ops.input(8, 32), ops.const(ops.values(32, 32))))
    gate = ops("MatMul", x, ops.const(np.abs(ops.values(32, 64)) * 360))
    up = ops("MatMul", x, ops.const(np.abs(ops.values(32, 64)) * 360))
    gated = ops("Mul", up, ops("Mul", gate, ops("Sigmoid", gate)))
    ops.output(ops("MatMul", gated, ops.const(ops.values(64, 16) * 1e-3)))
    ops.check(device, "fp16", tolerance=1e-2)
    assert any(d.taken == "stored divided by 16" for d in ops.decisions)
