"""How good a device's own functions are, over what kernels ask of them.

OpenCL leaves to each GPU what `native_exp` and its kind give.  Kernels that store halves call three
of them (`adrenoc/kernels/coarse.py`) and reckon with an error of a half's rounding at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adrenoc.lab.calibrate.measure import THREADS, Measure, MicroKernel, Tensor
from adrenoc.lab.calibrate.measures.ask import ask_kernel

MOST_ERROR = 2.0**-11
"""Of a function's result: as much as storing it as a half may be off."""
_GROUPS = 64
POINTS = _GROUPS * THREADS
_LEAST = 2.0**-126
"""The least float that is not denormal: GPUs may take what is smaller for zero."""


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function as OpenCL C has it (of `x`), and as NumPy, with the numbers that it is given.

    Errors are of the result, and of `floor` where it is smaller: around zero a logarithm's
    digits are its argument's.  Each of its `calls` may be off by `MOST_ERROR`.
    """

    name: str
    text: str
    exact: Callable[[np.ndarray], np.ndarray]
    points: np.ndarray
    floor: float = _LEAST
    calls: int = 1


def _space_evenly(first: float, last: float) -> np.ndarray:
    """Numbers at equal distances, by no step that a short table of a driver's has."""
    return np.linspace(first, last, POINTS).astype(np.float32)


def _space_signed_powers(first: float, last: float) -> np.ndarray:
    """Powers of two at equal distances, of both signs by turns."""
    signs = np.where(np.arange(POINTS) % 2, -1.0, 1.0)
    return (signs * 2.0 ** np.linspace(first, last, POINTS)).astype(np.float32)


def _logistic(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-x)))


CALLED = (
    Function(name="exp", text="native_exp(x)", exact=np.exp, points=_space_evenly(-87.0, 88.0)),
    Function(
        name="exp2", text="native_exp2(x)", exact=np.exp2, points=_space_evenly(-125.0, 127.0)
    ),
    Function(
        name="recip",
        text="native_recip(x)",
        exact=lambda x: 1.0 / x,
        points=_space_signed_powers(-20.0, 125.0),
    ),
    Function(
        name="logistic",
        text="native_recip(1.0f + native_exp(0.0f - x))",
        exact=_logistic,
        # Where the exponential is beyond every float the reciprocal has to be zero.
        points=np.concatenate(
            [
                _space_evenly(-30.0, 30.0)[:-4],
                np.array([-88.5, -65504.0, 88.5, 65504.0], np.float32),
            ]
        ),
        floor=2.0**-14,
        calls=2,
    ),
)
"""What kernels that store halves call."""


def find_error(function: Function, output: np.ndarray) -> tuple[float, str]:
    """The largest error over the result: 1 where a half does not tell it."""
    x = function.points.astype(np.float64)
    right = function.exact(x)
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(output.reshape(-1).astype(np.float64) - right)
        off = off / np.maximum(np.abs(right), function.floor)
    off = np.where(np.isnan(off), np.inf, off)
    worst = int(np.argmax(off))
    at = f"at {function.points[worst]:.6g}"
    if not np.isfinite(off[worst]):
        return 0.0, f"{output.reshape(-1)[worst]:g} for {right[worst]:.6g} {at}"
    error = float(off[worst])
    told = f"off by 2^{np.log2(error):.1f} of the result {at}" if error else "exact"
    return float(error <= function.calls * MOST_ERROR), told


def _ask(function: Function) -> Measure:
    source = (
        "__kernel void probe(__global const float* in, __global float* out) {\n"
        "  const int i = get_global_id(0);\n  const float x = in[i];\n"
        f"  out[i] = {function.text};\n}}\n"
    )
    kernel = MicroKernel(
        source=source,
        arguments=(Tensor.from_value(function.points), Tensor(shape=(POINTS,), dtype="float32")),
        threads=(POINTS, 1, 1),
        group=(THREADS, 1, 1),
    )
    return ask_kernel(
        f"function.{function.name}",
        f"how far {function.text} is off, from {function.points.min():g} "
        f"to {function.points.max():g}",
        kernel,
        lambda output: find_error(function, output),
        lambda _: "",
    )


MEASURES = tuple(map(_ask, CALLED))
