"""What leaves the range of halves: by formulas, by sizes, and a small factor a layer."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.host.run_op import Ops

Build = Callable[[Ops], str]

_BEYOND = "half ends at 65504"


def _held(ops: Ops, *shape: int, low: float = -1.0, high: float = 1.0) -> str:
    """A tensor between kernels."""
    return ops("MaxPool", ops.input(*shape, low=low, high=high), kernel_shape=[1, 1])


def _by_distance(ops: Ops) -> str:
    """Features weighted by one over their distance, some of which are zero."""
    distance = ops("Relu", _held(ops, 1, 3, 6, 5))
    weight = ops("Div", ops.const(1.0), ops("Add", distance, ops.const(1e-8)))
    return ops("Div", weight, ops("ReduceSum", weight, ops.ints(1)))


def _by_reciprocal(ops: Ops) -> str:
    distance = ops("Relu", _held(ops, 1, 3, 6, 5))
    weight = ops("Reciprocal", ops("Max", distance, ops.const(1e-10)))
    return ops("Div", weight, ops("ReduceSum", weight, ops.ints(1)))


def _by_exponentials(ops: Ops) -> str:
    """A softmax without the largest subtracted, as linear attention has it."""
    weight = ops("Exp", _held(ops, 1, 8, 6, 5, low=-20.0, high=20.0))
    return ops("Div", weight, ops("ReduceSum", weight, ops.ints(2)))


def _log_of_sum(ops: Ops) -> str:
    total = ops("ReduceSum", ops("Exp", _held(ops, 1, 8, 6, 5, low=5.0, high=20.0)), ops.ints(1))
    scaled = ops("MaxPool", ops("Mul", total, ops.const(3.0)), kernel_shape=[1, 1])
    return ops("Log", scaled)


def _weighted(*extents: int) -> Build:
    """A convolution with weights that are not negative adds up large numbers, in any dimension."""

    def build(ops: Ops) -> str:
        one = [1] * len(extents)
        x = ops("MaxPool", ops.input(1, 8, *extents, low=5.0, high=20.0), kernel_shape=one)
        total = ops("Conv", ops("Exp", x), ops.const(np.full((4, 8, *one), 0.5)))
        return ops("Log", ops("MaxPool", total, kernel_shape=one))

    return build


LARGE: dict[str, Build] = {
    "by_distance": _by_distance,
    "by_exponentials": _by_exponentials,
    "by_reciprocal": _by_reciprocal,
    "log_of_sum": _log_of_sum,
    "weighted_1d": _weighted(30),
    "weighted_2d": _weighted(6, 5),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_numbers_between_kernels_do_not_overflow(ops, device, name):
    ops.output(ops("Relu", LARGE[name](ops)))
    ops.check(device, "mixed", tolerance=2e-2)
    assert any(d.taken == "float32" for d in ops.decisions)


def _elu(ops: Ops) -> str:
    return ops("Elu", _held(ops, 1, 8, 6, 5))


def _gaussian(ops: Ops) -> str:
    x = _held(ops, 1, 8, 6, 5)
    return ops("Exp", ops("Mul", ops("Mul", x, x), ops.const(-4.0)))


def _softmax_by_hand(ops: Ops) -> str:
    x = _held(ops, 1, 8, 6, 5)
    weight = ops("Exp", ops("Sub", x, ops("ReduceMax", x, ops.ints(1))))
    return ops("Div", weight, ops("ReduceSum", weight, ops.ints(1)))


BOUNDED: dict[str, Build] = {
    "elu": _elu,
    "gaussian": _gaussian,
    "gelu": lambda ops: ops("Mul", x := _held(ops, 1, 8, 6, 5), ops("Erf", x)),
    "mish": lambda ops: ops("Mul", x := _held(ops, 1, 8, 6, 5), ops("Tanh", ops("Softplus", x))),
    "sigmoid": lambda ops: ops("Sigmoid", _held(ops, 1, 8, 6, 5)),
    "softmax_by_hand": _softmax_by_hand,
    "softplus": lambda ops: ops("Softplus", _held(ops, 1, 8, 6, 5)),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_what_stays_within_half_costs_nothing(ops, device, name):
    ops.output(ops("MaxPool", BOUNDED[name](ops), kernel_shape=[1, 1]))
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


def _divided(ops: Ops) -> str:
    y = _between(ops, ops("Div", _x(ops), ops.const(1e6)))
    return ops("Mul", y, ops.const(1e6))


def _through_convolutions(ops: Ops) -> str:
    """Products of what is tiny are tiny, too."""
    y = ops("Mul", _x(ops), ops.const(1e-7))
    for _ in range(2):
        y = ops("Conv", y, ops.weight(8, 8, 3, 3), pads=[1] * 4)
    return ops("Mul", _between(ops, y), ops.const(1e7))


def _after_weights(ops: Ops) -> str:
    """A convolution of tiny weights, and one of others that reads its result."""
    y = ops("Conv", _x(ops), ops.const(ops.values(8, 8, 1, 1) * 1e-7))
    y = ops("Conv", y, ops.weight(8, 8, 1, 1))
    return ops("Mul", _between(ops, y), ops.const(1e7))


def _similarity(ops: Ops) -> str:
    """A product of two computed matrices, one of which is tiny."""
    x = _between(ops, ops.input(1, 2, 12, 16))
    tiny = _between(ops, ops("Mul", x, ops.const(1e-7)))
    y = ops("MatMul", tiny, ops("Transpose", ops("Tanh", x), perm=[0, 1, 3, 2]))
    return ops("Mul", _between(ops, y), ops.const(1e7))


def _summed(ops: Ops) -> str:
    y = _between(ops, ops("Mul", _x(ops), ops.const(1e-8)))
    y = ops("ReduceMean", y, ops.ints(2, 3))
    return ops("Div", ops("Tanh", y), ops.const(1e-8))


def _joined(ops: Ops) -> str:
    tiny = ops("Mul", _x(ops), ops.const(1e-8))
    y = _between(ops, ops("Concat", ops("Relu", tiny), _x(ops), axis=1))
    return ops("Mul", y, ops.const(np.repeat([1e8, 1.0], 8).reshape(1, 16, 1, 1)))


def _one_channel(size: float) -> np.ndarray:
    """Factors of eight channels, all of which are one but the third."""
    return np.where(np.arange(8) == 2, size, 1.0)


def _one_factor(ops: Ops) -> str:
    y = _between(ops, ops("Mul", _x(ops), ops.const(_one_channel(1e-8).reshape(8, 1, 1))))
    return ops("Mul", y, ops.const(_one_channel(1e8).reshape(8, 1, 1)))


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


SIZES: dict[str, Build] = {
    "one_column": _one_column,
    "one_factor": _one_factor,
    "one_of_weights": _one_of_weights,
    "one_of_groups": _one_of("Conv", 6, 5, groups=2),
    "one_of_rows": _one_of("Conv", 9),
    "one_of_transposed": _one_of("ConvTranspose", 6, 5),
    "one_of_transposed_rows": _one_of("ConvTranspose", 9),
    "tiny": _steps(1e-7, 1e7),
    "tiny_in_steps": _steps(1e-3, 1e-3, 1e-3, 1e9),
    "large": _steps(-1e6, 1e-6),
    "large_in_steps": _steps(3e3, 3e3, 1e-7),
    "divided": _divided,
    "through_convolutions": _through_convolutions,
    "after_weights": _after_weights,
    "similarity": _similarity,
    "summed": _summed,
    "joined": _joined,
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


def _layers(
    ops: Ops,
    *,
    weights: Callable[..., np.ndarray],
    act: str = "Relu",
    count: int = 4,
    channels: int = 32,
    low: float = 0.0,
    groups: int = 1,
) -> str:
    """Convolutions in a row, each with an activation."""
    y = ops.input(1, channels, 6, 5, low=low)
    for _ in range(count):
        shape = (channels, channels // groups, 3, 3)
        y = ops("Conv", y, ops.const(weights(*shape)), pads=[1] * 4, group=groups)
        y = ops(act, y) if act else y
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _all_of(value: float) -> Callable[..., np.ndarray]:
    return lambda *shape: np.full(shape, value)


def _of_both_signs(ops: Ops) -> str:
    """Most weights are positive, as a mean of .06 under noise of .12 is."""
    return _layers(ops, weights=lambda *shape: ops.values(*shape) * 0.4 + 0.06)


def _silu(ops: Ops) -> str:
    y = ops.input(1, 32, 6, 5, low=0)
    for _ in range(4):
        y = ops("Conv", y, ops.const(np.full((32, 32, 3, 3), 0.1)), pads=[1] * 4)
        y = ops("Mul", y, ops("Sigmoid", y))
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _dense(ops: Ops) -> str:
    y = ops.input(4, 96, low=0)
    for _ in range(4):
        y = ops("Relu", ops("Gemm", y, ops.const(np.full((96, 96), 0.2)), ops.weight(96)))
    return y


def _one_row(ops: Ops) -> str:
    """One channel alone is beyond half, and what reads it."""
    weights = ops.values(32, 32, 3, 3) * 0.1
    weights[5] = np.abs(weights[5]) * 100
    return _layers(ops, weights=lambda *_: weights, count=3)


def _transposed(ops: Ops) -> str:
    y = ops.input(1, 24, 3, 2, low=0)
    for _ in range(3):
        weights = ops.const(np.full((24, 24, 4, 4), 0.5))
        y = ops("Relu", ops("ConvTranspose", y, weights, strides=[2, 2], pads=[1] * 4))
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _of_sequences(ops: Ops) -> str:
    y = ops.input(1, 24, 20, low=0)
    for _ in range(4):
        y = ops("Relu", ops("Conv", y, ops.const(np.full((24, 24, 3), 0.3)), pads=[1, 1]))
    return y


def _of_volumes(ops: Ops) -> str:
    y = ops.input(1, 8, 4, 4, 4, low=0)
    for _ in range(4):
        y = ops("Relu", ops("Conv", y, ops.const(np.full((8, 8, 3, 3, 3), 0.2)), pads=[1] * 6))
    return y


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
    "positive": lambda ops: _layers(ops, weights=_all_of(0.1)),
    "negative": lambda ops: _layers(ops, weights=_all_of(-0.1), act=""),
    "of_data_of_both_signs": lambda ops: _layers(ops, weights=_all_of(0.3), low=-1.0),
    "leaky": lambda ops: _layers(ops, weights=_all_of(0.1), act="LeakyRelu"),
    "depthwise": lambda ops: _layers(ops, weights=_all_of(0.9), count=7, groups=32),
    "grouped": lambda ops: _layers(ops, weights=_all_of(0.4), groups=4),
    "of_both_signs": _of_both_signs,
    "silu": _silu,
    "dense": _dense,
    "one_row": _one_row,
    "transposed": _transposed,
    "of_sequences": _of_sequences,
    "of_volumes": _of_volumes,
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


def _running_sum(ops: Ops) -> str:
    """40,000 numbers of up to four."""
    x = ops("Relu", ops.input(1, 40000, low=0.0, high=4.0))
    return ops("Mul", ops("CumSum", x, ops.const(1, np.int64), reverse=1), ops.const(0.5))


def test_running_sums_are_no_infinities(ops, device):
    ops.output(_running_sum(ops))
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
