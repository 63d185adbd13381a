"""Squeeze-and-excite blocks, two products of one vector in a kernel, against onnxruntime."""

import pytest

from adrenoc.kernels.families import excite
from adrenoc.kernels.families.excite import EXCITE
from adrenoc.kernels.families.matmul.gemv import GemvTile
from adrenoc.passes.fuse import fuse_excite
from tests.host.run_op import Ops

pytestmark = pytest.mark.operator


def _net(channels: int, hidden: int, size: tuple[int, int], middle: str, gate: str) -> Ops:
    """An image times what a block of two 1x1 convolutions makes of its mean."""
    ops = Ops()
    x = ops("Tanh", ops.input(1, channels, *size, low=-0.5, high=1.5))
    mean = ops("GlobalAveragePool", x)
    s = ops("Conv", mean, ops.weight(hidden, channels, 1, 1), ops.weight(hidden))
    s = ops("Mul", s, ops("Sigmoid", s)) if middle == "Silu" else ops(middle, s)
    e = ops("Conv", s, ops.weight(channels, hidden, 1, 1), ops.weight(channels))
    ops.output(ops("Mul", x, ops(gate, e)))
    return ops


TILES = (
    (GemvTile(work_group=(1, 64, 1), unroll=1), 7, 3, (5, 4)),
    (GemvTile(work_group=(2, 8, 1), unroll=1), 18, 10, (9, 7)),
    (GemvTile(work_group=(4, 32, 1), unroll=2), 96, 72, (7, 7)),
    (GemvTile(work_group=(8, 2, 1), unroll=1), 130, 150, (3, 11)),
    (GemvTile(work_group=(1, 2, 1), unroll=1), 21, 9, (1, 2)),
    (GemvTile(work_group=(1, 1, 1), unroll=1), 9, 5, (17, 18)),
    (GemvTile(work_group=(2, 32, 1), unroll=1), 6, 70, (5, 19)),
    (GemvTile(work_group=(4, 64, 1), unroll=2), 7, 300, (1, 90)),
    (GemvTile(work_group=(8, 32, 1), unroll=2), 50, 12, (28, 28)),
    (GemvTile(work_group=(2, 8, 1), unroll=1), 12, 4, (72, 40)),
)


@pytest.mark.parametrize("number", range(len(TILES)))
@pytest.mark.parametrize("preset", ("fp32", "mixed", "fp16", "buffer"))
def test_a_tile(number, preset, device, monkeypatch):
    tile, channels, hidden, size = TILES[number]
    monkeypatch.setattr(excite, "candidates", lambda *_: [tile])
    monkeypatch.setattr(fuse_excite, "excite_clocks", lambda *_: -1.0)
    gate = "HardSigmoid" if number % 2 else "Sigmoid"
    ops = _net(channels, hidden, size, "Relu" if number % 2 else "Silu", gate)
    ops.check(device, preset)
    assert ops.kernels.count(EXCITE) == 1
    assert not {"mean", "gemv"} & {*ops.kernels}


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_a_pool_of_the_whole_image_is_its_mean(ops, preset, device, monkeypatch):
    monkeypatch.setattr(fuse_excite, "excite_clocks", lambda *_: -1.0)
    x = ops("Tanh", ops.input(1, 20, 6, 5))
    mean = ops("AveragePool", x, kernel_shape=[6, 5])
    s = ops("Relu", ops("Conv", mean, ops.weight(6, 20, 1, 1), ops.weight(6)))
    ops.output(ops("Mul", x, ops("Sigmoid", ops("Conv", s, ops.weight(20, 6, 1, 1)))))
    ops.check(device, preset)
    assert EXCITE in ops.kernels
    assert not {"mean", "avg_pool2d"} & {*ops.kernels}


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_a_mean_that_others_read_too_stays_a_kernel(ops, preset, device, monkeypatch):
    monkeypatch.setattr(fuse_excite, "excite_clocks", lambda *_: -1.0)
    mean = ops("GlobalAveragePool", ops("Tanh", ops.input(1, 20, 6, 5)))
    s = ops("Relu", ops("Conv", mean, ops.weight(6, 20, 1, 1), ops.weight(6)))
    ops.output(ops("Sigmoid", ops("Conv", s, ops.weight(12, 6, 1, 1))), ops("Neg", mean))
    ops.check(device, preset)
    assert {"mean", EXCITE} <= {*ops.kernels}


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_matrices_of_a_vector(ops, preset, device, monkeypatch):
    """As networks with fully connected layers have them: no convolution takes part."""
    monkeypatch.setattr(fuse_excite, "excite_clocks", lambda *_: -1.0)
    x = ops("Tanh", ops.input(1, 22, 6, 5))
    mean = ops("ReduceMean", x, ops.ints(2, 3), keepdims=0)
    s = ops("Relu", ops("Add", ops("MatMul", mean, ops.weight(22, 7)), ops.weight(7)))
    e = ops("Sigmoid", ops("Add", ops("MatMul", s, ops.weight(7, 22)), ops.weight(22)))
    ops.output(ops("Mul", x, ops("Reshape", e, ops.ints(1, 22, 1, 1))))
    ops.check(device, preset)
    assert EXCITE in ops.kernels
