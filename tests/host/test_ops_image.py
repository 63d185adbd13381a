"""Convolutions that read the model's own image, row-major, of up to four channels."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adrenoc.kernels.families.matmul.gemv import MAX_PIXELS
from tests.decided import set_joins
from tests.examples import examples
from tests.host.run_op import Ops

pytestmark = pytest.mark.operator


@pytest.fixture(autouse=True, scope="module")
def always() -> Iterator[None]:
    """Read images of any size so, whatever is faster."""
    with pytest.MonkeyPatch.context() as patch:
        set_joins(patch, image=0.0)
        yield


def _reads_images(ops: Ops) -> bool:
    return any("as it is given" in d.taken for d in ops.decisions)


def test_stems(device, preset):
    for shape, kernel, attrs in (
        ((1, 3, 32, 32), 3, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((2, 3, 21, 24), 3, {"strides": [2, 2], "pads": [0, 0, 1, 1]}),
        ((1, 1, 13, 17), 5, {"pads": [2, 2, 2, 2]}),
        ((1, 4, 9, 11), 3, {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
        ((1, 3, 24, 40), 7, {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
        ((1, 2, 8, 3), 3, {"pads": [1, 2, 1, 2]}),
        ((1, 3, 16, 16), 4, {"strides": [4, 4]}),
    ):
        ops = Ops()
        x = ops.input(*shape)
        w = ops.weight(10, shape[1], kernel, kernel)
        ops.output(ops("Relu", ops("Conv", x, w, ops.weight(10), **attrs)))
        ops.check(device, preset)
        assert _reads_images(ops), (shape, kernel)


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_pixels_whose_channels_lie_beside_each_other(device, preset):
    for shape in ((1, 24, 32, 3), (2, 11, 13, 3), (1, 10, 12, 4), (1, 10, 12, 1)):
        ops = Ops()
        x = ops("Transpose", ops.input(*shape), perm=[0, 3, 1, 2])
        w = ops.weight(9, shape[3], 3, 3)
        ops.output(ops("Conv", x, w, strides=[2, 2], pads=[1, 1, 1, 1]))
        ops.check(device, preset)
        assert _reads_images(ops), shape


@examples(12)
@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 20), st.integers(1, 40)),
    kernel=st.integers(1, 7),
    stride=st.integers(1, 3),
    pads=st.lists(st.integers(0, 6), min_size=4, max_size=4),
)
def test_odd_extents(device, shape, kernel, stride, pads):
    padded = [e + pads[i] + pads[i + 2] for i, e in enumerate(shape[2:])]
    assume(min(padded) >= kernel)
    ops = Ops()
    x = ops.input(*shape)
    w = ops.weight(6, shape[1], kernel, kernel)
    ops.output(ops("Conv", x, w, strides=[stride, stride], pads=pads))
    ops.check(device, "fp32")
    vectors = math.prod((shape[0], *((e - kernel) // stride + 1 for e in padded)))
    assert _reads_images(ops) == (vectors > MAX_PIXELS)


def test_what_normalises_the_image_goes_along(device, preset):
    """Zero padding comes after it, so edges are zeros and not what becomes of zeros."""
    for shape, axes in (((1, 3, 18, 32), (3, 1, 1)), ((2, 3, 9, 13), (1, 1, 1))):
        ops = Ops()
        x = ops("Mul", ops.input(*shape), ops.weight(*axes, around=2.0))
        x = ops("Add", x, ops.weight(*axes, around=3.0))
        w = ops.weight(8, 3, 3, 3)
        ops.output(ops("Conv", x, w, strides=[2, 2], pads=[1, 1, 1, 1]))
        ops.check(device, preset)
        assert _reads_images(ops), shape
        assert len(ops.kernels) == 1


@pytest.mark.parametrize("corners", (0, 1))
def test_samples_reflect(device, corners):
    """The place is mirrored, once for all the pixels around it."""
    ops = Ops(opset=20)
    attrs = {"padding_mode": "reflection", "align_corners": corners}
    for shape, rank in (((1, 3, 5, 4), 2), ((1, 2, 2, 3, 4), 3)):
        grid = ops.input(1, *(3, 4, 5)[-rank:], rank, low=-6.0, high=6.0)
        ops.output(ops("GridSample", ops.input(*shape), grid, **attrs))
    ops.check(device, "fp32")


def test_samples_reflect_in_a_line(device):
    """Between the corners of an axis of one element nothing reflects."""
    ops = Ops(opset=20)
    attrs = {"padding_mode": "reflection", "align_corners": 1}
    for shape, mode in (((1, 3, 1, 4), "linear"), ((1, 3, 5, 1), "nearest")):
        grid = ops.input(1, 3, 4, 2, low=-3.0, high=3.0)
        ops.output(ops("GridSample", ops.input(*shape), grid, mode=mode, **attrs))
    grid = ops.input(1, 2, 3, 4, 3, low=-3.0, high=3.0)
    ops.output(ops("GridSample", ops.input(1, 2, 1, 3, 4), grid, mode="nearest", **attrs))
    ops.check(device, "fp32")
