"""The GPU's own functions, our error function, dynamic quanta, and digits of small numbers."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.host.run_op import Ops, relative_error

_HALF_EPSILON = 2.0**-11

FORMS: dict[str, Callable[[Ops, str], str]] = {
    "sigmoid": lambda ops, x: ops("Sigmoid", x),
    "swish": lambda ops, x: ops("Mul", x, ops("Sigmoid", x)),
    "spelled": lambda ops, x: ops(
        "Div", ops.const(1.0), ops("Add", ops.const(1.0), ops("Exp", ops("Neg", x)))
    ),
    "tanh": lambda ops, x: ops("Tanh", x),
    "gelu": lambda ops, x: ops(
        "Mul", x, ops("Add", ops("Erf", ops("Div", x, ops.const(2**0.5))), ops.const(1.0))
    ),
    "sixth": lambda ops, x: ops("Div", ops("Mul", x, x), ops.const(6.0)),
}


def _values() -> np.ndarray:
    spread = np.linspace(-30, 30, 9000)
    tiny = np.logspace(-6, 0, 294)
    beyond = [1e3, -1e3, 6e4, -6e4, 88.5, -88.5, 0.0, 44.5, -44.5, 4.0, -4.0, 20.0]
    return np.concatenate([spread, tiny, -tiny, beyond]).astype(np.float16).astype(np.float32)


def _run(device, kind: str, preset: str) -> tuple[np.ndarray, np.ndarray]:
    """What the device stores in between, read by a pool that only moves it, and the reference."""
    ops = Ops()
    x = ops.input(1, 8, 30, 40)
    window = {"kernel_shape": [1, 1], "strides": [2, 2]}
    ops.output(ops("MaxPool", FORMS[kind](ops, x), **window))
    ops.given(x, _values().reshape(1, 8, 30, 40))
    (seen,), (expected,) = ops.run(device, preset).values(), ops.reference().values()
    return seen, expected


@pytest.mark.parametrize("preset", ["mixed", "fp16"])
@pytest.mark.parametrize("kind", FORMS)
def test_they_are_off_by_what_halves_are(device, kind, preset):
    seen, expected = _run(device, kind, preset)
    known = np.abs(expected) < 65504
    off = np.abs(seen - expected)[known]
    # Half of a step for what is stored, as much for a driver's own; sums of one and -1 lose digits.
    allowed = 2 * _HALF_EPSILON * np.abs(expected[known]) + 1e-5
    assert (off <= allowed).all(), f"{(off / allowed).max():.2f}"
    assert not np.isnan(seen).any()


def test_tanh_keeps_its_digits_in_floats(ops, device):
    ops.output(ops("Tanh", x := ops.input(1, 8, 30, 40)))
    special = [math.inf, -math.inf, math.nan, 0.0, 7.9, -8.0]
    spread = np.concatenate([np.linspace(-12, 12, 9000), np.logspace(-30, 0, 594), special])
    values = spread.astype(np.float32)
    ops.given(x, values.reshape(1, 8, 30, 40))
    (seen,) = ops.run(device, "fp32").values()
    expected = np.tanh(values.astype(np.float64))
    known = ~np.isnan(expected)
    off = np.abs(seen.ravel() - expected)
    assert np.isnan(seen.ravel()[~known]).all()
    assert (off[known] <= 5e-7 * np.abs(expected[known])).all()


MOST_OFF = 5e-7
"""Of a value, as the rational function is in floats."""


def test_small_and_large_numbers_keep_their_digits(ops, device):
    ops.output(ops("Erf", name := ops.input(1, 8, 30, 40)))
    spread = np.linspace(-6, 6, 9000)
    tiny = np.logspace(-30, 0, 588)
    special = [math.inf, -math.inf, math.nan, 0.0, 4.0, -4.0]
    values = np.concatenate([spread, tiny[:297], -tiny[:297], special]).astype(np.float32)
    ops._inputs[name] = values.reshape(1, 8, 30, 40)
    (seen,) = ops.run(device, "fp32").values()
    expected = np.array([math.erf(float(v)) for v in values])
    off = np.abs(seen.ravel() - expected)
    assert np.isnan(seen.ravel()[np.isnan(expected)]).all()
    known = ~np.isnan(expected)
    assert (off[known] <= MOST_OFF * np.abs(expected[known])).all()


@pytest.mark.parametrize("preset", ["fp32", "mixed", "fp16"])
def test_after_a_product(ops, device, preset):
    """GELU as epilogue, of channels that fill no block, and of lanes put together."""
    rng = np.random.default_rng(4)
    weight = ops.const(rng.standard_normal((12, 21)).astype(np.float32) / 3)
    product = ops("Add", ops("MatMul", ops.input(1, 9, 12), weight), ops.const(0.3))
    half = ops("Erf", ops("Mul", product, ops.const(0.5**0.5)))
    gelu = ops("Mul", ops("Mul", product, ops("Add", half, ops.const(1.0))), ops.const(0.5))
    ops.output(gelu)
    ops.output(ops("Erf", ops("Concat", ops.input(1, 3, 4, 5), ops.input(1, 2, 4, 5), axis=1)))
    seen, expected = ops.run(device, preset), ops.reference()
    for name, value in seen.items():
        assert relative_error(value, expected[name]) < (2e-6 if preset == "fp32" else 4e-3)


def _product(ops: Ops, x: str, channels: int) -> str:
    """A product of matrices as onnxruntime's dynamic quantisation writes it."""
    q, scale, zero = ops.several("DynamicQuantizeLinear", [x], ["q", "scale", "zero"])
    weight = ops.const(np.rint(ops.values(channels, channels) * 250), np.int8)
    whole = ops("MatMulInteger", q, weight, zero)
    scaled = ops("Mul", ops("Cast", whole, to=1), ops("Mul", scale, ops.const(0.004)))
    return ops("Add", scaled, ops.weight(channels))


