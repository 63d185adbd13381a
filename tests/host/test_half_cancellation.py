"""Numbers that are nearly alike, under weights that cancel, as kernel machines have them."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.host.run_op import Ops

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
