"""Layer norms that the products after them compute, against onnxruntime."""

import random
from dataclasses import replace

import numpy as np
import pytest

from adrenoc.kernels.families.shared import machine
from tests.host.run_op import Ops

PRESETS = ("mixed", "buffer")
SEEDS = range(8)


@pytest.fixture(autouse=True)
def _slow_launches(monkeypatch) -> None:
    """Every norm that can be is computed by its products, whatever that takes."""
    known = machine.Machine.from_performance
    monkeypatch.setattr(
        machine.Machine, "from_performance", lambda *of: replace(known(*of), launch_clocks=1e9)
    )


def _add_norm(ops: Ops, x: str, depth: int, epsilon: float = 1e-5) -> str:
    gains, offsets = ops.weight(depth, around=1.0), ops.weight(depth)
    return ops("LayerNormalization", x, gains, offsets, axis=-1, epsilon=epsilon)


def _product(ops: Ops, x: str, depth: int, columns: int) -> str:
    return ops("Add", ops("MatMul", x, ops.weight(depth, columns)), ops.weight(columns))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_shapes(device, preset, seed):
    """Batches, images of tokens, short and long rows, one to three readers with their epilogues."""
    draw, ops = random.Random(seed), Ops(seed)
    depth = 4 * draw.choice((1, 2, 5, 16, 33, 48, 97))
    few, many = draw.randint(4, 9), draw.randint(9, 70)
    shape = draw.choice(((1, many), (3, 3 * few), (2, 3, few), (1, 14, 14)))
    x = ops("Tanh", ops.input(*shape, depth, low=-3.0, high=3.0))
    norm = _add_norm(ops, x, depth)
    for _ in range(draw.randint(1, 3)):
        y = _product(ops, norm, depth, draw.choice((1, 7, 20, 64, 130)))
        ops.output(ops("Relu", y) if draw.random() < 0.5 else y)
    ops.output(ops("Neg", x))
    ops.check(device, preset)
    assert "centred" in ops.kernels and "layer_norm" not in ops.kernels


@pytest.mark.parametrize("target", ("host:a660", "host:a750"))
def test_tiles_of_phones(device, target):
    """Splits and bands, several rounds of pixels, rows that no tile divides."""
    for tokens, depth, columns in ((197, 192, 576), (50, 384, 96), (23, 768, 40)):
        ops = Ops(tokens)
        x = ops("Tanh", ops.input(1, tokens, depth))
        ops.output(_product(ops, _add_norm(ops, x, depth), depth, columns), ops("Neg", x))
        ops.check(device, "mixed", target=target)
        assert ops.kernels.count("centred") == 1


@pytest.mark.parametrize("mean", (0.5, 6.0, 60.0, -60.0))
def test_means_of_many_deviations(ops, device, mean):
    """Of numbers that halves hold, 100 deviations from zero, nothing is lost but by rounding of
    weights; here these are exact, too."""
    depth = 96
    steps = np.random.default_rng(1).integers(-8, 9, (1, 30, depth)) / 8
    x = ops.input(1, 30, depth)
    ops.given(x, steps.astype(np.float32))
    moved = ops("Add", x, ops.const(np.full(depth, mean)))
    powers = 2.0 ** np.random.default_rng(2).integers(-1, 2, depth)
    norm = ops("LayerNormalization", moved, ops.const(powers), ops.weight(depth), epsilon=1e-6)
    matrix = np.random.default_rng(3).integers(-16, 17, (depth, 24)) / 64
    ops.output(ops("MatMul", norm, ops.const(matrix)), ops("Relu", moved))
    # What halves store is the result alone: off by 2^-12 of the largest.
    ops.check(device, "mixed", tolerance=3e-4)
    assert "centred" in ops.kernels


@pytest.mark.parametrize("far", (1.0, 30.0, 1000.0))
def test_rows_of_one_number(ops, device, far):
    """Their variance is zero, and not a little below: the result is the offsets' alone."""
    x = ops.input(1, 12, 64)
    ops.given(x, np.full((1, 12, 64), far, np.float32))
    read = ops("Relu", x)
    ops.output(_product(ops, _add_norm(ops, read, 64), 64, 20), ops("Neg", read))
    ops.check(device, "mixed")
    assert "centred" in ops.kernels


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_floats_and_sums_in_halves_keep_their_norm(ops, device, preset):
    x = ops("Tanh", ops.input(1, 20, 64))
    ops.output(_product(ops, _add_norm(ops, x, 64), 64, 20), ops("Neg", x))
    ops.check(device, preset)
    assert "layer_norm" in ops.kernels and "centred" not in ops.kernels
