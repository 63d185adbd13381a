"""Numbers near zero keep their digits: no activation takes one away from what is nearly one."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.host.run_op import Ops

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


FORMS: dict[str, Form] = {
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


def _values() -> np.ndarray:
    tiny = np.logspace(-20, 0, 3000)
    return np.concatenate([tiny, -tiny, np.linspace(-80, 80, 3600)]).astype(np.float32)


def _run(device, kind: str, preset: str, values: np.ndarray) -> np.ndarray:
    ops = Ops(opset=20)
    ops.output(FORMS[kind][0](ops, x := ops.input(1, 8, 30, 40)))
    ops.given(x, values.reshape(1, 8, 30, 40))
    (seen,) = ops.run(device, preset).values()
    return seen.ravel()


@pytest.mark.parametrize("kind", FORMS)
def test_in_floats(device, kind):
    values = _values()
    seen = _run(device, kind, "fp32", values)
    with np.errstate(over="ignore"):
        expected = FORMS[kind][1](values.astype(np.float64))
    known = np.abs(expected) < 3e38
    normal = known & (np.abs(expected) > 2.0**-126)
    off = np.abs(seen - expected)[normal] / np.abs(expected[normal])
    worst = int(np.argmax(off))
    assert off[worst] <= MOST_OFF, f"{off[worst]:.1e} at {values[normal][worst]}"
    assert (np.abs(seen[~known]) > 3e38).all()


MOST_OFF = 1e-6
"""Of a value: some steps of a float."""
