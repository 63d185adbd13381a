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


Reader = tuple[tuple[int, ...], str, dict[str, tuple[int, ...]]]
"""The shape of the data, what reads it, and constants: `k` of usual size, `b` a thousandth."""


def _build(ops: Ops, reader: Reader, size: float) -> str:
    shape, nodes, shapes = reader
    sizes = {"k": 1.0, "b": size * 1e-3}
    held = {n: ops.values(*form) * sizes.get(n, size) for n, form in shapes.items()}
    return _back(ops, ops.text(nodes, x=_held(ops, size, *shape), row=[1, 1, 1, 20], **held), size)


def _conv(channels: tuple[int, int], kernel: int, side: int = 9, group: int = 1) -> Reader:
    into, out = channels
    nodes = f"c = Conv <group = {group}, pads = {[kernel // 2] * 4}>(x, w, b) y = Relu(c)"
    weights = {"w": (out, into // group, kernel, kernel), "b": (out,)}
    return (1, into, side, side + 1), nodes, weights


def _prologue(ops: Ops, size: float) -> str:
    """A factor of each channel that a convolution would compute where it reads."""
    scaled = ops("Mul", _held(ops, size, 1, 8, 12, 12), _vector(ops, size, 8, 1, 1))
    y = ops("Conv", ops("Relu", scaled), ops.weight(16, 8, 1, 1))
    return ops("Mul", y, ops.const(1e-3 if size == LARGE else 1 / size))


def _sum(ops: Ops, size: float) -> str:
    """The data is as large as what is added, in a kernel that holds it in float."""
    x = ops("Mul", _held(ops, size, 1, 8, 6, 5), ops.const(1e9 if size == LARGE else size))
    y = ops("Relu", ops("Add", x, _vector(ops, size, 8, 1, 1)))
    return ops("Mul", y, ops.const(1 / size))


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


READERS: dict[str, Reader | Build] = {
    "conv_1x1": _conv((12, 20), 1),
    "conv_3x3": _conv((12, 20), 3),
    "conv_3x3_winograd": _conv((128, 128), 3, side=28),
    "depthwise": _conv((12, 12), 3, group=12),
    "conv_transposed": (
        *((1, 8, 6, 5), "y = ConvTranspose <strides = [2, 2]>(x, w)"),
        {"w": (8, 6, 2, 2)},
    ),
    # A depthwise convolution and a 1x1 one that would be one kernel.
    "pair": (
        (1, 16, 24, 24),
        "d = Conv <group = 16, pads = [1, 1, 1, 1]>(x, k) r = Relu(d) y = Conv(r, w)",
        {"k": (16, 1, 3, 3), "w": (24, 16, 1, 1)},
    ),
    # A concatenation that is written in place.
    "joined": (
        (1, 8, 6, 5),
        "a = Conv(x, w) c = Conv(x, v) y = Concat <axis = 1>(a, c)",
        {"w": (8, 8, 1, 1), "v": (4, 8, 1, 1)},
    ),
    "prologue": _prologue,
    "gemv": ((1, 1, 1, 24), "y = MatMul(x, w)", {"w": (24, 20)}),
    "matmul": ((1, 1, 150, 24), "y = MatMul(x, w)", {"w": (24, 20)}),
    "batched": ((1, 3, 7, 24), "y = MatMul(x, w)", {"w": (1, 3, 24, 20)}),
    "gemm": (
        (1, 24, 1, 1),
        "f = Flatten(x) g = Gemm <transB = 1>(f, w, b) y = Reshape(g, row)",
        {"w": (20, 24), "b": (20,)},
    ),
    "factor": ((1, 8, 6, 5), "y = Mul(x, w)", {"w": (8, 1, 1)}),
    "sum": _sum,
    # A factor of each channel in the epilogue of a convolution, after a function.
    "after_product": (
        (1, 8, 9, 10),
        "c = Conv <pads = [1, 1, 1, 1]>(x, k) t = Tanh(c) y = Mul(t, w)",
        {"k": (12, 8, 3, 3), "w": (12, 1, 1)},
    ),
    "table": _table,
    "norm": _norm,
}


@pytest.mark.parametrize("size", (LARGE, SMALL))
@pytest.mark.parametrize("preset", ("mixed", "fp16"))
@pytest.mark.parametrize("name", READERS)
def test_constants_beyond_half_are_floats(ops, device, name, preset, size):
    reader = READERS[name]
    ops.output(reader(ops, size) if callable(reader) else _build(ops, reader, size))
    ops.check(device, preset, tolerance=4e-3)
    assert any(d.taken == "float32" for d in ops.decisions)
    assert not any(d.taken.startswith("infinite") for d in ops.decisions)


_POINTS = 48
_WIDTH = 6.0
"""How wide a kernel is beside the data, which is between -1 and 1: all its numbers are near one."""

_GIVEN = np.random.default_rng(1).uniform(-1, 1, (_POINTS, 4)).astype(np.float32)
Kernel = tuple[str, Callable[[np.ndarray], np.ndarray]]


def _squared(a: np.ndarray) -> np.ndarray:
    return ((a[:, None] - a) ** 2).sum(2)


def _gaussian(a: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 / _WIDTH**2 * _squared(a))


def _matern(a: np.ndarray) -> np.ndarray:
    away = _squared(a) ** 0.5 / (3 * _WIDTH)
    return (1 + away) * np.exp(-away)


_BETWEEN = "u = Unsqueeze(x, one) b = Sub(u, given) "
_SQUARES = f"{_BETWEEN} p = Mul(b, b) s = ReduceSum <keepdims = 0>(p, two) "
_BELL = "m = Mul(s, narrow) y = Exp(m)"
_PARTS = " ".join(
    f"b{i} = Sub(x, g{i}) p{i} = Mul(b{i}, b{i}) s{i} = ReduceSum <keepdims = 1>(p{i}, one)"
    for i in range(_POINTS)
)
"""Point by point, as a Scan over them is imported."""
_HELD = {
    **{"one": [1], "two": [2], "given": _GIVEN, "turned": -2 * _GIVEN.T},
    **{"lengths": (_GIVEN**2).sum(1), "narrow": -0.5 / _WIDTH**2, "far": -10 * _WIDTH},
    **{"area": _WIDTH**2, "unit": 1.0, "root": -0.5, "wide": 3 * _WIDTH},
    **{f"g{i}": point for i, point in enumerate(_GIVEN)},
}


KERNELS: dict[str, Kernel] = {
    "gaussian": (_SQUARES + _BELL, _gaussian),
    "gaussian by a product": (
        "p = Mul(x, x) own = ReduceSum <keepdims = 1>(p, one) mixed = MatMul(x, turned) "
        f"a = Add(own, mixed) s = Add(a, lengths) {_BELL}",
        _gaussian,
    ),
    "gaussian in parts": (
        f"{_PARTS} s = Concat <axis = 1>({', '.join(f's{i}' for i in range(_POINTS))}) {_BELL}",
        _gaussian,
    ),
    "laplacian": (
        f"{_BETWEEN} a = Abs(b) t = ReduceSum <keepdims = 0>(a, two) m = Div(t, far) y = Exp(m)",
        lambda a: np.exp(-np.abs(a[:, None] - a).sum(2) / (10 * _WIDTH)),
    ),
    "rational": (
        f"{_SQUARES} d = Div(s, area) m = Add(d, unit) y = Pow(m, root)",
        lambda a: (1 + _squared(a) / _WIDTH**2) ** -0.5,
    ),
    "matern": (
        f"{_SQUARES} r = Sqrt(s) away = Div(r, wide) n = Neg(away) faded = Exp(n) "
        "m = Add(away, unit) y = Mul(m, faded)",
        _matern,
    ),
}


@pytest.mark.parametrize(
    ("columns", "preset"), ((0, "mixed"), (1, "mixed"), (2, "mixed"), (2, "fp16"))
)
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_machines(ops, device, name, columns, preset):
    """A smooth function of four numbers, as a sum over points that it is known at."""
    nodes, kernel = KERNELS[name]
    points = _GIVEN.astype(np.float64)
    known = np.stack([np.sin(points @ [1, 2, -1, 1]), points @ [2, -1, 1, 0]], 1)
    weights = np.linalg.solve(kernel(points) + 0.02 * np.eye(_POINTS), known)
    y = ops.text(nodes, x=ops.input(7, 4), **_HELD)
    ops.output(ops("MatMul", y, ops.const(weights[:, :columns] if columns else weights[:, 0])))
    ops.check(device, preset, tolerance=5e-3)


def _image(ops: Ops) -> str:
    return ops("MaxPool", ops.input(1, 2, 12, 14, low=0.6, high=0.7), kernel_shape=[1, 1])


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_differences(ops, device, preset):
    """A guided filter, and the structure term of SSIM with its window as a convolution."""
    products = "xy = Mul(x, y) xx = Mul(x, x) yy = Mul(y, y) "
    means = "mxy = Mul(mx, my) mxx = Mul(mx, mx) myy = Mul(my, my) "
    apart = "sxy = Sub(bxy, mxy) sxx = Sub(bxx, mxx) syy = Sub(byy, myy) "

    def averaged(operator: str, taps: str) -> str:
        pairs = {"mx": "x", "my": "y", "bxy": "xy", "bxx": "xx", "byy": "yy"}
        return " ".join(f"{to} = {operator}({of}{taps})" for to, of in pairs.items())

    pool = "AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 0>"
    guided = (
        f"{products} {averaged(pool, '')} {means} {apart} v = Add(sxx, e5) a = Div(sxy, v) "
        "f = Mul(a, x) g = Mul(a, mx) h = Sub(my, g) z = Add(f, h)"
    )
    blur = "Conv <group = 2, pads = [1, 1, 1, 1]>"
    similarity = (
        f"{products} {averaged(blur, ', bell')} {means} {apart} t = Mul(sxy, two) u = Add(t, e4) "
        "v = Add(sxx, syy) w = Add(v, e4) z = Div(u, w)"
    )
    bell = np.repeat(np.outer([1, 2, 1], [1, 2, 1]).reshape(1, 1, 3, 3) / 16, 2, 0)
    for nodes in (guided, similarity):
        images = {name: _image(ops) for name in "xy"}
        ops.output(ops.text(nodes, **images, bell=bell, two=2.0, e4=9e-4, e5=1e-5))
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


_TURNED = "t = Transpose <perm = [0, 1, 3, 2]>(k) "
KINDS = {
    # The denominator is a further column, as EfficientViT has it.
    "with_ones": (
        f"{_TURNED} w = Concat <axis = 3>(v, ones) c = MatMul(t, w) both = MatMul(q, c) "
        "over = Slice(both, first, last, axis) under = Slice(both, last, end, axis) "
        "u = Add(under, e15) y = Div(over, u)"
    ),
    # The sum of the keys is multiplied apart, and its reciprocal too.
    "by_reciprocal": (
        f"{_TURNED} s = ReduceSum(k, two) r = Transpose <perm = [0, 1, 3, 2]>(s) "
        "under = MatMul(q, r) c = MatMul(t, v) u = Add(under, unit) i = Reciprocal(u) "
        "over = MatMul(q, c) y = Mul(over, i)"
    ),
    "by_einsum": (
        'c = Einsum <equation = "bhnd,bhne->bhde">(k, v) '
        'over = Einsum <equation = "bhnd,bhde->bhne">(q, c) s = ReduceSum <keepdims = 0>(k, two) '
        'under = Einsum <equation = "bhnd,bhd->bhn">(q, s) u = Add(under, e6) '
        "w = Unsqueeze(u, axis) y = Div(over, w)"
    ),
    # Scores of every pair, divided by their sums: what softmax is without its exponentials.
    "of_products": (
        f"{_TURNED} p = MatMul(q, t) s = Mul(p, p) r = ReduceSum(s, axis) d = Div(s, r) "
        "y = MatMul(d, v)"
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_not_overflow(ops, device, kind):
    q, k = (ops("Relu", _held_attention(ops)) for _ in range(2))
    held = {"ones": np.ones((1, HEADS, TOKENS, 1)), "unit": 1.0, "e6": 1e-6, "e15": 1e-15}
    held |= {"first": [0], "last": [CHANNELS], "end": [CHANNELS + 1], "axis": [3], "two": [2]}
    ops.output(
        ops("Mul", ops.text(KINDS[kind], q=q, k=k, v=_held_attention(ops), **held), ops.const(0.5))
    )
    ops.check(device, "mixed", tolerance=1e-2)
    assert any(d.taken == "float32" for d in ops.decisions)


def test_attention_with_a_softmax_stays_in_half(ops, device):
    q, k, v = (_held_attention(ops, low=-1.0) for _ in range(3))
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    scaled = ops("Div", ops("Relu", scores), ops.const(np.full((1, HEADS, 1, 1), 400.0)))
    ops.output(ops("MatMul", ops("Softmax", scaled, axis=-1), v))
    ops.run(device, "mixed")
    assert not any("ratio" in d.reason for d in ops.decisions)


def _held_arithmetic(ops: Ops, values) -> str:
    """A tensor between kernels that holds these values, rounded to half."""
    values = np.asarray(values, np.float16).astype(np.float32)
    name = ops.input(*values.shape)
    ops.given(name, values)
    return ops("MaxPool", name, kernel_shape=[1, 1])


MAPS = (
    "s = Pow(x, two) y = Sqrt(s)",
    "s = Mul(x, x) m = Add(s, one) l = Sqrt(m) y = Div(x, l)",
    "t = Mul(x, two) s = Mul(t, t) r = Mul(t, t) m = Add(r, one) y = Div(s, m)",
    "a = Add(x, three) g = Clip(a, zero, six) p = Mul(x, g) y = Div(p, six)",
    # GELU by a hyperbolic tangent.
    "s = Mul(x, x) c = Mul(x, s) d = Mul(cubic, c) e = Add(x, d) f = Mul(root, e) t = Tanh(f) "
    "h = Mul(x, half) u = Add(t, one) y = Mul(h, u)",
    *(f"y = {op}(x)" for op in ("Softplus", "Mish", "Sigmoid", "Tanh")),
    "s = Mul(x, x) y = Mul(s, e5)",
    "y = Clip(x, lowest, highest)",
    "r = Relu(x) m = Add(r, e9) y = Log(m)",
)


def test_maps_of_large_numbers_do_not_overflow(ops, device):
    x = _held_arithmetic(ops, np.linspace(-3e4, 3e4, 256).reshape(1, 8, 4, 8))
    held = {"zero": 0.0, "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0}
    held |= {"cubic": 0.044715, "root": 0.79788, "e5": 1e-5, "e9": 1e-9}
    held |= {"lowest": -1e6, "highest": 3e38}
    for nodes in MAPS:
        ops.output(ops.text(nodes, x=x, **held))
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
