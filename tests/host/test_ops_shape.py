"""Element-wise chains, pools, reductions, and what moves data: concat, slice, gather, ..."""

import numpy as np
import pytest

from tests.host.run_op import Ops

pytestmark = pytest.mark.operator

PRESETS = ("fp32", "buffer")


@pytest.mark.parametrize("preset", PRESETS)
def test_elementwise(ops, device, preset):
    x, y = ops.input(2, 5, 6, 7), ops.input(2, 5, 6, 7, low=0.5, high=2.0)
    for op in ("Exp", "Tanh", "Sigmoid", "Abs", "Neg", "Erf", "Floor", "Elu", "HardSwish"):
        ops.output(ops(op, x))
    for op in ("Sqrt", "Log", "Reciprocal"):
        ops.output(ops(op, y))
    for op in ("Add", "Mul", "Sub", "Div", "Max", "Min", "Pow"):
        ops.output(ops(op, y, x))
    ops.output(ops("LeakyRelu", x, alpha=0.1), ops("PRelu", x, ops.weight(5, 1, 1)))
    ops.output(ops("Where", ops("Greater", x, ops.const(0.0)), x, y))
    ops.check(device, preset)


def test_steps_of_quotients(ops, device):
    """Also of those that are whole, and of large ones."""
    x = ops.input(1, 8, 16, 32)
    ops.given(x, np.arange(4096, dtype=np.float32).reshape(1, 8, 16, 32))
    for divisor in (255.875, 3.0, 0.1, 7e-30):
        quotient = ops("Div", x, ops.const(divisor))
        ops.output(ops("Floor", quotient), ops("Ceil", quotient))
    ops.check(device, "fp32")


@pytest.mark.parametrize("preset", PRESETS)
def test_broadcasts(ops, device, preset):
    x = ops.input(2, 5, 6, 7)
    for shape in ((5, 1, 1), (1, 1, 6, 1), (7,), (2, 1, 1, 1), (1,), (6, 7), (1, 5, 1, 7)):
        ops.output(ops("Mul", x, ops.weight(*shape)), ops("Add", x, ops.input(*shape)))
    ops.output(ops("Expand", ops.input(1, 5, 1, 7), ops.ints(2, 5, 3, 7)))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", PRESETS)
def test_concat_split_slice(ops, device, preset):
    parts = [ops("Relu", ops.input(1, c, 4, 5)) for c in (3, 5, 1, 7)]
    joined = ops("Concat", *parts, axis=1)
    ops.output(joined, ops("Conv", joined, ops.weight(3, 16, 1, 1)))
    ops.output(ops("Concat", parts[0], parts[0], axis=0), ops("Concat", *parts[:1] * 3, axis=3))
    a, b, c = ops.split(joined, 1, 2, 9, 5)
    ops.output(ops("Relu", a), ops("Neg", b), ops("Conv", c, ops.weight(2, 5, 1, 1)))
    for axis, start, end, step in ((1, 1, 14, 3), (2, 3, -10, -1), (3, 0, 5, 2), (1, 15, 2, -2)):
        ends = ops.ints(start), ops.ints(end), ops.ints(axis), ops.ints(step)
        ops.output(ops("Slice", joined, *ends))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", PRESETS)
def test_pad(ops, device, preset):
    x = ops("Relu", ops.input(1, 5, 4, 6))
    around = ops.ints(0, 0, 1, 2, 0, 0, 3, 1)
    ops.output(ops("Pad", x, around), ops("Pad", x, around, ops.const(1.5)))
    ops.output(ops("Pad", x, around, mode="reflect"), ops("Pad", x, around, mode="edge"))
    ops.output(ops("Pad", x, ops.ints(0, 1, 0, 0, 1, 2, 0, 0), ops.const(-2.0)))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ["fp32", "buffer"])
def test_reflections_as_wide_as_they_may_be(ops, device, preset):
    """Along all axes at once, up to the far end of each, and of a tensor that lies in rows."""
    x = ops("Relu", ops.input(2, 5, 4, 6))
    for widths in ((0, 0, 3, 5, 0, 0, 3, 5), (1, 4, 0, 2, 0, 3, 2, 0), (0, 0, 0, 0, 1, 1, 1, 1)):
        ops.output(ops("Pad", x, ops.ints(*widths), mode="reflect"))
    rows = ops("Pad", ops.input(3, 7), ops.ints(2, 0, 1, 6), mode="reflect")
    ops.output(ops("Pad", ops("Tanh", rows), ops.ints(0, 5, 3, 0), mode="reflect"))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", PRESETS)
