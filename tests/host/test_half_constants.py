"""What halves lose: constants beyond them, differences, masks, products, weights that cancel."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.host.run_op import Ops

Build = Callable[[Ops, float], str]
"""The reader of a constant of about this size, and what brings the result back to about 1."""

LARGE, SMALL = 1e6, 1e-7


def _held(ops: Ops, size: float, *shape: int) -> str:
    """A tensor between kernels, as small as the constant is large."""
    bound = 1e-3 if size == LARGE else 1.0
    return ops("MaxPool", ops.input(*shape, low=-bound, high=bound), kernel_shape=[1, 1])


def _back(ops: Ops, y: str, size: float) -> str:
    """The result at about 1, after a kernel that only hands it on."""
    handed_on = ops("MaxPool", y, kernel_shape=[1, 1])
    return ops("Mul", handed_on, ops.const(1e-3 if size == LARGE else 1 / size))


def _vector(ops: Ops, size: float, *shape: int) -> str:
    return ops.const(ops.values(*shape) * size)


def _conv(
    channels: tuple[int, int], kernel: int, extent: tuple[int, int] = (9, 10), group: int = 1
) -> Build:
    def build(ops: Ops, size: float) -> str:
        into, out = channels
        x = _held(ops, size, 1, into, *extent)
        weight = _vector(ops, size, out, into // group, kernel, kernel)
        pads = [kernel // 2] * 4
        y = ops("Conv", x, weight, _vector(ops, size * 1e-3, out), group=group, pads=pads)
        return _back(ops, ops("Relu", y), size)

    return build


def _transposed(ops: Ops, size: float) -> str:
    x = _held(ops, size, 1, 8, 6, 5)
    y = ops("ConvTranspose", x, _vector(ops, size, 8, 6, 2, 2), strides=[2, 2])
    return _back(ops, y, size)


def _pair(ops: Ops, size: float) -> str:
    """A depthwise convolution and a 1x1 one that would be one kernel."""
    x = _held(ops, size, 1, 16, 24, 24)
    y = ops("Relu", ops("Conv", x, ops.weight(16, 1, 3, 3), group=16, pads=[1] * 4))
    return _back(ops, ops("Conv", y, _vector(ops, size, 24, 16, 1, 1)), size)


def _joined(ops: Ops, size: float) -> str:
    """A concatenation that is written in place."""
    x = _held(ops, size, 1, 8, 6, 5)
    parts = [ops("Conv", x, _vector(ops, size, out, 8, 1, 1)) for out in (8, 4)]
    return _back(ops, ops("Concat", *parts, axis=1), size)


def _prologue(ops: Ops, size: float) -> str:
    """A factor of each channel that a convolution would compute where it reads."""
    scaled = ops("Mul", _held(ops, size, 1, 8, 12, 12), _vector(ops, size, 8, 1, 1))
    y = ops("Conv", ops("Relu", scaled), ops.weight(16, 8, 1, 1))
    return ops("Mul", y, ops.const(1e-3 if size == LARGE else 1 / size))


def _product(rows: int) -> Build:
    def build(ops: Ops, size: float) -> str:
        x = _held(ops, size, 1, 1, rows, 24)
        return _back(ops, ops("MatMul", x, _vector(ops, size, 24, 20)), size)

    return build


def _batched(ops: Ops, size: float) -> str:
    x = _held(ops, size, 1, 3, 7, 24)
    return _back(ops, ops("MatMul", x, _vector(ops, size, 1, 3, 24, 20)), size)


def _gemm(ops: Ops, size: float) -> str:
    x = ops("Flatten", _held(ops, size, 1, 24, 1, 1))
    y = ops("Gemm", x, _vector(ops, size, 20, 24), _vector(ops, size * 1e-3, 20), transB=1)
    return _back(ops, ops("Reshape", y, ops.ints(1, 1, 1, 20)), size)


def _factor(ops: Ops, size: float) -> str:
    y = ops("Mul", _held(ops, size, 1, 8, 6, 5), _vector(ops, size, 8, 1, 1))
    return _back(ops, y, size)


def _sum(ops: Ops, size: float) -> str:
    """The data is as large as what is added, in a kernel that holds it in float."""
    x = ops("Mul", _held(ops, size, 1, 8, 6, 5), ops.const(1e9 if size == LARGE else size))
    y = ops("Relu", ops("Add", x, _vector(ops, size, 8, 1, 1)))
    return ops("Mul", y, ops.const(1 / size))


def _after_product(ops: Ops, size: float) -> str:
    """A factor of each channel in the epilogue of a convolution, after a function."""
    x = _held(ops, size, 1, 8, 9, 10)
    y = ops("Tanh", ops("Conv", x, ops.weight(12, 8, 3, 3), pads=[1] * 4))
    return _back(ops, ops("Mul", y, _vector(ops, size, 12, 1, 1)), size)


def _table(ops: Ops, size: float) -> str:
    rows = ops("Gather", _vector(ops, size, 40, 12), ops.whole_input(7, count=40))
    rows = ops("Reshape", rows, ops.ints(1, 1, 7, 12))
    if size == LARGE:
        return ops("Mul", rows, ops.const(1 / size))
    return _back(ops, rows, size)


def _norm(ops: Ops, size: float) -> str:
    x = _held(ops, SMALL, 1, 5, 6, 16)
    gamma, beta = _vector(ops, size, 16), _vector(ops, size, 16)
    y = ops("LayerNormalization", x, gamma, beta)
    return ops("Mul", ops("MaxPool", y, kernel_shape=[1, 1]), ops.const(1 / size))


READERS: dict[str, Build] = {
    "conv_1x1": _conv((12, 20), 1),
    "conv_3x3": _conv((12, 20), 3),
    "conv_3x3_winograd": _conv((128, 128), 3, extent=(28, 28)),
    "depthwise": _conv((12, 12), 3, group=12),
    "conv_transposed": _transposed,
    "pair": _pair,
    "joined": _joined,
    "prologue": _prologue,
    "gemv": _product(1),
    "matmul": _product(150),
    "batched": _batched,
    "gemm": _gemm,
    "factor": _factor,
    "sum": _sum,
    "after_product": _after_product,
    "table": _table,
    "norm": _norm,
}


@pytest.mark.parametrize("size", (LARGE, SMALL))
@pytest.mark.parametrize("preset", ("mixed", "fp16"))
@pytest.mark.parametrize("name", READERS)
def test_constants_beyond_half_are_floats(ops, device, name, preset, size):
    ops.output(READERS[name](ops, size))
    ops.check(device, preset, tolerance=4e-3)
    assert any(d.taken == "float32" for d in ops.decisions)
    assert not any(d.taken.startswith("infinite") for d in ops.decisions)


_POINTS = 48
_WIDTH = 6.0
"""How wide a kernel is beside the data, which is between -1 and 1: all its numbers are near one."""

_GIVEN = np.random.default_rng(1).uniform(-1, 1, (_POINTS, 4)).astype(np.float32)
Kernel = tuple[Callable[[Ops, str], str], Callable[[np.ndarray], np.ndarray]]


def _squares(ops: Ops, x: str) -> str:
    between = ops("Sub", ops("Unsqueeze", x, ops.ints(1)), ops.const(_GIVEN))
    return ops("ReduceSum", ops("Mul", between, between), ops.ints(2), keepdims=0)


def _squares_by_product(ops: Ops, x: str) -> str:
    own = ops("ReduceSum", ops("Mul", x, x), ops.ints(1), keepdims=1)
    mixed = ops("MatMul", x, ops.const(-2 * _GIVEN.T))
    return ops("Add", ops("Add", own, mixed), ops.const((_GIVEN**2).sum(1)))


def _squares_in_parts(ops: Ops, x: str) -> str:
    """Point by point, as a Scan over them is imported."""
    parts = []
    for point in _GIVEN:
        between = ops("Sub", x, ops.const(point))
        parts.append(ops("ReduceSum", ops("Mul", between, between), ops.ints(1), keepdims=1))
    return ops("Concat", *parts, axis=1)


def _gaussian_in_parts(ops: Ops, x: str) -> str:
    return ops("Exp", ops("Mul", _squares_in_parts(ops, x), ops.const(-0.5 / _WIDTH**2)))


def _gaussian(ops: Ops, x: str) -> str:
    return ops("Exp", ops("Mul", _squares(ops, x), ops.const(-0.5 / _WIDTH**2)))


def _gaussian_by_product(ops: Ops, x: str) -> str:
    return ops("Exp", ops("Mul", _squares_by_product(ops, x), ops.const(-0.5 / _WIDTH**2)))


def _laplacian(ops: Ops, x: str) -> str:
    between = ops("Sub", ops("Unsqueeze", x, ops.ints(1)), ops.const(_GIVEN))
    total = ops("ReduceSum", ops("Abs", between), ops.ints(2), keepdims=0)
    return ops("Exp", ops("Div", total, ops.const(-10 * _WIDTH)))


def _rational(ops: Ops, x: str) -> str:
    more = ops("Add", ops("Div", _squares(ops, x), ops.const(_WIDTH**2)), ops.const(1.0))
    return ops("Pow", more, ops.const(-0.5))


def _matern(ops: Ops, x: str) -> str:
    away = ops("Div", ops("Sqrt", _squares(ops, x)), ops.const(3 * _WIDTH))
    faded = ops("Exp", ops("Neg", away))
    return ops("Mul", ops("Add", away, ops.const(1.0)), faded)


def _squared(a: np.ndarray) -> np.ndarray:
    return ((a[:, None] - a) ** 2).sum(2)


KERNELS: dict[str, Kernel] = {
    "gaussian": (_gaussian, lambda a: np.exp(-0.5 / _WIDTH**2 * _squared(a))),
    "gaussian by a product": (
        _gaussian_by_product,
        lambda a: np.exp(-0.5 / _WIDTH**2 * _squared(a)),
    ),
    "gaussian in parts": (_gaussian_in_parts, lambda a: np.exp(-0.5 / _WIDTH**2 * _squared(a))),
    "laplacian": (_laplacian, lambda a: np.exp(-np.abs(a[:, None] - a).sum(2) / (10 * _WIDTH))),
    "rational": (_rational, lambda a: (1 + _squared(a) / _WIDTH**2) ** -0.5),
    "matern": (
        _matern,
        lambda a: (
            (1 + _squared(a) ** 0.5 / (3 * _WIDTH)) * np.exp(-(_squared(a) ** 0.5) / (3 * _WIDTH))
        ),
    ),
}


@pytest.mark.parametrize(
    ("columns", "preset"), ((0, "mixed"), (1, "mixed"), (2, "mixed"), (2, "fp16"))
)
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_machines(ops, device, name, columns, preset):
    """A smooth function of four numbers, as a sum over points that it is known at."""
    build, kernel = KERNELS[name]
    points = _GIVEN.astype(np.float64)
    known = np.stack([np.sin(points @ [1, 2, -1, 1]), points @ [2, -1, 1, 0]], 1)
    weights = np.linalg.solve(kernel(points) + 0.02 * np.eye(_POINTS), known)
    y = build(ops, ops.input(7, 4))
    ops.output(ops("MatMul", y, ops.const(weights[:, :columns] if columns else weights[:, 0])))
    ops.check(device, preset, tolerance=5e-3)


def _mean(ops: Ops, x: str) -> str:
    return ops("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=0)


def _blurred(ops: Ops, x: str) -> str:
    bell = np.outer([1, 2, 1], [1, 2, 1]).reshape(1, 1, 3, 3) / 16
    return ops("Conv", x, ops.const(np.repeat(bell, 2, 0)), group=2, pads=[1] * 4)


def _image(ops: Ops) -> str:
    return ops("MaxPool", ops.input(1, 2, 12, 14, low=0.6, high=0.7), kernel_shape=[1, 1])


def _guided_filter(ops: Ops) -> str:
    x, y = _image(ops), _image(ops)
    mx, my = _mean(ops, x), _mean(ops, y)
    covariance = ops("Sub", _mean(ops, ops("Mul", x, y)), ops("Mul", mx, my))
    variance = ops("Sub", _mean(ops, ops("Mul", x, x)), ops("Mul", mx, mx))
    a = ops("Div", covariance, ops("Add", variance, ops.const(1e-5)))
    return ops("Add", ops("Mul", a, x), ops("Sub", my, ops("Mul", a, mx)))


def _similarity(ops: Ops) -> str:
    """The structure term of SSIM, with a Gaussian window as a depthwise convolution."""
    x, y = _image(ops), _image(ops)
    mx, my = _blurred(ops, x), _blurred(ops, y)
    sxy = ops("Sub", _blurred(ops, ops("Mul", x, y)), ops("Mul", mx, my))
    sxx = ops("Sub", _blurred(ops, ops("Mul", x, x)), ops("Mul", mx, mx))
    syy = ops("Sub", _blurred(ops, ops("Mul", y, y)), ops("Mul", my, my))
    above = ops("Add", ops("Mul", sxy, ops.const(2.0)), ops.const(9e-4))
    return ops("Div", above, ops("Add", ops("Add", sxx, syy), ops.const(9e-4)))


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_differences(ops, device, preset):
    ops.output(_guided_filter(ops), _similarity(ops))
    ops.check(device, preset, tolerance=2e-2)


def _mask(rows: int, keys: int) -> np.ndarray:
    mask = np.random.default_rng(0).random((rows, keys)) < 0.5
    mask[3] = True
    return mask


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_softmax(ops, device, preset):
    mask = _mask(6, 50)
    x = ops("MaxPool", ops.input(1, 8, 6, 50), kernel_shape=[1, 1])
    added = ops("Add", x, ops.const(np.where(mask, -1e9, 0.0)))
    chosen = ops("Where", ops.const(mask, np.bool_), ops.const(-3.4e38), x)
    ops.output(ops("Softmax", added, axis=-1), ops("Softmax", chosen, axis=-1))
    ops.check(device, preset, tolerance=1e-3)


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_attention(ops, device, preset):
    q, k, v = (ops("Tanh", ops.input(1, 2, 40, 32)) for _ in range(3))
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    masked = ops("Add", scores, ops.const(np.where(_mask(40, 40), -1e9, 0.0)))
    ops.output(ops("Relu", ops("MatMul", ops("Softmax", masked, axis=-1), v)))
    ops.check(device, preset, tolerance=1e-3)
    assert "attention" in ops.kernels


HEADS, TOKENS, CHANNELS = 2, 80, 16
LARGEST = 60.0
"""Of queries and keys: 80 tokens of products are up to 1e7 with those of the queries."""


def _held_attention(ops: Ops, low: float = -LARGEST) -> str:
    """Queries, keys or values, in a memory of their own."""
    x = ops.input(1, HEADS, TOKENS, CHANNELS, low=low, high=LARGEST)
    return ops("MaxPool", x, kernel_shape=[1, 1])


def _queries_and_keys(ops: Ops) -> tuple[str, str]:
    return ops("Relu", _held_attention(ops)), ops("Relu", _held_attention(ops))


def _with_ones(ops: Ops) -> str:
    """The denominator is a further column, as EfficientViT has it."""
    (q, k), v = _queries_and_keys(ops), _held_attention(ops)
    ones = ops.const(np.ones((1, HEADS, TOKENS, 1)))
    context = ops("MatMul", ops("Transpose", k, perm=[0, 1, 3, 2]), ops("Concat", v, ones, axis=3))
    both = ops("MatMul", q, context)
    over, under = (
        ops("Slice", both, ops.ints(first), ops.ints(end), ops.ints(3))
        for first, end in ((0, CHANNELS), (CHANNELS, CHANNELS + 1))
    )
    return ops("Div", over, ops("Add", under, ops.const(1e-15)))


def _by_reciprocal(ops: Ops) -> str:
    """The sum of the keys is multiplied apart, and its reciprocal too."""
    (q, k), v = _queries_and_keys(ops), _held_attention(ops)
    total = ops("ReduceSum", k, ops.ints(2))
    under = ops("MatMul", q, ops("Transpose", total, perm=[0, 1, 3, 2]))
    context = ops("MatMul", ops("Transpose", k, perm=[0, 1, 3, 2]), v)
    inverse = ops("Reciprocal", ops("Add", under, ops.const(1.0)))
    return ops("Mul", ops("MatMul", q, context), inverse)


def _by_einsum(ops: Ops) -> str:
    (q, k), v = _queries_and_keys(ops), _held_attention(ops)
    context = ops("Einsum", k, v, equation="bhnd,bhne->bhde")
    over = ops("Einsum", q, context, equation="bhnd,bhde->bhne")
    under = ops("Einsum", q, ops("ReduceSum", k, ops.ints(2), keepdims=0), equation="bhnd,bhd->bhn")
    return ops("Div", over, ops("Unsqueeze", ops("Add", under, ops.const(1e-6)), ops.ints(3)))


def _of_products(ops: Ops) -> str:
    """Scores of every pair, divided by their sums: what softmax is without its exponentials."""
    q, k = _queries_and_keys(ops)
    v = _held_attention(ops)
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    scores = ops("Mul", scores, scores)
    return ops("MatMul", ops("Div", scores, ops("ReduceSum", scores, ops.ints(3))), v)


KINDS: dict[str, Callable[[Ops], str]] = {
    "with_ones": _with_ones,
    "by_reciprocal": _by_reciprocal,
    "by_einsum": _by_einsum,
    "of_products": _of_products,
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_not_overflow(ops, device, kind):
    ops.output(ops("Mul", KINDS[kind](ops), ops.const(0.5)))
    ops.check(device, "mixed", tolerance=1e-2)
    assert any(d.taken == "float32" for d in ops.decisions)


def test_attention_with_a_softmax_stays_in_half(ops, device):
    q, k, v = (_held_attention(ops, low=-1.0) for _ in range(3))
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    scaled = ops("Div", ops("Relu", scores), ops.const(np.full((1, HEADS, 1, 1), 400.0)))
    ops.output(ops("MatMul", ops("Softmax", scaled, axis=-1), v))
    ops.run(device, "mixed")
    assert not any("ratio" in d.reason for d in ops.decisions)


Map = Callable[[Ops, str], str]


def _held_arithmetic(ops: Ops, values) -> str:
    """A tensor between kernels that holds these values, rounded to half."""
    values = np.asarray(values, np.float16).astype(np.float32)
    name = ops.input(*values.shape)
    ops.given(name, values)
    return ops("MaxPool", name, kernel_shape=[1, 1])


def _square_root_of_square(ops: Ops, x: str) -> str:
    return ops("Sqrt", ops("Pow", x, ops.const(2.0)))


def _to_unit_length(ops: Ops, x: str) -> str:
    return ops("Div", x, ops("Sqrt", ops("Add", ops("Mul", x, x), ops.const(1.0))))


def _ratio(ops: Ops, x: str) -> str:
    twice = ops("Mul", x, ops.const(2.0))
    return ops(
        "Div", ops("Mul", twice, twice), ops("Add", ops("Mul", twice, twice), ops.const(1.0))
    )


def _hard_swish(ops: Ops, x: str) -> str:
    gate = ops("Clip", ops("Add", x, ops.const(3.0)), ops.const(0.0), ops.const(6.0))
    return ops("Div", ops("Mul", x, gate), ops.const(6.0))


def _gelu(ops: Ops, x: str) -> str:
    cube = ops("Mul", ops.const(0.044715), ops("Mul", x, ops("Mul", x, x)))
    inner = ops("Tanh", ops("Mul", ops.const(0.79788), ops("Add", x, cube)))
    return ops("Mul", ops("Mul", x, ops.const(0.5)), ops("Add", inner, ops.const(1.0)))


MAPS: tuple[Map, ...] = (
    _square_root_of_square,
    _to_unit_length,
    _ratio,
    _hard_swish,
    _gelu,
    lambda ops, x: ops("Softplus", x),
    lambda ops, x: ops("Mish", x),
    lambda ops, x: ops("Sigmoid", x),
    lambda ops, x: ops("Tanh", x),
    lambda ops, x: ops("Mul", ops("Mul", x, x), ops.const(1e-5)),
    lambda ops, x: ops("Clip", x, ops.const(-1e6), ops.const(3e38)),
    lambda ops, x: ops("Log", ops("Add", ops("Relu", x), ops.const(1e-9))),
)


def test_maps_of_large_numbers_do_not_overflow(ops, device):
    x = _held_arithmetic(ops, np.linspace(-3e4, 3e4, 256).reshape(1, 8, 4, 8))
    for make in MAPS:
        ops.output(make(ops, x))
    ops.check(device, "fp16", tolerance=1e-3)


def test_an_epilogue_may_leave_the_range_of_half_on_its_way(ops, device):
    x = _held_arithmetic(ops, np.random.default_rng(0).uniform(-3000.0, 3000.0, (1, 8, 16, 16)))
    result = ops("Conv", x, ops.weight(8, 8, 1, 1))
    ops.output(ops("Mul", ops("Mul", result, result), ops.const(1e-4)))
    ops.check(device, "fp16", tolerance=4e-3)


def test_long_scans_count_on(ops, device):
    x = _held_arithmetic(ops, np.ones((1, 1, 1, 5000)))
    ops.output(ops("Relu", ops("CumSum", x, ops.ints(3))))
    ops.check(device, "fp16", tolerance=1e-3)


def test_sums_that_are_scaled_down_may_be_large(ops, device):
    x = _held_arithmetic(ops, np.random.default_rng(0).uniform(-3e4, 3e4, (1, 8, 6, 5)))
    ops.output(ops("Mul", ops("ReduceL1", x, ops.ints(1)), ops.const(1e-3)))
    ops.output(ops("ReduceLogSum", ops("Abs", x), ops.ints(1)))
    ops.check(device, "fp16", tolerance=1e-3)


def test_long_products_of_activations_may_be_large_on_their_way(ops, device):
    """The first half of the products sums to more than a half holds; the second takes it back."""
    random = np.random.default_rng(0)
    right = random.uniform(0.5, 1.5, (1, 2, 512, 16))
    right[:, :, 256:] *= -1
    right -= right.mean(axis=2, keepdims=True)
    a = _held_arithmetic(ops, 500 + random.normal(0.0, 20.0, (1, 2, 20, 512)))
    ops.output(ops("Relu", ops("MatMul", a, _held_arithmetic(ops, right))))
    ops.check(device, "fp16", tolerance=2e-2)
