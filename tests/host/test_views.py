"""Concatenations in place and slices without a kernel, against onnxruntime."""

import pytest

from tests.host.test_channel_orders import Net


def test_a_dense_block(device, preset):
    net = Net()
    features = [net.conv(net.start(3, images=2), 8, kernel=3)]
    for made in (4, 8, 6):
        whole = features[0] if len(features) == 1 else net.concat(*features)
        narrow = net.op("Relu", net.conv(whole, 7))
        features.append(net.conv(narrow, made, kernel=3))
    net.output(net.conv(net.concat(*features), 5))
    net.check(device, preset)
    assert net.moves == []


def test_splits_branches_and_joins(device, preset):
    """Pools, depthwise and transposed convolutions, resizes and residuals write parts and read
    slices; the last part may end within a block."""
    net = Net()
    first, second, third = net.cut(net.conv(net.start(5), 30), 8, 12, 10)
    pooled = net.op("MaxPool", second, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    deep = net.conv(first, 8, kernel=3, groups=8)
    added = net.op("Add", net.conv(third, 8), first)
    joined = net.concat(pooled, deep, added, net.conv(third, 10))
    nested = net.concat(net.conv(third, 4), joined)
    net.output(net.op("Relu", net.conv(nested, 9)), net.op("Softmax", nested, axis=1))
    net.check(device, preset)
    assert net.moves == []


@pytest.mark.parametrize("preset", ["fp32", "buffer"])
def test_ghost_modules_and_parts_within_blocks(device, preset):
    net = Net()
    first = net.conv(net.start(4), 8)
    ghost = net.concat(first, net.conv(first, 8, kernel=3, groups=8))
    left, right = net.cut(net.concat(net.conv(ghost, 6), net.conv(ghost, 7)), 5, 8)
    twice = net.concat(net.conv(right, 4), left, left)
    net.output(net.conv(twice, 3), net.op("Relu", ghost))
    net.check(device, preset)


@pytest.mark.parametrize("preset", ["fp32", "buffer"])
def test_outputs_beside_what_is_read_inside(device, preset):
    net = Net()
    made = net.conv(net.start(5), 7)
    joined = net.concat(net.conv(made, 8), net.op("Relu", made))
    flat = net("Reshape", net("GlobalAveragePool", joined), net.ints(1, 15))
    net.output(made, net.conv(made, 6, kernel=3), joined, flat)
    net.check(device, preset)
    assert "layout" not in net.kernels[1:]
    assert "reshape" not in net.kernels