def test_reshape_and_transpose(ops, device, preset):
    x = ops("Relu", ops.input(1, 6, 4, 5))
    shuffled = ops("Transpose", ops("Reshape", x, ops.ints(1, 2, 3, 4, 5)), perm=[0, 2, 1, 3, 4])
    ops.output(ops("Conv", ops("Reshape", shuffled, ops.ints(1, 6, 4, 5)), ops.weight(5, 6, 1, 1)))
    ops.output(ops("Flatten", x), ops("Reshape", x, ops.ints(4, 30)))
    for perm in ([0, 2, 3, 1], [3, 2, 1, 0], [0, 1, 3, 2], [1, 0, 2, 3]):
        ops.output(ops("Exp", ops("Transpose", x, perm=perm)))
    ops.output(ops("Squeeze", ops("Unsqueeze", x, ops.ints(2)), ops.ints(0)))
    ops.output(ops("Tile", x, ops.ints(2, 2, 1, 3)))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", PRESETS)
def test_resize(ops, device, preset):
    x = ops("Relu", ops.input(1, 5, 5, 6))
    for mode in ("nearest", "linear"):
        for transform in ("half_pixel", "align_corners", "asymmetric"):
            attrs = {"mode": mode, "coordinate_transformation_mode": transform}
            if mode == "nearest":
                attrs["nearest_mode"] = (
                    "floor" if transform == "asymmetric" else "round_prefer_floor"
                )
            scales = ops.const([1.0, 1.0, 2.0, 3.0])
            ops.output(ops("Resize", x, "", scales, **attrs))
            ops.output(ops("Resize", x, "", "", ops.ints(1, 5, 8, 4), **attrs))
    ops.check(device, preset)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_by_factors_that_no_float_is(ops, device, mode):
    """Five rows by 1.8 are nine, as exporters and onnxruntime have it."""
    x = ops("Relu", ops.input(1, 3, 5, 6))
    for factors in ((1.8, 7 / 6), (1.4, 1.5), (2.6, 0.5)):
        for transform in ("half_pixel", "align_corners", "asymmetric"):
            attrs = {"mode": mode, "coordinate_transformation_mode": transform}
            scales = ops.const([1.0, 1.0, *factors])
            ops.output(ops("Resize", x, "", scales, **attrs))
    ops.check(device, "fp32")


@pytest.mark.parametrize("preset", PRESETS)
def test_depth_and_space(ops, device, preset):
    x = ops("Relu", ops.input(1, 12, 4, 6))
    for mode in ("DCR", "CRD"):
        y = ops("DepthToSpace", x, blocksize=2, mode=mode)
        ops.output(y, ops("Conv", y, ops.weight(5, 3, 1, 1)))
    ops.output(ops("SpaceToDepth", x, blocksize=2))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", PRESETS)
def test_gather(ops, device, preset):
    x = ops("Relu", ops.input(2, 7, 5, 6))
    for axis, indices in ((1, [6, 0, 3, 3]), (2, [4, -1]), (3, [[0, 5], [2, 1]]), (0, [1])):
        ops.output(ops("Gather", x, ops.const(indices, np.int64), axis=axis))
    ops.output(ops("Gather", x, ops.const(2, np.int64), axis=1))
    ops.check(device, preset)


def test_axes_from_the_end_in_exports_of_old_opsets(device):
    """PyTorch writes them in opset 9, onnxruntime takes them, and onnx's inference has no shape."""
    ops = Ops(opset=9)
    x = ops.input(1, 3, 4)
    both = ops("Concat", x, ops("Relu", x), axis=-1)
    ops.output(ops("Squeeze", ops("Unsqueeze", both, axes=[-1]), axes=[-1]))
    ops.output(ops("Softmax", ops("Unsqueeze", x, axes=[-2]), axis=3))
    ops.check(device, "fp32")


@pytest.mark.parametrize("preset", ("mixed", "fp32"))
@pytest.mark.parametrize("levels", (1, pytest.param(2, marks=pytest.mark.nightly)))
def test_places_that_are_read_at_places(device, levels, preset):
    """Trees as Hummingbird writes them: each level gathers feature and threshold of the next."""
    ops, random, trees = Ops(), np.random.default_rng(0), 5
    x = ops.input(8, 6)
    at = ops("Gather", x, ops.const(random.integers(0, 6, trees), np.int64), axis=1)
    at = ops("Cast", ops("LessOrEqual", at, ops.weight(trees)), to=7)
    at = ops("Reshape", ops("Add", at, ops.ints(*range(0, 2 * trees, 2))), ops.ints(-1))
    for level in range(levels):
        count = trees * 2 ** (level + 1)
        nodes = ops.const(random.integers(0, 6, count), np.int64)
        feature = ops("Reshape", ops("Gather", nodes, at), ops.ints(8, trees))
        value = ops("Reshape", ops("GatherElements", x, feature, axis=1), ops.ints(-1))
        threshold = ops("Gather", ops.weight(count), at)
        right = ops("Cast", ops("LessOrEqual", value, threshold), to=7)
        at = ops("Add", ops("Mul", at, ops.const(2, np.int64)), right)
    leaves = ops("Gather", ops.weight(trees * 2 ** (levels + 1), 1), at)
    leaves = ops("Reshape", ops("Reshape", leaves, ops.ints(-1, 1)), ops.ints(-1, 1, trees))
    ops.output(ops("Sigmoid", ops("ReduceSum", leaves, ops.ints(2), keepdims=0)))
    ops.check(device, preset)


