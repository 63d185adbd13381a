"""Factors that bring a tensor beyond what halves hold, at once or in several steps."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.host.run_op import Ops

Build = Callable[[Ops], str]


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
