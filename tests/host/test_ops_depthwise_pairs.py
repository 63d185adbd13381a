"""Depthwise convolutions in one kernel with a 1x1 convolution before or after, by onnxruntime."""

import random

import pytest

from tests.decided import choose_by_chance, estimate_pairs
from tests.host.run_op import Ops

pytestmark = pytest.mark.operator

PRESETS = ("fp32", "mixed", "fp16", "buffer")
BEFORE, AFTER = "expand_depthwise_conv2d", "separable_conv2d"
FORMS = (BEFORE, AFTER)
"""Where the 1x1 convolution stands."""


def _activation(ops: Ops, kind: str, x: str) -> str:
    """Those but ReLU and Clip make something of zero, or of zero and bias."""
    if kind == "Clip":
        return ops("Clip", x, ops.const(-0.1), ops.const(0.4))
    if kind == "SiLU":
        return ops("Mul", x, ops("Sigmoid", x))
    if kind == "Shift":
        return ops("Add", ops("Relu", x), ops.const(0.7))
    return ops(kind, x) if kind else x


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(6, 16))]
)
@pytest.mark.parametrize("form", FORMS)
def test_any_candidate(form, seed, device, monkeypatch):
    """Random extents, kernels and activations, each with a random one of the offered tiles."""
    choice = random.Random(seed)
    choose_by_chance(monkeypatch, seed)
    estimate_pairs(monkeypatch, {form: lambda _: 0.0})
    kernel, dilation = choice.choice((3, 3, 5, 7)), choice.choice((1, 1, 2))
    narrow, wide = choice.randint(3, 40), choice.randint(8, 50)
    height, width = (choice.randint(2 * kernel, 24) for _ in "hw")
    attrs = {
        "strides": [choice.choice((1, 2)) for _ in "hw"],
        "dilations": [dilation] * 2,
        "pads": [choice.randint(0, dilation * (kernel // 2)) for _ in range(4)],
        "group": wide,
    }
    ops = Ops(seed)
    first = choice.choice(("", "Relu", "Clip", "HardSwish", "SiLU", "Shift"))
    second = choice.choice(("Relu", "SiLU", ""))
    taps = ops.weight(wide, 1, kernel, kernel)
    of_wide = ops.weight(wide, around=0.5)
    batch = choice.choice((1, 1, 2))
    if form == BEFORE:
        x = ops("Tanh", ops.input(batch, narrow, height, width))
        x = _activation(ops, first, ops("Conv", x, ops.weight(wide, narrow, 1, 1), of_wide))
        x = ops("Conv", x, taps, ops.weight(wide), **attrs)
    else:
        x = ops("Tanh", ops.input(batch, wide, height, width))
        x = _activation(ops, first, ops("Conv", x, taps, of_wide, **attrs))
        x = ops("Conv", x, ops.weight(narrow, wide, 1, 1), ops.weight(narrow))
    # Which would show what lies beyond the last channel.
    ops.output(ops("Softmax", _activation(ops, second, x), axis=1))
    ops.check(device, choice.choice(PRESETS))
    assert form in ops.kernels


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
@pytest.mark.parametrize("form", FORMS)
def test_a_block_as_the_model_chooses(ops, form, preset, device):
    """An expansion or not, a depthwise convolution, a projection, the sum with what came in."""
    wide, narrow = 24, 8 if form == BEFORE else 24
    x = ops("Conv", ops.input(1, 3, 28, 28), ops.weight(narrow, 3, 3, 3), pads=[1, 1, 1, 1])
    y = x
    if form == BEFORE:
        y = ops("Relu", ops("Conv", x, ops.weight(wide, narrow, 1, 1), ops.weight(wide)))
    taps = ops.weight(wide, 1, 3, 3)
    y = ops("Relu", ops("Conv", y, taps, ops.weight(wide), group=wide, pads=[1, 1, 1, 1]))
    ops.output(ops("Add", x, ops("Conv", y, ops.weight(narrow, wide, 1, 1), ops.weight(narrow))))
    ops.check(device, preset)
    # In some presets the image is copied first, since launches are cheap.
    last = ["conv2d", form, "conv2d"] if form == BEFORE else ["conv2d", form]
    assert ops.kernels[-len(last) :] == last


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", (1, 2))
def test_of_one_channel(ops, size, form, device, monkeypatch):
    """A 1x1 convolution of one channel is a depthwise one, too; the other tells which it is."""
    estimate_pairs(monkeypatch, {form: lambda _: 0.0})
    x = ops("Tanh", ops.input(1, 1, 9, 13))
    convs = [
        {"weights": ops.weight(1, 1, 1, 1), "pads": [0, 0, 0, 0]},
        {"weights": ops.weight(1, 1, size, size), "pads": [0, 1, 0, 1]},
    ]
    for conv in convs if form == BEFORE else reversed(convs):
        x = ops("Relu", ops("Conv", x, conv["weights"], ops.weight(1), pads=conv["pads"]))
    ops.output(x)
    ops.check(device, "fp32")
