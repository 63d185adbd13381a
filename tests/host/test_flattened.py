"""Products of a flattened image, and maps that turn channels, against onnxruntime."""

import numpy as np
import pytest

from adrenoc.bundle.bundle import open_bundle
from tests.commands import succeed
from tests.host.run_op import Ops
from tests.tflite.build import ModelBuilder, T


@pytest.mark.parametrize("preset", ["fp32"])
def test_what_else_reads_a_flattened_image_gets_it(ops, device, preset):
    flat = ops("Flatten", ops("Conv", ops.input(1, 3, 4, 5), ops.weight(6, 3, 2, 3)))
    ops.output(ops("MatMul", flat, ops.weight(54, 5)), ops("Softmax", flat, axis=1))
    several = ops("Flatten", ops("Conv", ops.input(2, 3, 4, 5), ops.weight(6, 3, 2, 3)))
    ops.output(ops("MatMul", several, ops.weight(54, 5)))
    ops.check(device, preset)


@pytest.mark.parametrize(
    ("channels", "preset"), [(5, "fp32"), (8, "mixed"), (7, "buffer"), (6, "fp16")]
)
def test_a_convolution_whose_kernel_covers_its_input_is_a_product(ops, device, channels, preset):
    """As heads of pose networks are: threads share the sum, where a kernel of pixels has one."""
    image = ops("Relu", ops("Conv", ops.input(1, 3, 4, 5), ops.weight(channels, 3, 2, 3)))
    covered = ops("Conv", image, ops.weight(10, channels, 3, 3), ops.weight(10))
    ops.output(ops("Relu", covered))
    row = ops("Relu", ops("Conv", ops.input(1, 3, 9), ops.weight(channels, 3, 3)))
    ops.output(ops("Conv", row, ops.weight(6, channels, 7)))
    ops.check(device, preset)
    assert ops.kernels.count("gemv") == 2


@pytest.mark.parametrize("preset", ["fp32"])
def test_a_kernel_that_is_read_more_than_once_stays_a_convolution(ops, device, preset):
    image = ops("Relu", ops("Conv", ops.input(1, 3, 4, 5), ops.weight(8, 3, 2, 3)))
    ops.output(ops("Conv", image, ops.weight(6, 8, 3, 3), pads=[1, 1, 1, 1], strides=[3, 3]))
    ops.output(ops("Conv", image, ops.weight(6, 8, 2, 2), dilations=[2, 2]))
    ops.output(ops("Conv", image, ops.weight(6, 4, 3, 3), group=2))
    several = ops("Relu", ops("Conv", ops.input(2, 3, 4, 5), ops.weight(8, 3, 2, 3)))
    ops.output(ops("Conv", several, ops.weight(6, 8, 3, 3)))
    ops.check(device, preset)
    assert "gemv" not in ops.kernels


@pytest.mark.parametrize("preset", ["fp32", "mixed", "fp16"])
def test_a_head_of_a_pose_network_is_a_product(device, preset, tmp_path):
    """In TFLite's order of axes, beside LiteRT: 2 x 2 x 28 to 117 by a kernel of 2 x 2."""
    made = ModelBuilder()
    graph = made.graph()
    random = np.random.default_rng(6)

    def constant(*shape: int) -> int:
        value = random.standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
        return graph.add(T(is_constant=True, data=value.astype(np.float32)))

    def conv(x: int, channels: int, out: int, side: int, made_side: int) -> int:
        taps = [x, constant(out, side, side, channels), constant(out)]
        steps = {"padding": 1, "strideW": 1, "strideH": 1}
        shape = T(shape=(1, made_side, made_side, out))
        return int(graph.op("CONV_2D", taps, [shape], "Conv2DOptions", steps)[0])

    x = graph.add(T(data=random.standard_normal((1, 4, 4, 6)).astype(np.float32)), "x")
    graph.outputs = [conv(conv(x, 6, 28, 3, 2), 28, 117, 2, 1)]
    model, bundle = tmp_path / "m.tflite", tmp_path / "m.adrenoc"
    model.write_bytes(made.write())
    words = ["compile", str(model), "--device", "host", "--preset", preset, "-o", str(bundle)]
    succeed(*words)
    assert "gemv" in {kernel.family for kernel in open_bundle(bundle).kernels()}
    succeed("run", bundle, "--check", model)


