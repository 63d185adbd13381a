"""Operators of microcontrollers, with drawn shapes and quantisation, against LiteRT."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.base.decision import Decision
from adrenoc.firmware.mcu.core import load_core
from adrenoc.firmware.mcu.evaluate import evaluate
from adrenoc.firmware.mcu.fold_constants import fold_constants
from adrenoc.firmware.mcu.program import fuse_sums, make_program
from adrenoc.firmware.mcu.tflite.importer import network_of
from adrenoc.importers.tflite.file import read_tflite
from tests.mcu.drawn import drawn_model
from tests.mcu.judge import evaluate_and_compare, needs_emulator, run_and_compare
from tests.mcu.maker import Maker, Value

RELUS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


def filter_forms(make: Maker) -> list[Value]:
    """Convolutions and dense layers of many forms."""
    made = []
    forms: list[dict[str, Any]] = [
        {"channels": 8, "size": (6, 5, 4)},
        {"channels": 7, "size": (5, 5, 3), "kernel": (3, 3)},
        {"channels": 4, "size": (9, 8, 5), "kernel": (3, 3), "strides": (2, 2)},
        {"channels": 6, "size": (7, 10, 1), "kernel": (5, 2), "strides": (2, 1)},
        {"channels": 3, "size": (8, 8, 2), "kernel": (3, 3), "dilations": (2, 2)},
        {"channels": 5, "size": (6, 6, 6), "kernel": (2, 3), "padding": "VALID"},
        {"channels": 12, "size": (4, 4, 16), "per_channel": False},
        {"channels": 2, "size": (1, 1, 33), "kernel": (1, 1)},
        {"channels": 16, "size": (3, 7, 8), "strides": (2, 2)},
        {"channels": 9, "size": (5, 4, 12), "kernel": (3, 3)},
        {"channels": 6, "size": (1, 5, 8), "strides": (2, 3)},
        {"channels": 6, "size": (5, 6, 9), "kernel": (3, 3), "groups": 3, "strides": (2, 1)},
        {"channels": 32, "size": (4, 3, 16), "groups": 2, "per_channel": False},
    ]
    for number, form in enumerate(forms):
        how = dict(form)
        size, channels = how.pop("size"), how.pop("channels")
        kernel = how.pop("kernel", (1, 1))
        x = make.input(1, *size)
        made.append(make.conv(x, channels, kernel, relu=RELUS[number % 4], **how))
    return made


def depthwise_forms(make: Maker) -> list[Value]:
    forms: list[dict[str, Any]] = [
        {"size": (6, 5, 8)},
        {"size": (7, 7, 4), "strides": (2, 2)},
        {"size": (8, 6, 5)},
        {"size": (5, 5, 3), "many": 2},
        {"size": (9, 9, 4), "kernel": (5, 5)},
        {"size": (9, 4, 4), "kernel": (3, 1)},
        {"size": (8, 8, 4), "dilations": (2, 2)},
        {"size": (6, 6, 12), "padding": "VALID"},
        {"size": (12, 3, 4), "strides": (2, 1)},
        {"size": (3, 3, 16)},
        {"size": (1, 1, 4)},
        {"size": (4, 12, 1)},
    ]
    made = []
    for number, form in enumerate(forms):
        how = dict(form)
        x = make.input(1, *how.pop("size"))
        relu = RELUS[number % 4]
        made.append(make.depthwise(x, how.pop("kernel", (3, 3)), relu=relu, **how))
    return made


def _others(make: Maker) -> list[Value]:
    a, b = make.input(1, 4, 5, 6), make.input(1, 4, 5, 6)
    row = make.input(1, 40)
    return [
        make.dense(row, 12),
        make.dense(make.input(3, 24), 5, relu="RELU"),
        make.dense(make.input(1, 7), 9, bias=False),
        make.add(a, b),
        make.add(a, b, relu="RELU6"),
        make.pool(a, "AVERAGE_POOL_2D", (4, 5)),
        make.pool(a, "AVERAGE_POOL_2D", (3, 3), strides=(1, 1), padding="SAME"),
        make.pool(a, "MAX_POOL_2D", (2, 2)),
        make.pool(a, "MAX_POOL_2D", (3, 2), strides=(2, 1), padding="SAME", relu="RELU"),
        make.reshape(make.add(b, a), 1, 120),
        make.reshape(a, 1, 120),
        make.softmax(row),
        make.softmax(make.input(5, 10, scale=0.3), beta=0.5),
        make.svdf(row, 6, 2, 7),
    ]


def _tables(make: Maker) -> list[Value]:
    x = make.input(1, 2, 8, 16, scale=0.06)
    wide = make.input(1, 2, 8, 16, scale=0.9)
    made = [
        make.unary("LOGISTIC", x, scale=1 / 256, zero=-128),
        make.unary("LOGISTIC", wide, scale=1 / 256, zero=-128),
        make.unary("TANH", x, scale=1 / 128, zero=0),
        make.unary("RELU", x),
        make.unary("RELU6", wide),
        make.unary("RELU_N1_TO_1", x),
        make.unary("QUANTIZE", x),
        make.unary("LEAKY_RELU", x, scale=0.05, options="LeakyReluOptions", alpha=0.1),
    ]
    for scale in (0.01, 0.05, 0.3):
        y = make.input(1, 2, 8, 16, scale=scale)
        made.append(make.unary("HARD_SWISH", y, scale=scale * 0.9))
    return made


def _pairs(make: Maker) -> list[Value]:
    a, b = make.input(1, 4, 6, 8), make.input(1, 4, 6, 8)
    gate, row = make.input(1, 1, 1, 8), make.constant(8)
    full, one = make.constant(1, 4, 6, 8), make.constant(1)
    return [
        make.binary("MUL", a, b, "MulOptions"),
        make.binary("MUL", a, gate, "MulOptions", "RELU"),
        make.binary("MUL", gate, a, "MulOptions"),
        make.binary("MUL", a, row, "MulOptions"),
        make.binary("MUL", a, one, "MulOptions", "RELU6"),
        make.binary("SUB", a, b, "SubOptions"),
        make.binary("SUB", full, b, "SubOptions"),
        make.binary("SUB", gate, b, "SubOptions"),
        make.binary("ADD", a, gate, "AddOptions"),
        make.binary("ADD", row, a, "AddOptions", "RELU"),
        make.binary("ADD", a, one, "AddOptions"),
    ]


def batch_forms(make: Maker) -> list[Value]:
    """Dilated filters over time, as converters write them, by batches; and maxima."""
    made = []
    forms = ((2, 13, 5, (1, 2)), (3, 12, 4, (0, 0)), (4, 9, 6, (2, 5)))
    for block, steps, channels, (before, after) in forms:
        x = make.input(1, steps, channels)
        long = (steps + before + after) // block
        numbers = [[block], [[before, after]]]
        y = make.moved("SPACE_TO_BATCH_ND", x, numbers, (block, long, channels))
        y = make.reshape(y, block, 1, long, channels)
        for padding in ("SAME", "VALID"):
            z = make.conv(y, 7, (1, 2), padding=padding)
            z = make.depthwise(z, (1, 2), padding="SAME")
            rows = z.shape[2]
            z = make.reshape(z, block, rows, 7)
            shape = (1, rows * block - 1, 7)
            made.append(make.moved("BATCH_TO_SPACE_ND", z, [[block], [[0, 1]]], shape))
    x = make.input(1, 5, 6, 3)
    made += [make.largest(x, (1, 2)), make.largest(make.input(1, 9, 4), (1,))]
    pads = [[1, 0], [0, 3]]
    y = make.moved("SPACE_TO_BATCH_ND", x, [[2, 3], pads], (6, 3, 3, 3))
    made.append(make.moved("BATCH_TO_SPACE_ND", y, [[2, 3], [[0, 1], [2, 0]]], (1, 5, 7, 3)))
    return made


def move_forms(make: Maker) -> list[Value]:
    x = make.input(1, 4, 6, 5)
    make_other = make.input(1, 4, 6, 3, scale=x.scale, zero=x.zero)
    resized = {"halfPixelCenters": True}
    return [
        make.moved("PAD", x, [[[0, 0], [1, 2], [0, 3], [0, 0]]], (1, 7, 9, 5), "PadOptions"),
        make.moved("PAD", x, [[[0, 0], [0, 0], [0, 0], [2, 1]]], (1, 4, 6, 8), "PadOptions"),
        make.moved("TRANSPOSE", x, [[0, 3, 1, 2]], (1, 5, 4, 6), "TransposeOptions"),
        make.moved("TRANSPOSE", x, [[0, 2, 1, 3]], (1, 6, 4, 5), "TransposeOptions"),
        make.moved("SLICE", x, [[0, 1, 2, 1], [1, 2, -1, 3]], (1, 2, 4, 3), "SliceOptions"),
        make.moved(
            "STRIDED_SLICE",
            x,
            [[0, 1, 0, 0], [1, 4, 6, 5], [1, 1, 2, 1]],
            (1, 3, 3, 5),
            "StridedSliceOptions",
        ),
        make.moved(
            "RESIZE_NEAREST_NEIGHBOR", x, [[8, 9]], (1, 8, 9, 5), "ResizeNearestNeighborOptions"
        ),
        make.moved(
            "RESIZE_NEAREST_NEIGHBOR",
            x,
            [[7, 3]],
            (1, 7, 3, 5),
            "ResizeNearestNeighborOptions",
            **resized,
        ),
        *_enlarged(make, x),
        *_parted(make, x),
        make.joined([x, make_other, x], 3),
        make.joined([x, x], 1),
        make.mean(x, (1, 2), keep=True),
        make.mean(x, (1, 2), keep=False),
        make.mean(x, (3,), keep=False),
        make.moved("REDUCE_MAX", x, [[1, 2]], (1, 5), "ReducerOptions"),
        make.moved("REDUCE_MAX", x, [[-2, 1]], (1, 1, 1, 5), "ReducerOptions", keepDims=True),
        make.conv_transpose(x, 4, (2, 2), 2, "SAME"),
        make.conv_transpose(x, 6, (3, 3), 2, "SAME"),
        make.conv_transpose(x, 3, (3, 3), 2, "VALID"),
        make.conv_transpose(x, 4, (1, 1), 3, "SAME"),
    ]


def _enlarged(make: Maker, x: Value) -> list[Value]:
    """Bilinear resizes, by each way of laying one grid over another."""
    ways = [(False, False), (True, False), (False, True)]
    return [
        make.moved(
            "RESIZE_BILINEAR",
            x,
            [list(size)],
            (1, *size, 5),
            "ResizeBilinearOptions",
            alignCorners=corners,
            halfPixelCenters=half,
        )
        for size in ((8, 12), (7, 3), (1, 1), (4, 6))
        for corners, half in ways
    ]


def _parted(make: Maker, x: Value) -> list[Value]:
    """Splits of three kinds, and packs of what they give."""
    halves = make.parted("SPLIT", x, [2, None], [(1, 4, 3, 5)] * 2, "SplitOptions")
    shapes = [(1, 4, 6, n) for n in (1, 3, 1)]
    channels = make.parted("SPLIT_V", x, [None, [1, -1, 1], -1], shapes, "SplitVOptions")
    rows = make.parted("UNPACK", x, [None], [(1, 6, 5)] * 4, "UnpackOptions")
    return [*halves, *channels, *rows, make.packed(rows[:3], 1), make.packed(rows, 2)]


def _residuals(make: Maker) -> list[Value]:
    """Sums after convolutions, which may take them."""
    x = make.input(1, 6, 7, 8)
    y = make.conv(x, 24, relu="RELU6")
    y = make.depthwise(y, relu="RELU6")
    inner = make.add(make.conv(y, 8), make.conv(x, 8, (3, 3)))
    twice = make.conv(inner, 8)
    return [
        make.add(inner, make.conv(inner, 8), relu="RELU"),
        make.add(twice, twice),
        make.add(make.conv(inner, 5, (3, 3)), make.conv(x, 5)),
        twice,
    ]


FORMS = [
    filter_forms,
    depthwise_forms,
    _others,
    _tables,
    _pairs,
    move_forms,
    batch_forms,
    _residuals,
]


@pytest.mark.parametrize("forms", FORMS)
def test_evaluation_is_the_reference(forms):
    for seed in range(4):
        make = Maker(seed=seed)
        evaluate_and_compare(make.finish(*forms(make)))


@needs_emulator
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
@pytest.mark.parametrize("forms", FORMS)
def test_code_is_the_reference(forms, core, tmp_path):
    for seed in range(2):
        make = Maker(seed=10 + seed)
        run_and_compare(make.finish(*forms(make)), tmp_path / str(seed), core=core, seed=seed)


@pytest.mark.nightly
@needs_emulator
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
def test_drawn_operators_are_the_reference(core, tmp_path):
    """As scripts/fuzz_firmware does by the thousand."""
    for seed in range(4):
        run_and_compare(drawn_model(seed), tmp_path / str(seed), core=core, seed=seed)


def test_vectors_compute_what_they_cover():
    make = Maker(seed=1)
    content = make.finish(*filter_forms(make), *depthwise_forms(make))
    network = network_of(Path("m.tflite"), read_tflite(Path("m.tflite"), content))
    program = make_program(network, load_core("cortex-m55"))
    assert sum(step.kernel.how.startswith("vectors") for step in program.steps) >= 19


def _swallowed(make: Maker) -> list[Value]:
    """Filters with channels that cannot vary, or that nothing reads."""
    make.dead = 0.4
    x = make.conv(make.input(1, 6, 6, 4), 24, relu="RELU")
    x = make.depthwise(x, relu="RELU")
    x = make.conv(x, 16, relu="RELU6")
    y = make.depthwise(x, strides=(2, 2), relu="RELU")
    y = make.conv(y, 12, (3, 3), relu="RELU")
    y = make.unary("HARD_SWISH", make.conv(y, 12), scale=y.scale)
    y = make.conv(y, 12)
    z = make.reshape(make.pool(y, "AVERAGE_POOL_2D", (3, 3)), 1, 12)
    flat = make.reshape(make.conv(x, 8, relu="RELU"), 1, 288)
    return [make.dense(z, 6), x, make.dense(flat, 5)]


def test_what_cannot_vary_is_folded_exactly():
    for seed in range(8):
        make = Maker(seed=seed)
        content = make.finish(*_swallowed(make))
        network = network_of(Path("m.tflite"), read_tflite(Path("m.tflite"), content))
        decisions: list[Decision] = []
        folded = fold_constants(network, decisions)
        assert decisions, "nothing was folded: the test shows nothing"
        random = np.random.default_rng(seed)
        for _ in range(3):
            shapes = {i: network.tensors[i].shape for i in network.inputs}
            inputs = {i: random.integers(-128, 128, s).astype(np.int8) for i, s in shapes.items()}
            before, after = evaluate(network, inputs), evaluate(folded, inputs)
            assert all((before[i] == after[i]).all() for i in network.outputs)


@needs_emulator
def test_code_of_what_is_left_is_the_reference(tmp_path):
    make = Maker(seed=21)
    run_and_compare(make.finish(*_swallowed(make)), tmp_path / "m")


@needs_emulator
def test_a_dilation_of_one_tap_needs_no_room(tmp_path):
    """What dilates a window of one tap means nothing; the board tells what is written beyond."""
    make = Maker(seed=2)
    x = make.input(1, 1, 50, 24)
    run_and_compare(make.finish(make.conv(x, 8, dilations=(3, 2))), tmp_path / "m")


def test_a_sum_goes_into_the_convolution_before_it():
    make = Maker(seed=3)
    content = make.finish(*_residuals(make))
    network = network_of(Path("m.tflite"), read_tflite(Path("m.tflite"), content))
    decisions: list[Decision] = []
    fused = fuse_sums(network, decisions)
    assert len(decisions) == 3
    random = np.random.default_rng(0)
    inputs = {
        i: random.integers(-128, 128, network.tensors[i].shape).astype(np.int8)
        for i in network.inputs
    }
    before, after = evaluate(network, inputs), evaluate(fused, inputs)
    assert all((before[i] == after[i]).all() for i in network.outputs)
