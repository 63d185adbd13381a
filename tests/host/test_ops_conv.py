"""Convolutions: transposed, depthwise and in pairs, padded, fused, and by Winograd's algorithm."""

import random
from dataclasses import replace

import numpy as np
import pytest

from adrenoc.kernels.families.shared.conv_geometry import Route
from adrenoc.kernels.families.shared.machine import Scored
from adrenoc.kernels.families.winograd import winograd_conv_rule as winograd_conv
from adrenoc.kernels.families.winograd.winograd_conv import WinogradTile
from adrenoc.passes.fuse import split_winograd
from adrenoc.target.target import load_target
from tests.decided import choose_by_chance, estimate_pairs, force_winograd, set_joins
from tests.host.run_op import Ops

pytestmark = pytest.mark.operator

PRESETS = ("fp32", "mixed", "fp16", "buffer")


def test_kernels_and_strides(ops, device, preset):
    x = ops.input(2, 5, 13, 11)
    for kernel, attrs in (
        ((1, 1), {}),
        ((3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 3), {"strides": [2, 2], "pads": [0, 1, 1, 0]}),
        ((3, 3), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
        ((5, 5), {"strides": [1, 2], "pads": [2, 1, 3, 0]}),
        ((7, 1), {"auto_pad": "SAME_UPPER"}),
        ((1, 7), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ):
        ops.output(ops("Conv", x, ops.weight(6, 5, *kernel), ops.weight(6), **attrs))
    ops.check(device, preset)
    assert ops.fallbacks == []


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_stem(ops, device, preset):
    x = ops.input(1, 3, 21, 24)
    y = ops("Conv", x, ops.weight(16, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3])
    ops.output(ops("Relu", y), ops("Conv", y, ops.weight(1, 16, 3, 3)))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
def test_groups(ops, device, preset):
    """Groups whose channels do not fill blocks of four share the blocks of their neighbours."""
    for channels, out, groups in ((8, 16, 2), (6, 15, 3), (9, 15, 3), (12, 6, 6), (30, 10, 5)):
        x = ops.input(1, channels, 5, 6)
        w = ops.weight(out, channels // groups, 3, 3)
        ops.output(ops("Conv", x, w, pads=[1, 1, 1, 1], group=groups))
    ops.check(device, preset)


def test_depthwise(ops, device, preset):
    for channels, multiplier, kernel, attrs in (
        (7, 1, 3, {"pads": [1, 1, 1, 1]}),
        (30, 1, 5, {"strides": [2, 2], "pads": [1, 2, 2, 1]}),
        (8, 1, 3, {"dilations": [2, 2]}),
        (6, 2, 3, {"strides": [2, 1]}),
        (1, 1, 3, {}),
    ):
        x = ops.input(2, channels, 9, 8)
        w = ops.weight(channels * multiplier, 1, kernel, kernel)
        ops.output(ops("Conv", x, w, ops.weight(channels * multiplier), group=channels, **attrs))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ("fp32", "mixed", "buffer"))
def test_chain_with_epilogues(ops, device, preset):
    """Odd channels between convolutions: padding lanes must stay zero behind every epilogue."""
    x = ops.input(1, 3, 8, 9)
    a = ops("Sigmoid", ops("Conv", x, ops.weight(5, 3, 3, 3), ops.weight(5), pads=[1, 1, 1, 1]))
    b = ops("Conv", a, ops.weight(5, 5, 1, 1), ops.weight(5))
    c = ops("Clip", ops("Add", b, a), ops.const(0.0), ops.const(6.0))
    d = ops("Exp", ops("Mul", c, ops.weight(1, 5, 1, 1)))
    e = ops("Conv", d, ops.weight(7, 5, 3, 3), strides=[2, 2])
    f = ops("Mul", e, ops("HardSigmoid", ops("GlobalAveragePool", e)))
    ops.output(c, ops("Conv", f, ops.weight(2, 7, 1, 1)))
    ops.check(device, preset)


def test_computed_weights_are_a_loop_nest(ops, device):
    x, w = ops.input(1, 3, 5, 5), ops.input(2, 3, 3, 3)
    ops.output(ops("Conv", x, ops("Relu", w), pads=[1, 1, 1, 1]))
    ops.check(device, "fp32")
    assert len(ops.fallbacks) == 1
    assert "computed" in ops.fallbacks[0]


@pytest.mark.parametrize("preset", ["fp32", "fp16"])
@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "pad", "size"),
    [(3, 16, 16, 0, 64), (3, 11, 4, 2, 47), (6, 9, 1, 4, 15), (5, 12, 3, 0, 33)],
)
def test_wide_rows(ops, device, channels, kernel, stride, pad, size, preset):
    rng = np.random.default_rng(7)
    shape = (10, channels, kernel, kernel)
    weight = ops.const(rng.standard_normal(shape).astype(np.float32) / kernel)
    held = ops("MaxPool", ops.input(1, channels, size, size + 3), kernel_shape=[1, 1])
    made = ops("Conv", held, weight, strides=[stride] * 2, pads=[pad] * 4)
    ops.output(ops("Sigmoid", made))
    ops.check(device, preset)


