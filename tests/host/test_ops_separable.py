"""Depthwise convolutions that the 1x1 convolution after them computes, against onnxruntime."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from run_op import Ops

from adrenoc.kernels.families.separable import separable_rule as rules
from adrenoc.kernels.families.separable.separable import SeparableTile
from adrenoc.kernels.families.separable.separable_tile import score_tiles
from adrenoc.kernels.families.shared.conv_tile_shape import Route
from adrenoc.kernels.families.shared.scored import Scored
from adrenoc.passes.fuse import fuse_separable

pytestmark = pytest.mark.operator

WHOLE = 5
"""Input blocks of the tests' tensors."""


def _tile(pixels: int, out_blocks: int, group: tuple[int, int, int], **more: Any) -> SeparableTile:
    return SeparableTile(
        pixels=pixels, out_blocks=out_blocks, route=Route.LOCAL, work_group=group, **more
    )


CASES = (
    (_tile(2, 6, (4, 4, 1), chunk=WHOLE), 3, {"pads": [1, 1, 1, 1]}, "Clip"),
    (_tile(3, 2, (4, 2, 2), bands=2, rolled=True), 3, {"strides": [2, 2]}, "HardSwish"),
    (_tile(1, 3, (8, 2, 2), split_k=2), 3, {"pads": [2] * 4, "dilations": [2, 2]}, "Sigmoid"),
    (
        _tile(2, 4, (2, 4, 4), bands=2, split_k=2, chunk=3, rolled=True),
        5,
        {"pads": [1, 2, 2, 1], "strides": [2, 1]},
        "Relu",
    ),
    (_tile(7, 1, (2, 3, 2), bands=2, chunk=WHOLE, rolled=True), 7, {"pads": [3] * 4}, ""),
)


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("preset", ("fp32", "mixed", "fp16", "buffer"))
def test_a_tile(number: int, preset: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tile, kernel, attrs, between = CASES[number]
    monkeypatch.setattr(rules, "score_tiles", lambda *_: Scored(lambda: [tile], lambda _: 0.0))
    monkeypatch.setattr(fuse_separable, "score_tiles", lambda *of: SimpleNamespace(least=0.0))
    ops = Ops()
    x = ops("Tanh", ops.input(2, 18, 9, 13))  # the last of its five blocks is not full
    d = ops("Conv", x, ops.weight(18, 1, kernel, kernel), ops.weight(18), group=18, **attrs)
    more = (ops.const(0.0), ops.const(0.4)) if between == "Clip" else ()
    d = ops(between, d, *more) if between else d
    y = ops("Conv", d, ops.weight(21, 18, 1, 1), ops.weight(21))
    ops.output(ops("Softmax", y, axis=1))  # which would show what lies beyond the last channel
    ops.check(device, preset)
    assert "separable_conv2d" in ops.kernels


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_a_block_as_the_model_chooses(preset: str, device: Any) -> None:
    """Depthwise convolution, projection, and the sum with what came in."""
    ops = Ops()
    x = ops("Conv", ops.input(1, 3, 28, 28), ops.weight(24, 3, 3, 3), pads=[1, 1, 1, 1])
    taps = ops.weight(24, 1, 3, 3)
    d = ops("Relu", ops("Conv", x, taps, ops.weight(24), group=24, pads=[1, 1, 1, 1]))
    ops.output(ops("Add", x, ops("Conv", d, ops.weight(24, 24, 1, 1), ops.weight(24))))
    ops.check(device, preset)
    # In some presets the image is copied first, since launches are cheap.
    assert ops.kernels[-2:] == ["conv2d", "separable_conv2d"]


def test_every_kind_of_candidate(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what the rule offers for a small image, one of each number of splits, rolled and not."""
    offered: dict[tuple[int, bool], SeparableTile] = {}

    def keep(work: Any, limits: Any, machine: Any) -> Scored[SeparableTile]:
        found = score_tiles(work, limits, machine)
        for tile in found:
            offered.setdefault((tile.split_k, tile.rolled), tile)
        return found

    monkeypatch.setattr(rules, "score_tiles", keep)
    monkeypatch.setattr(fuse_separable, "score_tiles", lambda *of: SimpleNamespace(least=0.0))

    def check() -> None:
        ops = Ops()
        x = ops("Tanh", ops.input(1, 31, 7, 7))
        taps = ops.weight(31, 1, 3, 3)
        d = ops("Relu", ops("Conv", x, taps, group=31, pads=[1, 1, 1, 1]))
        ops.output(ops("Conv", d, ops.weight(10, 31, 1, 1)))
        ops.check(device, "fp32")
        assert "separable_conv2d" in ops.kernels

    check()
    assert {split_k for split_k, _ in offered} >= {1, 2, 4}
    for tile in list(offered.values()):
        only = Scored(lambda tile=tile: [tile], lambda _: 0.0)
        monkeypatch.setattr(rules, "score_tiles", lambda *_, only=only: only)
        check()
