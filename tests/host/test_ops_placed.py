"""Reshapes, transposes and slices that other kernels write in place, against onnxruntime."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.host.run_op import Ops

pytestmark = pytest.mark.operator

PRESETS = ("fp32", "buffer", "fp16")


class Net(Ops):
    """Operators that know the shape of their results."""

    def reshape(self, x: str, *shape: int) -> str:
        return self("Reshape", x, self.ints(*shape))

    def turn(self, x: str, *axes: int) -> str:
        return self("Transpose", x, perm=list(axes))

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        return self("MatMul", x, self.weight(inputs, outputs))

    def norm(self, x: str, channels: int) -> str:
        return self(
            "LayerNormalization", x, self.weight(channels, around=1.0), self.weight(channels)
        )

    def conv(self, x: str, inputs: int, outputs: int, kernel: int = 1) -> str:
        weight = self.weight(outputs, inputs, kernel, kernel)
        return self("Conv", x, weight, self.weight(outputs), pads=[kernel // 2] * 4)

    def roll(self, x: str, axis: int, by: int) -> str:
        first = self("Slice", x, self.ints(by), self.ints(2**31), self.ints(axis))
        rest = self("Slice", x, self.ints(0), self.ints(by), self.ints(axis))
        return self("Concat", first, rest, axis=axis)

    def doubled(self, x: str, rows: int = 2, columns: int = 2) -> str:
        """Every row and column so many times."""
        scales = self.const([1, 1, rows, columns])
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self("Resize", x, "", scales, mode="nearest", **how)

    @property
    def moves(self) -> list[str]:
        """Kernels of the last run that only moved data."""
        parts = {
            "reshape",
            "permute",
            "dims",
            "strided",
            "slice",
            "concat",
            "image.resize2d",
            "tile",
        }
        return [k for k in self.kernels if set(k.split("_")) <= parts]


@pytest.mark.parametrize("preset", PRESETS)
def test_heads(device, preset):
    """Queries and keys of heads, which something beside attention reads, and their way back."""
    net = Net()
    x = net.norm(net.input(1, 9, 16), 16)
    wide = net.turn(net.reshape(net.dense(x, 16, 48), 1, 9, 3, 2, 8), 2, 0, 3, 1, 4)
    q, k, v = (net("Gather", wide, net.const(i, np.int64), axis=0) for i in range(3))
    mixed = net("MatMul", q, net("MatMul", net.turn(net("Relu", k), 0, 1, 3, 2), v))
    back = net.reshape(net.turn(mixed, 0, 2, 1, 3), 1, 9, 16)
    net.output(net.dense(back, 16, 12))
    net.check(device, preset)


@pytest.mark.parametrize("preset", PRESETS)
def test_tokens_of_an_image_and_back(device, preset):
    """Ten channels do not fill their last block."""
    net = Net()
    x = net("Relu", net.conv(net.input(1, 3, 4, 6), 3, 10))
    tokens = net.turn(net.reshape(x, 1, 10, 24), 0, 2, 1)
    made = net("Add", net.dense(net.norm(tokens, 10), 10, 10), tokens)
    image = net.reshape(net.turn(made, 0, 2, 1), 1, 10, 4, 6)
    net.output(net.conv(image, 10, 5, kernel=3))
    net.check(device, preset)
    assert net.moves == []


@pytest.mark.parametrize("preset", PRESETS)
def test_patches(device, preset):
    """MobileViT's: pixels of one place in their patch become tokens of one image."""
    net = Net()
    x = net("Relu", net.conv(net.input(1, 3, 4, 6), 3, 8))
    cut = net.turn(net.reshape(x, 16, 2, 3, 2), 0, 2, 1, 3)
    tokens = net.reshape(net.turn(net.reshape(cut, 1, 8, 6, 4), 0, 3, 2, 1), 4, 6, 8)
    made = net.norm(net("Add", net.dense(net.norm(tokens, 8), 8, 8), tokens), 8)
    cut = net.turn(net.reshape(made, 1, 4, 6, 8), 0, 3, 2, 1)
    cut = net.turn(net.reshape(cut, 16, 3, 2, 2), 0, 2, 1, 3)
    net.output(net.conv(net.reshape(cut, 1, 8, 4, 6), 8, 5, kernel=3))
    net.check(device, preset)
    assert net.moves == []


@pytest.mark.parametrize("preset", PRESETS)
def test_windows(device, preset):
    """Swin's, and parts of an image that are moved twice."""
    net = Net()
    x = net.norm(net.input(1, 24, 8), 8)
    cut = net.turn(net.reshape(x, 1, 2, 2, 3, 2, 8), 0, 1, 3, 2, 4, 5)
    made = net.dense(net.reshape(cut, 6, 4, 8), 8, 8)
    cut = net.turn(net.reshape(made, 1, 2, 3, 2, 2, 8), 0, 1, 3, 2, 4, 5)
    whole = net("Relu", net.norm(net.reshape(cut, 1, 24, 8), 8))
    upper = net("Slice", whole, net.ints(4), net.ints(20), net.ints(1))
    image = net.reshape(net.turn(upper, 0, 2, 1), 1, 8, 4, 4)
    net.output(net.conv(image, 8, 4, kernel=3), net.dense(upper, 8, 4))
    net.check(device, preset)
    assert net.moves == []


