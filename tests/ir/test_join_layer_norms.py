"""Layer norms that were written out are one operator, however they were written."""

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from adrenoc.passes.rewrites.simplify import simplify
from tests.ir.import_and_run import operators
from tests.stock_tvm import run_on_cpu

op = relax.op
RNG = np.random.default_rng(2)
SHAPE = (2, 5, 12)

Build = Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]


def const(value: object) -> relax.Expr:
    return relax.const(np.asarray(value, np.float32))


GAINS = const(RNG.uniform(0.5, 1.5, 12))
OFFSETS = const(RNG.uniform(-0.5, 0.5, (1, 1, 12)))


def statistics(
    bb: relax.BlockBuilder, x: relax.Expr, axes: tuple[int, ...] = (-1,), epsilon: float = 1e-3
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """The mean, the difference to it, and the variance with epsilon."""
    mean = bb.emit(op.mean(x, list(axes), True))
    centred = bb.emit(op.subtract(x, mean))
    variance = bb.emit(op.mean(bb.emit(op.multiply(centred, centred)), list(axes), True))
    return mean, centred, bb.emit(op.add(variance, const(epsilon)))


def by_keras(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(bb, x)
    scale = bb.emit(op.multiply(bb.emit(op.rsqrt(raised)), GAINS))
    moved = bb.emit(op.multiply(bb.emit(op.negative(mean)), scale))
    return bb.emit(op.add(bb.emit(op.multiply(x, scale)), bb.emit(op.add(moved, OFFSETS))))


def by_tensorflow(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(bb, x)
    scale = bb.emit(op.multiply(bb.emit(op.rsqrt(raised)), GAINS))
    offset = bb.emit(op.subtract(OFFSETS, bb.emit(op.multiply(mean, scale))))
    return bb.emit(op.add(bb.emit(op.multiply(x, scale)), offset))


def by_torch(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    _, centred, raised = statistics(bb, x)
    normed = bb.emit(op.divide(centred, bb.emit(op.sqrt(raised))))
    return bb.emit(op.add(bb.emit(op.multiply(normed, GAINS)), OFFSETS))


def by_square(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean = bb.emit(op.mean(x, [-1], True))
    again = bb.emit(op.subtract(x, mean))
    squared = bb.emit(op.power(bb.emit(op.subtract(x, mean)), const(2)))
    raised = bb.emit(op.add(const(1e-3), bb.emit(op.mean(squared, [-1], True))))
    return bb.emit(op.multiply(bb.emit(op.multiply(GAINS, again)), bb.emit(op.rsqrt(raised))))


def without_kept_axes(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean = bb.emit(op.expand_dims(bb.emit(op.mean(x, [2], False)), [2]))
    centred = bb.emit(op.subtract(x, mean))
    spread = bb.emit(op.mean(bb.emit(op.multiply(centred, centred)), [2], False))
    raised = bb.emit(op.add(bb.emit(op.expand_dims(spread, [2])), const(1e-3)))
    return bb.emit(op.multiply(centred, bb.emit(op.rsqrt(raised))))


def over_two_axes(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    _, centred, raised = statistics(bb, x, (1, 2))
    return bb.emit(op.multiply(bb.emit(op.multiply(centred, bb.emit(op.rsqrt(raised)))), GAINS))


def simplified(build: Build) -> tvm.IRModule:
    """The simplified module, proven to compute the same as before."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
        builder.emit_func_output(result)
    before = builder.get()
    after, _ = simplify(before)
    value = (RNG.standard_normal(SHAPE) * 3 + 7).astype(np.float32)
    for a, b in zip(run_on_cpu(before, [value]), run_on_cpu(after, [value]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    return after


@pytest.mark.parametrize(
    "build", [by_keras, by_tensorflow, by_torch, by_square, without_kept_axes, over_two_axes]
)
def test_a_norm_is_one_operator(build):
    assert operators(simplified(build)) == {"nn.layer_norm": 1}


def test_gains_along_other_axes_stay_apart():
    rows = const(RNG.uniform(0.5, 1.5, (1, 5, 1)))

    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        mean, _, raised = statistics(bb, x)
        scale = bb.emit(op.multiply(bb.emit(op.rsqrt(raised)), rows))
        moved = bb.emit(op.subtract(rows, bb.emit(op.multiply(mean, scale))))
        return bb.emit(op.add(bb.emit(op.multiply(x, scale)), moved))

    assert operators(simplified(build)) == {"nn.layer_norm": 1, "multiply": 1, "add": 1}


def test_what_is_read_beside_the_norm_stays():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        _, centred, raised = statistics(bb, x)
        normed = bb.emit(op.multiply(centred, bb.emit(op.rsqrt(raised))))
        both = relax.Tuple([normed, centred])
        return bb.emit(op.concat(both, 0))

    assert operators(simplified(build)) == {
        "nn.layer_norm": 1,
        "mean": 1,
        "subtract": 1,
        "concat": 1,
    }


def test_two_norms_of_one_tensor():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        _, centred, raised = statistics(bb, x)
        normed = bb.emit(op.multiply(centred, bb.emit(op.rsqrt(raised))))
        first, second = bb.emit(op.add(normed, OFFSETS)), bb.emit(op.multiply(normed, GAINS))
        return bb.emit(op.matmul(first, bb.emit(op.permute_dims(second, [0, 2, 1]))))

    assert operators(simplified(build))["nn.layer_norm"] == 2


def _other_mean(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Centred by the mean along one axis, scaled by the spread along another."""
    _, _, raised = statistics(bb, x, (1,))
    _, centred, _ = statistics(bb, x, (2,))
    return bb.emit(op.multiply(centred, bb.emit(op.rsqrt(raised))))


def _other_sign(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(bb, x)
    return bb.emit(op.multiply(bb.emit(op.add(x, mean)), bb.emit(op.rsqrt(raised))))


def _other_gains(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    mean, _, raised = statistics(bb, x)
    scale = bb.emit(op.rsqrt(raised))
    scaled = bb.emit(op.multiply(x, bb.emit(op.multiply(scale, GAINS))))
    return bb.emit(op.subtract(scaled, bb.emit(op.multiply(mean, scale))))


def _squared(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    _, centred, raised = statistics(bb, x)
    scale = bb.emit(op.rsqrt(raised))
    return bb.emit(op.multiply(bb.emit(op.multiply(centred, scale)), scale))


def _read_beside(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """The deviation is computed all the same."""
    _, centred, raised = statistics(bb, x)
    scale = bb.emit(op.rsqrt(raised))
    normed = bb.emit(op.multiply(centred, scale))
    return bb.emit(op.multiply(normed, bb.emit(op.exp(scale))))


@pytest.mark.parametrize("build", [_other_mean, _other_sign, _other_gains, _squared, _read_beside])
def test_what_only_looks_like_a_norm_stays(build):
    assert "nn.layer_norm" not in operators(simplified(build))