def test_what_is_quantised_by_its_own_range_stays_in_float32(device):
    """Through the norm to the sum that it is of, as between the layers of a BERT."""
    ops = Ops(seed=3)
    x = ops.input(1, 24, 32)
    total = ops("Add", _product(ops, x, 32), x)
    normed = ops("LayerNormalization", total, ops.weight(32, around=1.0), ops.weight(32), axis=-1)
    ops.output(ops("Relu", _product(ops, normed, 32)))
    ops.check(device, "mixed", tolerance=1e-3)
    assert any("dynamic quantisations are computed" in d.reason for d in ops.decisions)


Form = tuple[Callable[[Ops, str], str], Callable[[np.ndarray], np.ndarray]]

_SELU = (1.67326319217681884765625, 1.05070102214813232421875)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _elu(x: np.ndarray, alpha: float = 1.0, scale: float = 1.0) -> np.ndarray:
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _spelled(*steps: tuple[str, float | None]) -> Callable[[Ops, str], str]:
    """Operators one after another, with a constant as second operand of those that have one."""

    def build(ops: Ops, x: str) -> str:
        for kind, number in steps:
            x = ops(kind, x) if number is None else ops(kind, x, ops.const(number))
        return x

    return build


SMALL: dict[str, Form] = {
    "elu": (lambda ops, x: ops("Elu", x), _elu),
    "elu of alpha": (lambda ops, x: ops("Elu", x, alpha=0.3), lambda x: _elu(x, 0.3)),
    "selu": (lambda ops, x: ops("Selu", x), lambda x: _elu(x, *_SELU)),
    "celu": (
        lambda ops, x: ops("Celu", x, alpha=1.7),
        lambda x: np.maximum(x, 0) + 1.7 * np.expm1(np.minimum(x, 0) / 1.7),
    ),
    "softplus": (lambda ops, x: ops("Softplus", x), _softplus),
    "mish": (lambda ops, x: ops("Mish", x), lambda x: x * np.tanh(_softplus(x))),
    "sigmoid": (lambda ops, x: ops("Sigmoid", x), lambda x: 1 / (1 + np.exp(-x))),
    "swish": (lambda ops, x: ops("Mul", x, ops("Sigmoid", x)), lambda x: x / (1 + np.exp(-x))),
    "tanh": (lambda ops, x: ops("Tanh", x), np.tanh),
    "sinh": (lambda ops, x: ops("Sinh", x), np.sinh),
    "asinh": (lambda ops, x: ops("Asinh", x), np.arcsinh),
    "exp - 1": (_spelled(("Exp", None), ("Sub", 1.0)), np.expm1),
    "-1 + exp": (_spelled(("Exp", None), ("Add", -1.0)), np.expm1),
    "2 exp - 2": (_spelled(("Exp", None), ("Mul", 2.0), ("Sub", 2.0)), lambda x: 2 * np.expm1(x)),
    "1 - exp": (lambda ops, x: ops("Sub", ops.const(1.0), ops("Exp", x)), lambda x: -np.expm1(x)),
    "log(1 + |x|)": (
        _spelled(("Abs", None), ("Add", 1.0), ("Log", None)),
        lambda x: np.log1p(np.abs(x)),
    ),
    "log(1 - x^2 / 8000)": (
        lambda ops, x: ops(
            "Log", ops("Sub", ops.const(1.0), ops("Div", ops("Mul", x, x), ops.const(8192.0)))
        ),
        lambda x: np.log1p(-x * x / 8192),
    ),
    "log(1 + exp)": (_spelled(("Exp", None), ("Add", 1.0), ("Log", None)), _softplus),
}


def _small_values() -> np.ndarray:
    tiny = np.logspace(-20, 0, 3000)
    return np.concatenate([tiny, -tiny, np.linspace(-80, 80, 3600)]).astype(np.float32)


def _run_small(device, kind: str, preset: str, values: np.ndarray) -> np.ndarray:
    ops = Ops(opset=20)
    ops.output(SMALL[kind][0](ops, x := ops.input(1, 8, 30, 40)))
    ops.given(x, values.reshape(1, 8, 30, 40))
    (seen,) = ops.run(device, preset).values()
    return seen.ravel()


@pytest.mark.parametrize("kind", SMALL)
def test_in_floats(device, kind):
    values = _small_values()
    seen = _run_small(device, kind, "fp32", values)
    with np.errstate(over="ignore"):
        expected = SMALL[kind][1](values.astype(np.float64))
    known = np.abs(expected) < 3e38
    normal = known & (np.abs(expected) > 2.0**-126)
    off = np.abs(seen - expected)[normal] / np.abs(expected[normal])
    worst = int(np.argmax(off))
    assert off[worst] <= MOST_SMALL_OFF, f"{off[worst]:.1e} at {values[normal][worst]}"
    assert (np.abs(seen[~known]) > 3e38).all()


MOST_SMALL_OFF = 1e-6
"""Of a value: some steps of a float."""
