"""Expansions that the depthwise convolution after them computes, against onnxruntime."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from run_op import Ops

from adrenoc.kernels.families.expansion import expansion_rule as rules
from adrenoc.kernels.families.expansion.expansion_plan import ExpansionTile
from adrenoc.kernels.families.expansion.expansion_tile import candidates
from adrenoc.kernels.families.shared.scored import Scored
from adrenoc.passes.fuse import fuse_expansion, fuse_separable

pytestmark = pytest.mark.operator

PRESETS = ("fp32", "mixed", "fp16", "buffer")


def _tile(rows: int, columns: int, pixels: int, out_blocks: int, **more: Any) -> ExpansionTile:
    threads = more.pop("threads", 64)
    return ExpansionTile(
        rows=rows,
        columns=columns,
        pixels=pixels,
        out_blocks=out_blocks,
        work_group=(threads, 1, 1),
        **more,
    )


CASES = (
    (_tile(4, 4, 2, 2), 3, {"pads": [1, 1, 1, 1]}, "Clip"),
    (_tile(9, 13, 3, 1, bands=2, made_rows=3), 3, {"pads": [1, 1, 1, 1]}, "HardSwish"),
    (_tile(3, 4, 1, 2, made_columns=2, unroll=2), 3, {"strides": [2, 2], "pads": [1] * 4}, "SiLU"),
    (_tile(2, 6, 4, 3, bands=2, threads=32), 3, {"pads": [2] * 4, "dilations": [2, 2]}, "Relu"),
    (_tile(4, 3, 2, 1, bands=5, made_rows=2), 5, {"pads": [1, 2, 2, 1], "strides": [2, 1]}, ""),
    (_tile(2, 8, 2, 2, made_columns=4, unroll=4), 5, {}, "Shift"),
    (_tile(3, 5, 5, 1, made_columns=5, threads=16), 7, {"pads": [3] * 4}, "Shift"),
)


def _between(ops: Ops, kind: str, x: str) -> str:
    """An activation; those but ReLU and Clip make something of zero, or of zero and bias."""
    if kind == "Clip":
        return ops("Clip", x, ops.const(-0.1), ops.const(0.4))
    if kind == "SiLU":
        return ops("Mul", x, ops("Sigmoid", x))
    if kind == "Shift":
        return ops("Add", ops("Relu", x), ops.const(0.7))
    return ops(kind, x) if kind else x


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("preset", PRESETS)
def test_a_tile(number: int, preset: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tile, kernel, attrs, between = CASES[number]
    monkeypatch.setattr(rules, "score_tiles", lambda *_: Scored(lambda: [tile], lambda _: 0.0))
    monkeypatch.setattr(fuse_expansion, "score_tiles", lambda *of: SimpleNamespace(least=0.0))
    ops = Ops()
    x = ops("Tanh", ops.input(2, 14, 9, 13))
    # The last of the five wide blocks is not full.
    wide = ops("Conv", x, ops.weight(18, 14, 1, 1), ops.weight(18, around=0.5))
    wide = _between(ops, between, wide)
    d = ops("Conv", wide, ops.weight(18, 1, kernel, kernel), ops.weight(18), group=18, **attrs)
    y = ops("Relu", d)
    ops.output(ops("Softmax", y, axis=1))  # which would show what lies beyond the last channel
    ops.check(device, preset)
    assert "expand_depthwise_conv2d" in ops.kernels


@pytest.mark.parametrize("seed", range(8))
def test_any_candidate(seed: int, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random extents, kernels and activations, each with a random one of the offered tiles."""
    choice = random.Random(seed)

    def one(work: Any, limits: Any, machine: Any) -> Scored[ExpansionTile]:
        tile = choice.choice(list(candidates(work, limits, machine.cost)))
        return Scored(lambda: [tile], lambda _: 0.0)

    monkeypatch.setattr(rules, "score_tiles", one)
    monkeypatch.setattr(fuse_expansion, "score_tiles", lambda *of: SimpleNamespace(least=0.0))
    kernel, stride, dilation = (
        choice.choice((3, 5)),
        choice.choice((1, 2)),
        choice.choice((1, 1, 2)),
    )
    narrow, wide = choice.randint(3, 40), choice.randint(8, 50)
    height, width = (choice.randint(2 * kernel, 24) for _ in "hw")
    attrs = {
        "strides": [stride] * 2,
        "dilations": [dilation] * 2,
        "pads": [choice.randint(0, dilation * (kernel // 2)) for _ in range(4)],
    }
    between = choice.choice(("", "Relu", "Clip", "HardSwish", "SiLU", "Shift"))
    ops = Ops(seed)
    x = ops("Tanh", ops.input(choice.choice((1, 1, 2)), narrow, height, width))
    made = ops("Conv", x, ops.weight(wide, narrow, 1, 1), ops.weight(wide))
    made = _between(ops, between, made)
    taps = ops.weight(wide, 1, kernel, kernel)
    d = ops("Conv", made, taps, ops.weight(wide), group=wide, **attrs)
    ops.output(ops("Softmax", _between(ops, choice.choice(("Relu", "SiLU", "")), d), axis=1))
    ops.check(device, choice.choice(PRESETS))
    assert "expand_depthwise_conv2d" in ops.kernels


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_a_block_as_the_model_chooses(preset: str, device: Any) -> None:
    """Expansion, depthwise convolution, projection, and the sum with what came in."""
    ops = Ops()
    x = ops("Conv", ops.input(1, 3, 28, 28), ops.weight(8, 3, 3, 3), pads=[1, 1, 1, 1])
    wide = ops("Relu", ops("Conv", x, ops.weight(24, 8, 1, 1), ops.weight(24)))
    taps = ops.weight(24, 1, 3, 3)
    d = ops("Relu", ops("Conv", wide, taps, ops.weight(24), group=24, pads=[1, 1, 1, 1]))
    ops.output(ops("Add", x, ops("Conv", d, ops.weight(8, 24, 1, 1), ops.weight(8))))
    ops.check(device, preset)
    assert ops.kernels[-3:] == ["conv2d", "expand_depthwise_conv2d", "conv2d"]


@pytest.mark.parametrize("joined", (fuse_expansion, fuse_separable), ids=("before", "after"))
@pytest.mark.parametrize("size", (1, 2))
def test_of_one_channel(
    size: int, joined: Any, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 1x1 convolution of one channel is a depthwise one, too; the other tells which it is."""
    monkeypatch.setattr(joined, "score_tiles", lambda *of: SimpleNamespace(least=0.0))
    ops = Ops()
    x = ops("Tanh", ops.input(1, 1, 9, 13))
    convs = [
        {"weights": ops.weight(1, 1, 1, 1), "pads": [0, 0, 0, 0]},
        {"weights": ops.weight(1, 1, size, size), "pads": [0, 1, 0, 1]},
    ]
    for conv in convs if joined is fuse_expansion else reversed(convs):
        x = ops("Relu", ops("Conv", x, conv["weights"], ops.weight(1), pads=conv["pads"]))
    ops.output(x)
    ops.check(device, "fp32")