@pytest.mark.parametrize("preset", ["fp32", "mixed"])
def test_what_follows_a_covering_convolution_is_in_its_kernel(ops, device, preset):
    image = ops("Relu", ops("Conv", ops.input(1, 3, 4, 5), ops.weight(8, 3, 2, 3)))
    covered = ops("Conv", image, ops.weight(16, 8, 3, 3))
    ops.output(ops("DepthToSpace", covered, blocksize=2))
    beside = ops("Conv", image, ops.weight(16, 8, 3, 3), ops.weight(16))
    pooled = ops("Conv", ops("GlobalAveragePool", image), ops.weight(16, 8, 1, 1))
    ops.output(ops("Sigmoid", ops("Add", beside, pooled)))
    ops.check(device, preset)
    assert ops.kernels.count("gemv") >= 2


TO_SECOND, TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def _block(ops: Ops, x: str, channels: int, *, scaled: bool) -> str:
    """A block as ConvNeXt has it: a product of channels that come last, added to where they do not.

    The last block's result is read by a pool and by a convolution.
    """
    last = ops("Transpose", x, perm=TO_LAST)
    wide = ops("Relu", ops("MatMul", last, ops.weight(channels, 2 * channels)))
    narrow = ops("Add", ops("MatMul", wide, ops.weight(2 * channels, channels)), ops.const(0.1))
    back = ops("Transpose", narrow, perm=TO_SECOND)
    if scaled:
        back = ops("Mul", back, ops.weight(1, channels, 1, 1))
    return ops("Add", back, x)


@pytest.mark.parametrize("preset", ["fp32", "fp16", "buffer"])
@pytest.mark.parametrize("channels, size", [(8, (14, 14)), (6, (5, 7))])
def test_a_product_ends_with_them(ops, device, preset, channels, size):
    x = ops("Relu", ops("Conv", ops.input(1, 3, *size), ops.weight(channels, 3, 1, 1)))
    first = _block(ops, x, channels, scaled=True)
    second = _block(ops, first, channels, scaled=False)
    ops.output(ops("MaxPool", second, kernel_shape=[2, 2]))
    ops.output(ops("Conv", second, ops.weight(4, channels, 3, 3), pads=[1, 1, 1, 1]))
    ops.check(device, preset)
    assert not any("permute_dims" in family for family in ops.kernels)


@pytest.mark.parametrize("preset", ["fp32", "fp16"])
def test_so_does_a_convolution_whose_channels_come_last_afterwards(ops, device, preset):
    x = ops("Conv", ops.input(1, 3, 6, 7), ops.weight(8, 3, 1, 1))
    turned = ops("Mul", ops("Transpose", x, perm=TO_LAST), ops.weight(8))
    scale, shift = ops.weight(8), ops.weight(8)
    normed = ops("LayerNormalization", turned, scale, shift, axis=-1)
    ops.output(ops("Add", ops("MatMul", normed, ops.weight(8, 8)), turned))
    ops.check(device, preset)


def test_an_output_keeps_its_kernel(ops, device):
    x = ops("Relu", ops("Conv", ops.input(1, 3, 6, 6), ops.weight(8, 3, 1, 1)))
    made = _block(ops, x, 8, scaled=True)
    ops.output(made, ops("MaxPool", made, kernel_shape=[2, 2]))
    ops.check(device, "fp32")


@pytest.mark.parametrize("reader", ["GlobalAveragePool", "ReduceMax", "Softmax"])
def test_what_folds_it_reads_the_result(ops, device, reader):
    x = ops("Relu", ops("Conv", ops.input(1, 3, 6, 6), ops.weight(8, 3, 1, 1)))
    ops.output(ops(reader, _block(ops, x, 8, scaled=True)))
    ops.check(device, "fp32")