def test_strides_and_kernels(ops, device, preset):
    x = ops.input(2, 5, 4, 6)
    for (kh, kw), attrs in (
        ((2, 2), {"strides": [2, 2]}),
        ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((3, 3), {"pads": [1, 0, 1, 2]}),
        ((2, 3), {"strides": [3, 2], "output_padding": [1, 0]}),
        ((3, 5), {"strides": [1, 5], "pads": [0, 3, 1, 1]}),
        ((3, 2), {"dilations": [2, 3], "strides": [2, 2], "pads": [1, 0, 0, 1]}),
    ):
        y = ops("ConvTranspose", x, ops.weight(5, 6, kh, kw), ops.weight(6), **attrs)
        ops.output(ops("Relu", y))
    ops.check(device, preset)
    assert ops.fallbacks == []
    assert ops.kernels.count("conv2d_transpose") == 7


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
def test_groups_of_transposed_convolutions(ops, device, preset):
    for channels, per_group, groups in ((8, 4, 2), (6, 5, 3), (9, 5, 3), (5, 1, 5), (3, 2, 3)):
        x = ops.input(1, channels, 4, 5)
        w = ops.weight(channels, per_group, 3, 3)
        ops.output(ops("ConvTranspose", x, w, strides=[2, 2], pads=[1, 1, 1, 1], group=groups))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_one_dimension(ops, device, preset):
    x = ops.input(2, 6, 11)
    y = ops("Conv", x, ops.weight(8, 3, 3), pads=[2, 1], strides=[2], group=2)
    ops.output(y, ops("Conv", ops("Relu", x), ops.weight(5, 6, 3), dilations=[2]))
    ops.output(ops("ConvTranspose", y, ops.weight(8, 3, 4), strides=[2], pads=[1, 0]))
    ops.check(device, preset)


def test_strides_far_beyond_the_kernel_are_a_loop_nest(ops, device):
    """Weights for each of 10,000 phases would be zeros, but for nine."""
    x = ops.input(1, 2, 2, 2)
    ops.output(ops("ConvTranspose", x, ops.weight(2, 3, 3, 3), strides=[100, 100]))
    ops.check(device, "fp32")
    assert "9 taps lie in 10000 places" in ops.fallbacks[0]


