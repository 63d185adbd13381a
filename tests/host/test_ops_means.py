"""Means that depthwise convolutions make of what they make, against onnxruntime."""

from collections.abc import Callable
from typing import Any

import pytest
from run_op import Ops

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families import depthwise
from adrenoc.kernels.families.depthwise import DepthwiseTile
from adrenoc.kernels.families.expansion import expansion_rule
from adrenoc.kernels.families.expansion.expansion_plan import ExpansionTile
from adrenoc.passes.fuse import fuse_depthwise, fuse_means

pytestmark = pytest.mark.operator


def _net(channels: int, size: tuple[int, int], *, wide: int = 0, stride: int = 1) -> Ops:
    """A depthwise convolution, of a 1x1 one to so many channels, with a gate made of its mean."""
    ops = Ops()
    x = ops.input(1, channels, *size, low=-0.5, high=1.5)
    if wide:
        x = ops("Relu", ops("Conv", x, ops.weight(wide, channels, 1, 1), ops.weight(wide)))
    made = wide or channels
    y = ops(
        "Conv",
        x,
        ops.weight(made, 1, 3, 3),
        ops.weight(made),
        group=made,
        pads=[1] * 4,
        strides=[stride] * 2,
    )
    y = ops("Mul", y, ops("Sigmoid", y))
    s = ops("Relu", ops("Conv", ops("GlobalAveragePool", y), ops.weight(5, made, 1, 1)))
    e = ops("Sigmoid", ops("Conv", s, ops.weight(made, 5, 1, 1), ops.weight(made)))
    ops.output(ops("Mul", y, e))
    return ops


def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_means, "reduction_clocks", _clocks)


def _clocks(graph: Graph, mean: Node, _: Any) -> float:
    return 1e12 if graph.producers[mean.inputs[0]].output == mean.inputs[0] else 0.0


def _only(tile: Any, parts: tuple[int, int]) -> Callable[..., list[Any]]:
    """Return the one schedule there is, whose work-groups are so many rows and columns."""
    return lambda work, *_: [tile] if work.mean_parts in (None, parts) else []


@pytest.mark.parametrize("preset", ("fp32", "mixed", "fp16", "buffer"))
@pytest.mark.parametrize(
    "tile, parts, channels, size, stride",
    [
        (DepthwiseTile(rows=1, pixels=1, work_group=(7, 5, 2)), (1, 1), 20, (5, 7), 1),
        (DepthwiseTile(rows=2, pixels=3, work_group=(4, 4, 3)), (1, 1), 21, (8, 11), 1),
        (DepthwiseTile(rows=1, pixels=2, work_group=(4, 2, 4)), (5, 2), 10, (9, 13), 1),
        (DepthwiseTile(rows=3, pixels=1, work_group=(8, 4, 1)), (2, 2), 33, (31, 17), 2),
        (DepthwiseTile(rows=4, pixels=4, work_group=(2, 3, 5)), (4, 5), 40, (40, 37), 1),
        (DepthwiseTile(rows=1, pixels=1, work_group=(1, 1, 8)), (2, 3), 9, (2, 3), 1),
    ],
    ids=str,
)
def test_a_depthwise_convolution(
    tile: DepthwiseTile,
    parts: tuple[int, int],
    channels: int,
    size: tuple[int, int],
    stride: int,
    preset: str,
    device: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _always(monkeypatch)
    monkeypatch.setattr(depthwise, "candidates", _only(tile, parts))
    ops = _net(channels, size, stride=stride)
    ops.check(device, preset)
    assert ops.kernels.count("depthwise_mean") == 1
    assert "depthwise_conv2d" not in ops.kernels


@pytest.mark.parametrize("preset", ("fp32", "mixed", "fp16", "buffer"))
@pytest.mark.parametrize(
    "tile, parts, channels, wide, size, stride",
    [
        (
            ExpansionTile(
                rows=7, columns=7, pixels=2, out_blocks=2, bands=2, work_group=(32, 1, 1)
            ),
            (1, 1),
            12,
            30,
            (7, 7),
            1,
        ),
        (
            ExpansionTile(
                rows=4,
                columns=6,
                pixels=3,
                out_blocks=1,
                bands=3,
                made_rows=2,
                made_columns=3,
                work_group=(64, 1, 1),
            ),
            (3, 3),
            16,
            40,
            (10, 13),
            1,
        ),
        (
            ExpansionTile(
                rows=3, columns=5, pixels=1, out_blocks=4, made_rows=3, work_group=(16, 1, 1)
            ),
            (4, 3),
            9,
            21,
            (19, 22),
            2,
        ),
    ],
    ids=str,
)
def test_an_expansion(
    tile: ExpansionTile,
    parts: tuple[int, int],
    channels: int,
    wide: int,
    size: tuple[int, int],
    stride: int,
    preset: str,
    device: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _always(monkeypatch)
    monkeypatch.setattr(expansion_rule, "candidates", _only(tile, parts))
    monkeypatch.setattr(fuse_depthwise, "apart_clocks", lambda *_: 1e12)
    ops = _net(channels, size, wide=wide, stride=stride)
    ops.check(device, preset)
    assert ops.kernels.count("expand_depthwise_mean") == 1


def test_others_may_read_the_mean_and_the_image(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _always(monkeypatch)
    ops = Ops()
    x = ops.input(1, 24, 12, 9)
    y = ops("Conv", x, ops.weight(24, 1, 3, 3), group=24)
    mean = ops("GlobalAveragePool", y)
    ops.output(ops("Relu", y), ops("Neg", mean), mean)
    ops.check(device, "fp32")
    assert "depthwise_mean" in ops.kernels