@pytest.mark.parametrize("op", ("ScatterND", "ScatterElements"))
def test_nothing_scattered_leaves_the_data(ops, device, op):
    """PyTorch's exporter counts the tokens of each language: of some there are none."""
    x = ops("Relu", ops.input(4, 6))
    rows = ops("Slice", ops("Exp", x), ops.ints(0), ops.ints(0), ops.ints(0))
    places = (0, 1) if op == "ScatterND" else (0, 6)
    put = ops(op, x, ops.const(np.zeros(places), np.int64), rows)
    ops.output(ops("Add", put, x), put)
    ops.check(device, "fp32")


def test_max_pool(ops, device, preset):
    x = ops.input(2, 7, 13, 11, low=-3.0, high=-1.0)
    for attrs in (
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [5, 3], "pads": [2, 0, 1, 2]},
        {"kernel_shape": [3, 3], "dilations": [2, 3], "pads": [2, 2, 1, 2]},
        {"kernel_shape": [13, 11]},
    ):
        ops.output(ops("MaxPool", x, **attrs))
    ops.check(device, preset)
    assert ops.fallbacks == []


def test_avg_pool(device, preset):
    ops = Ops(opset=19)
    x = ops.input(1, 5, 12, 9)
    for attrs in (
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [5, 4], "pads": [2, 0, 1, 2]},
        {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [2, 1, 2, 1]},
    ):
        ops.output(ops("AveragePool", x, **attrs))
    ops.check(device, preset)
    assert ops.fallbacks == []


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
@pytest.mark.parametrize("channels", (1, 3, 30))
def test_pools_of_odd_channels(ops, device, preset, channels):
    x = ops.input(2, channels, 6, 7)
    ops.output(ops("MaxPool", x, kernel_shape=[3, 3], strides=[1, 2], pads=[1, 1, 1, 1]))
    ops.output(ops("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    ops.output(ops("GlobalAveragePool", ops("Relu", x)))
    ops.output(ops("GlobalMaxPool", x))
    ops.check(device, preset)


def test_pools_between_convolutions(ops, device):
    """The pools read and write textures, with an epilogue behind them."""
    y = ops("Conv", ops.input(1, 3, 16, 15), ops.weight(10, 3, 3, 3), pads=[1, 1, 1, 1])
    a = ops("Relu", ops("AveragePool", y, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    b = ops("MaxPool", y, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    z = ops("Conv", ops("Add", a, b), ops.weight(6, 10, 1, 1))
    ops.output(ops("GlobalAveragePool", z))
    ops.check(device, "fp32")


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_pools_of_one_dimension(ops, device, preset):
    x = ops.input(2, 6, 17)
    ops.output(ops("MaxPool", x, kernel_shape=[3], strides=[2], pads=[1, 1]))
    ops.output(ops("AveragePool", x, kernel_shape=[4], strides=[3], pads=[1, 2]))
    ops.check(device, preset)
    assert ops.fallbacks == []


def test_windows_over_everything(ops, device, preset):
    """They are reductions: rows and columns that threads share."""
    x = ops("Tanh", ops.input(2, 7, 9, 10))
    for kind in ("AveragePool", "MaxPool"):
        ops.output(ops("Relu", ops(kind, x, kernel_shape=[9, 10])))
        ops.output(ops(kind, x, kernel_shape=[9, 10], pads=[0, 0, 1, 1], strides=[9, 10]))
    ops.check(device, preset)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_windows_by_their_length_round_up(ops, device, p):
    x = ops.input(1, 7, 6, 5)
    window = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    ops.output(ops("LpPool", x, p=p, ceil_mode=1, **window))
    ops.check(device, "fp32")


def reduced(ops: Ops, kind: str, x: str, axes: tuple[int, ...] | None, keepdims: int) -> str:
    inputs = [x] if axes is None else [x, ops.ints(*axes)]
    return ops(f"Reduce{kind}", *inputs, keepdims=keepdims)


def test_means(ops, device, preset):
    y = ops("Sigmoid", ops.input(2, 7, 5, 6))
    for axes, keepdims in (
        ((2, 3), 1),
        ((2, 3), 0),
        ((1,), 1),
        ((1,), 0),
        ((0, 2), 0),
        ((1, 3), 0),
        (None, 1),
        ((3,), 0),
    ):
        ops.output(reduced(ops, "Mean", y, axes, keepdims))
    ops.check(device, preset)
    assert ops.fallbacks == []
    assert ops.kernels.count("mean") == 8


def test_one_number_of_all_is_a_texel_that_keeps_small_values(ops, device, preset):
    y = ops("Relu", ops.input(1, 6, 30, 40))
    span = ops("Sub", reduced(ops, "Max", y, None, 0), reduced(ops, "Min", y, None, 0))
    scale = ops("Mul", span, ops.const(1e-7))
    ops.output(ops("Mul", y, ops("Div", ops.const(1e-7), scale)))
    ops.check(device, preset)
    assert ops.fallbacks == []


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_every_kind(ops, device, preset):
    """The padding lanes of five channels must not count: all data lie above or below zero."""
    above, below = ops.input(1, 5, 3, 4, low=0.5), ops.input(1, 5, 3, 4, low=-1.0, high=-0.5)
    for kind in ("Sum", "Max", "Min", "Prod"):
        for x in (above, below):
            y = ops("Mul", x, ops.const(1.5))
            ops.output(reduced(ops, kind, y, (1,), 0))
        ops.output(reduced(ops, kind, above, (1, 2), 1), reduced(ops, kind, above, (2,), 1))
    ops.check(device, preset)
    assert ops.fallbacks == []


@pytest.mark.parametrize("shape", ((6,), (3, 30), (2, 9, 10), (1, 2, 3, 1, 5, 7)))
def test_ranks(ops, device, shape):
    y = ops("Relu", ops.input(*shape))
    ops.output(reduced(ops, "Sum", y, (-1,), 1), reduced(ops, "Max", y, (0,), 1))
    if len(shape) > 1:
        ops.output(reduced(ops, "Mean", y, (-1,), 0), reduced(ops, "Min", y, (0,), 0))
    ops.check(device, "fp32")


def test_five_wide_axes_are_a_loop_nest(ops, device):
    y = reduced(ops, "Sum", ops.input(2, 3, 2, 3, 2, 5), (2,), 0)
    ops.output(ops("Relu", y))
    ops.check(device, "fp32")
    assert len(ops.fallbacks) == 1
    assert "too many extents above one" in ops.fallbacks[0]


def test_many_elements_in_half(ops, device):
    """8192 ones: a half sum of them would stop at 2048."""
    x = ops.input(1, 4, 64, 128, low=0.99, high=1.01)
    ops.output(reduced(ops, "Mean", x, (2, 3), 1), reduced(ops, "Mean", x, (1, 2, 3), 0))
    ops.check(device, "fp16", tolerance=1e-3)


@pytest.mark.parametrize("kind", ("Softmax", "LogSoftmax"))
def test_softmax(ops, device, preset, kind):
    x = ops.input(2, 7, 5, 6, low=-8.0, high=8.0)
    for axis in (0, 1, 2, 3):
        ops.output(ops(kind, x, axis=axis))
    ops.output(ops("Mul", ops(kind, ops.input(3, 30), axis=-1), ops.weight(30)))
    ops.check(device, preset)
    assert ops.kernels.count("softmax" if kind == "Softmax" else "log_softmax") == 5


def test_softmax_is_stable(ops, device):
    """Exponentials of these overflow, and so do those of the padding lanes' zeros."""
    x = ops("Add", ops.input(4, 5), ops.const(np.float32(-1000.0)))
    y = ops("Add", ops.input(4, 5), ops.const(np.float32(1000.0)))
    ops.output(ops("Softmax", x, axis=1), ops("Softmax", y, axis=1))
    ops.output(ops("Softmax", x, axis=0))
    ops.check(device, "fp32", tolerance=2e-4)


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_more_channels_than_layers(ops, device, preset):
    """Such tensors lie as rows of texels: the same kernels, other coordinates, guarded borders."""
    y = ops("Relu", ops.input(2, 9001))
    ops.output(ops("Softmax", y, axis=1), reduced(ops, "Max", y, (1,), 0))
    ops.output(ops("LayerNormalization", y, ops.weight(9001), ops.weight(9001)))
    x = ops("Relu", ops.input(1, 8197, 3, 4))
    for kind in ("MaxPool", "AveragePool"):
        ops.output(ops(kind, x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    ops.output(ops("Neg", reduced(ops, "Mean", x, (2, 3), 1)))
    ops.check(device, preset)
    assert any("rows" in d.taken for d in ops.decisions)