def test_windows(ops, preset, device):
    x = ops.input(2, 10, 9, 13)  # images of three blocks: a work-group holds parts of two
    for kernel, attrs in (
        (3, {"pads": [1, 1, 1, 1]}),
        (3, {"pads": [0, 1, 1, 0], "strides": [2, 2]}),
        (5, {"pads": [2, 2, 2, 2]}),
        (3, {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
    ):
        ops.output(ops("Conv", x, ops.weight(10, 1, kernel, kernel), group=10, **attrs))
    ops.check(device, preset)


@pytest.mark.parametrize(("channels", "kernel"), [(512, 7), (64, 14), (12, 51)])
def test_taps_fit_into_local_memory(ops, channels, kernel, device):
    """Down to one position, as face networks end: all threads of a group are of other channels."""
    x = ops.input(1, channels, kernel, kernel)
    ops.output(ops("Conv", x, ops.weight(channels, 1, kernel, kernel), group=channels))
    ops.check(device, "fp32", target="host:660")
    assert ops.fallbacks == []


def test_taps_that_no_image_holds_lie_in_a_buffer(ops, device):
    target = load_target("host")
    narrow = replace(target.limits, image2d_max_width_texels=48)
    x = ops.input(1, 10, 9, 13)
    ops.output(ops("Conv", x, ops.weight(10, 1, 3, 3), group=10, pads=[1, 1, 1, 1]))
    ops.check(device, "mixed", target=replace(target, gpu=replace(target.gpu, limits=narrow)))


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


@pytest.fixture
def split(monkeypatch) -> None:
    """Three kernels."""
    force_winograd(monkeypatch)


@pytest.fixture
def whole(monkeypatch) -> None:
    """One kernel."""
    set_joins(monkeypatch, winograd_least_launches=0, winograd=1e-9, winograd_three=1e9)


FEW_COLUMNS = load_target("adreno").cost.winograd_conv.few_columns


def _tile(
    tiles: int,
    blocks: int,
    columns: int,
    bands: int,
    split_k: int,
    chunk: int,
    unroll: int = 1,
    route: Route | None = None,
) -> WinogradTile:
    return WinogradTile(
        tiles=tiles,
        out_blocks=blocks,
        work_group=(16 * columns, 1, bands * split_k),
        columns=columns,
        split_k=split_k,
        chunk=chunk,
        unroll=unroll,
        route=route or (Route.BUFFER if columns < FEW_COLUMNS else Route.LOCAL),
    )


TILES = [
    _tile(1, 1, 1, 1, 1, 1),
    _tile(5, 1, 1, 2, 2, 4, 2),
    _tile(3, 2, 4, 1, 1, 3),
    _tile(2, 1, 8, 2, 1, 2, 2),
    _tile(2, 3, 4, 1, 2, 4),
    _tile(5, 1, 1, 2, 2, 4, 2, Route.TEXTURE),
    _tile(3, 2, 1, 2, 1, 4, 1, Route.TEXTURE),
]


@pytest.mark.parametrize(
    ("preset", "number"),
    [*(("fp16", n) for n in range(len(TILES))), *(("fp32", n) for n in (1, 2, 5, 6)), ("mixed", 6)],
)
@pytest.mark.usefixtures("whole")
def test_every_schedule_of_one_kernel(ops, preset, number, device, monkeypatch):
    """Blocks, tiles and pixels beyond the last; chunks of which the last is filled up."""
    only = TILES[number : number + 1]
    monkeypatch.setattr(
        winograd_conv, "score_tiles", lambda *_: Scored(lambda: only, lambda _: 0.0)
    )
    x = ops.input(2, 22, 13, 17)
    for pads in ([0, 0, 0, 0], [2, 0, 1, 1]):
        ops.output(ops("Conv", x, ops.weight(10, 22, 3, 3), pads=pads))
    ops.check(device, preset)
    assert sum(d.taken.endswith("in one kernel") for d in ops.decisions) == 2


@pytest.mark.parametrize("outputs", (2, 3, 4))
@pytest.mark.parametrize("preset", ("fp32", "buffer"))
@pytest.mark.usefixtures("split")
def test_every_tile_size(ops, outputs, preset, device, monkeypatch):
    monkeypatch.setattr(split_winograd, "OUTPUTS", {"float32": (outputs,), "float16": (2,)})
    x = ops.input(2, 6, 9, 13)
    for pads in ([1, 1, 1, 1], [0, 0, 0, 0], [2, 0, 1, 1]):
        ops.output(ops("Conv", x, ops.weight(10, 6, 3, 3), pads=pads))
    ops.check(device, preset)


@pytest.mark.usefixtures("split")
def test_taps_apart_by_the_algorithm(ops, preset, device):
    """Tiles of every second, third, twelfth row and column, some of which have no pixel."""
    x = ops("Tanh", ops.input(2, 6, 17, 26))
    for down, across, pads in ((2, 2, [2] * 4), (3, 1, [3, 1, 3, 1]), (12, 7, [12, 7, 12, 7])):
        conv = ops("Conv", x, ops.weight(10, 6, 3, 3), pads=pads, dilations=[down, across])
        ops.output(ops("Relu", conv))
    odd = ops("Conv", x, ops.weight(7, 6, 3, 3), pads=[1, 0, 3, 5], dilations=[4, 5])
    ops.output(odd)
    ops.check(device, preset)
    # The error of halves allows one alone.
    assert ops.kernels.count("winograd_tiles") == (4 if preset in {"fp32", "fp16"} else 1)


@pytest.mark.parametrize("kernels", ("split", "whole"))
def test_with_an_epilogue_that_reads_other_tensors(ops, kernels, preset, device, request):
    request.getfixturevalue(kernels)
    x = ops.input(1, 8, 12, 14)
    conv = ops("Conv", x, ops.weight(8, 8, 3, 3), ops.weight(8), pads=[1, 1, 1, 1])
    ops.output(ops("Relu", ops("Add", conv, x)))
    ops.check(device, preset)


@pytest.mark.parametrize(
    ("kernels", "preset"),
    (("split", "mixed"), ("split", "fp16"), ("split", "buffer"), ("whole", "fp16")),
)
def test_inputs_near_the_end_of_half(ops, kernels, preset, device, request):
    """Sums of four of them are beyond it."""
    request.getfixturevalue(kernels)
    x = ops.input(1, 8, 12, 14, low=2e4, high=6e4)
    weight = ops.const(np.full((4, 8, 3, 3), 1e-3))
    ops.output(ops("Conv", x, weight, pads=[1, 1, 1, 1]))
    ops.check(device, preset)
    assert ("winograd_tiles" in ops.kernels) is (kernels == "split")


@pytest.mark.usefixtures("split")
def test_what_is_computed_where_it_is_read_stays_one_kernel(ops, device):
    """A scale and an activation in the place of the convolution's input."""
    x = ops("MaxPool", ops.input(1, 16, 13, 15), kernel_shape=[2, 2])
    scaled = ops("Relu", ops("Add", ops("Mul", x, ops.weight(16, 1, 1)), ops.weight(16, 1, 1)))
    ops.output(ops("Conv", scaled, ops.weight(8, 16, 3, 3)))
    ops.output(ops("Relu", x))
    ops.check(device, "fp32")


@pytest.mark.usefixtures("whole")
def test_weights_near_the_end_of_half_are_not_transformed(ops, device):
    x = ops.input(1, 8, 12, 14, low=-1e-3, high=1e-3)
    weight = ops.const(np.full((4, 8, 3, 3), 5e4))
    ops.output(ops("Conv", x, weight, pads=[1, 1, 1, 1]))
    ops.check(device, "mixed")
    reasons = [d.reason for d in ops.decisions if d.taken == "not by Winograd's algorithm"]
    assert len(reasons) == 1
    assert "up to 2.25 times as large" in reasons[0]
    assert "5e+04" in reasons[0]