@pytest.mark.parametrize("preset", ["fp32", "fp16"])
def test_what_is_read_where_it_was_too(device, preset):
    """A result that lies in a concatenation, is read there, and goes elsewhere in parts."""
    net = Net()
    x = net.input(1, 4, 4, 4)
    left, right = net.conv(x, 4, 8), net("Sigmoid", net.conv(x, 4, 8))
    whole = net("Concat", left, right, axis=1)
    tokens = net.turn(net.reshape(right, 1, 8, 16), 0, 2, 1)
    net.output(net.conv(whole, 16, 4, kernel=3), net.dense(net.norm(tokens, 8), 8, 4))
    net.output(net.turn(net.reshape(left, 1, 8, 16), 0, 2, 1))
    net.check(device, preset)
    assert net.moves == []


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (1, 3)])
def test_the_neck_of_a_detector(device, preset, rows, columns):
    """An image is enlarged within a concatenation; it and its part are read elsewhere, too."""
    net = Net()
    top = net("Relu", net.conv(net.input(1, 4, 3, 4), 4, 8))
    wide = net("Sigmoid", net.conv(net.input(1, 5, 3 * rows, 4 * columns), 5, 6))
    whole = net("Concat", net.doubled(top, rows, columns), wide, axis=1)
    net.output(net.conv(net("Relu", net.conv(whole, 14, 8)), 8, 5, kernel=3))
    net.output(net.conv(top, 8, 4, kernel=3))
    net.check(device, preset)
    assert net.moves == []


@pytest.mark.parametrize("preset", PRESETS)
def test_the_heads_of_a_detector(device, preset):
    """Boxes of three scales in one row; ten channels do not fill their last block."""
    net = Net()
    scales = []
    for rows, columns in ((4, 6), (2, 3), (1, 1)):
        made = net.conv(net.input(1, 4, rows, columns), 4, 10)
        scales.append(net.turn(net.reshape(made, 1, 10, rows * columns), 0, 2, 1))
    boxes = net("Concat", *scales, axis=1)
    net.output(net.dense(net("Softmax", boxes, axis=2), 10, 4), net.dense(boxes, 10, 4))
    net.check(device, preset)
    assert net.moves == []


@pytest.mark.parametrize("preset", PRESETS)
def test_shifted_windows(device, preset):
    net = Net()
    x = net.reshape(net.norm(net.input(1, 24, 8), 8), 1, 4, 6, 8)
    turned = net.roll(net.roll(x, 1, 1), 2, 2)
    cut = net.turn(net.reshape(turned, 1, 2, 2, 3, 2, 8), 0, 1, 3, 2, 4, 5)
    made = net.dense(net.reshape(cut, 6, 4, 8), 8, 8)
    cut = net.turn(net.reshape(made, 1, 2, 3, 2, 2, 8), 0, 1, 3, 2, 4, 5)
    back = net.roll(net.roll(net.reshape(cut, 1, 4, 6, 8), 1, 3), 2, 4)
    net.output(net.dense(net.norm(back, 8), 8, 5))
    net.check(device, preset)
    assert net.moves == []


@pytest.mark.parametrize("preset", ["fp32", "fp16"])
def test_tiles(device, preset):
    """Ten channels do not fill their last block; the tiles are pooled."""
    net = Net()
    x = net("Relu", net.conv(net.input(1, 4, 3, 4), 4, 10))
    tiled = net("Tile", x, net.ints(1, 1, 2, 2))
    net.output(net("MaxPool", tiled, kernel_shape=[2, 2], pads=[1, 1, 1, 1]))
    net.check(device, preset)
    assert net.moves == []


@examples(6)
@given(data=st.data())
def test_any_order_of_any_factors(device, data):
    """An image is cut into factors, these are put in any order, and read as another image."""
    factors = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=3, max_size=5))
    rows = data.draw(st.sampled_from([(2, 3), (4, 2), (3, 1)]))
    shape = [*rows, *factors]
    order = data.draw(st.permutations(range(len(shape))))
    turned = [shape[axis] for axis in order]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(shape) - 1), min_size=1, max_size=2)))
    joined = [math.prod(turned[a:b]) for a, b in itertools.pairwise([0, *cuts, len(shape)])]
    channels = math.prod(factors)
    net = Net(seed=len(factors))
    x = net("Relu", net.dense(net.input(1, math.prod(rows), 5), 5, channels))
    made = net.reshape(net.turn(net.reshape(x, *shape), *order), 1, *joined)
    ends = data.draw(st.integers(1, joined[0]))
    part = net("Slice", made, net.ints(0), net.ints(ends), net.ints(1))
    net.output(net.dense(part, joined[-1], 3), net("Sigmoid", made))
    net.check(device, data.draw(st.sampled_from(PRESETS)))
