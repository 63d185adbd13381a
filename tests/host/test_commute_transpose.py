"""Maps that turn a product's channels to where convolutions have them, computed in its kernel."""

import pytest

from tests.host.run_op import Ops

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
