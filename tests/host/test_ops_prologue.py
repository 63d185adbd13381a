"""Maps where convolutions read, blocks that excite, and what ONNX cannot say."""

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax

from adrenoc.kernels.families import excite
from adrenoc.kernels.families.excite import EXCITE
from adrenoc.kernels.families.matmul.gemv import GemvTile
from adrenoc.passes.fuse import fuse_means
from tests.host.run_op import Ops, check_relax
from tests.host.test_channel_orders import Net

pytestmark = pytest.mark.operator


def _norm(net: Net, x: str) -> str:
    """Batch norm and ReLU, as they stand before a convolution."""
    channels = net.channels[x]
    scale, shift = net.weight(1, channels, 1, 1, around=1.0), net.weight(1, channels, 1, 1)
    for kind, other in (("Mul", scale), ("Add", shift)):
        x = net.op(kind, x, other)
    return net.op("Relu", x)


def test_before_a_dense_layer(device, preset):
    """The whole is read by its next layer and by those after it."""
    net = Net()
    first = net.conv(net.start(3, images=2), 12, kernel=3)
    second = net.conv(net.conv(_norm(net, first), 7), 6, kernel=3)
    whole = net.concat(first, second)
    net.output(net.conv(_norm(net, whole), 9), net.op("Sigmoid", whole))
    net.check(device, preset)
    assert [k for k in net.kernels if k not in ("layout", "conv2d")] == ["sigmoid"]


@pytest.mark.parametrize("channels", [5, 16])
def test_scales_of_channels_and_smooth_activations(device, preset, channels):
    """A gate that the model computes, Swish, two readers, strides, more than one tap."""
    net = Net()
    x = net.conv(net.start(4), channels)
    gate = net.op("Sigmoid", net.conv(net.op("GlobalAveragePool", x), channels))
    gated = net.op("Mul", x, gate)
    one, other = (
        net.conv(gated, 20),
        net("Conv", gated, net.weight(3, channels, 1, 1), strides=[2, 2]),
    )
    taps = net("Conv", net.op("HardSwish", x), net.weight(6, channels, 3, 2))
    net.output(one, other, taps, net.op("Tanh", x))
    net.check(device, preset)
    assert [k for k in net.kernels if k not in ("layout", "conv2d", "gemv", "mean")] == ["tanh"]


@pytest.mark.parametrize("preset", ["fp32", "buffer"])
def test_zeros_of_padding_come_after_the_map(device, preset):
    net = Net()
    x = net.conv(net.start(4), 8)
    shifted = net.op("Add", x, net.weight(1, 8, 1, 1, around=3.0))
    net.output(net.conv(shifted, 6, kernel=3), net.op("Relu", x))
    net.check(device, preset)
    assert "add" in net.kernels
    assert any("padding" in d.reason for d in net.decisions)


def test_one_channel_is_a_depthwise_convolution(ops, device):
    """The sum of squares of a local response norm; its kernel reads what is there."""
    ops.output(ops("LRN", ops("Relu", ops.input(2, 1, 5, 6)), size=3))
    ops.check(device, "fp32")
    assert "depthwise_conv2d" in ops.kernels


def _moved(net: Net, x: str, kind: str) -> str:
    """A tensor at other rows and columns."""
    if kind == "enlarge":
        scales = net.const([1.0, 1.0, 2.0, 3.0])
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
        y = net("Resize", x, "", scales, nearest_mode="floor", **how)
    else:
        y = net("Pad", x, net.ints(0, 0, 2, 1, 0, 0, 1, 3), mode=kind)
    net.channels[y] = net.channels[x]
    return y


@pytest.mark.parametrize(
    ("kind", "preset"),
    [("reflect", "mixed"), ("reflect", "buffer"), ("edge", "fp32"), ("enlarge", "fp16")],
)
def test_pads_and_enlargements_are_read_in_place(device, kind, preset):
    """With strides, dilation, padding of the convolution's own, channels that are not whole."""
    net = Net()
    x = net.conv(net.start(3, images=2), 6)
    y = _moved(net, x, kind)
    strided = net("Conv", y, net.weight(5, 6, 3, 2), strides=[2, 1])
    spread = net("Conv", y, net.weight(4, 6, 2, 2), dilations=[2, 3])
    bordered = net("Conv", y, net.weight(9, 6, 3, 3), pads=[1, 2, 2, 0])
    net.output(strided, spread, bordered, net.op("Tanh", x))
    net.check(device, preset)
    moves = [k for k in net.kernels if k not in ("layout", "conv2d", "tanh")]
    # Beyond the edge of an image there are zeros, beyond that of a buffer there is anything.
    assert len(moves) == (1 if preset == "buffer" else 0)


def test_pads_and_enlargements_at_once(device):
    net = Net()
    x = net.conv(net.start(4), 8)
    y = _moved(net, _moved(net, x, "enlarge"), "reflect")
    net.output(net("Conv", y, net.weight(7, 8, 3, 3)), net.op("Tanh", x))
    net.check(device, "fp32")
    assert [k for k in net.kernels if k not in ("layout", "conv2d")] == ["tanh"]


def test_pads_of_one_image_that_is_put_together(device):
    """What carries the batch of one image has no say."""
    net = Net()
    x = net.start(4)
    parts = [net.op("Elu", net.conv(x, 8)) for _ in range(2)]
    whole = net("Concat", *parts, axis=1)
    net.channels[whole] = 16
    y = _moved(net, _moved(net, whole, "enlarge"), "reflect")
    net.output(net("Conv", y, net.weight(7, 16, 3, 3)))
    net.check(device, "fp32")
    assert not any("resize" in k or "pad" in k for k in net.kernels)


def test_pads_of_zeros_are_padding_of_convolutions(ops, device):
    """In each axis and on each side; another reader of the pad needs a kernel."""
    x = ops("Relu", ops.input(2, 5, 6, 7))
    alone = ops("Pad", ops("Pad", x, ops.ints(0, 0, 0, 1, 0, 0, 1, 2)), ops.ints(*[0, 0, 1, 0] * 2))
    weight, taps = ops.weight(6, 5, 3, 3), ops.weight(5, 1, 3, 3)
    ops.output(ops("Conv", alone, weight, strides=[2, 2], pads=[0, 1, 0, 0]))
    ops.output(ops("Conv", alone, taps, group=5))
    shared = ops("Pad", x, ops.ints(0, 0, 1, 1, 0, 0, 1, 1))
    ops.output(ops("Conv", shared, weight), ops("Tanh", shared))
    ones = ops("Pad", x, ops.ints(0, 0, 1, 1, 0, 0, 1, 1), ops.const(1.0))
    ops.output(ops("Conv", ones, weight))
    padded = ops("Pad", ops("Relu", ops.input(1, 4, 9)), ops.ints(0, 0, 3, 0, 0, 1))
    ops.output(ops("Conv", padded, ops.weight(3, 4, 4)))
    ops.check(device, "fp32")
    pads = [k for k in ops.kernels if "pad" in k]
    assert len(pads) == 2, pads


def test_what_a_reduction_folds_has_no_padding(ops, device):
    """The mean of squares: a reduction has a prologue too, and no attributes of a convolution."""
    x = ops("Relu", ops.input(1, 6, 5, 7))
    squares = ops("Mul", x, ops("Sigmoid", x))
    ops.output(ops("ReduceMean", squares, ops.ints(2, 3)), ops("Tanh", x))
    ops.check(device, "fp32")
    assert "multiply" not in ops.kernels


def _net(channels: int, hidden: int, size: tuple[int, int], middle: str, gate: str) -> Ops:
    """An image times what a block of two 1x1 convolutions makes of its mean."""
    ops = Ops()
    x = ops("Tanh", ops.input(1, channels, *size, low=-0.5, high=1.5))
    mean = ops("GlobalAveragePool", x)
    s = ops("Conv", mean, ops.weight(hidden, channels, 1, 1), ops.weight(hidden))
    s = ops("Mul", s, ops("Sigmoid", s)) if middle == "Silu" else ops(middle, s)
    e = ops("Conv", s, ops.weight(channels, hidden, 1, 1), ops.weight(channels))
    ops.output(ops("Mul", x, ops(gate, e)))
    return ops


TILES = (
    ((1, 64, 1), 1, 7, 3, (5, 4)),
    ((2, 8, 1), 1, 18, 10, (9, 7)),
    ((4, 32, 1), 2, 96, 72, (7, 7)),
    ((8, 2, 1), 1, 130, 150, (3, 11)),
    ((1, 2, 1), 1, 21, 9, (1, 2)),
    ((1, 1, 1), 1, 9, 5, (17, 18)),
    ((2, 32, 1), 1, 6, 70, (5, 19)),
    ((4, 64, 1), 2, 7, 300, (1, 90)),
    ((8, 32, 1), 2, 50, 12, (28, 28)),
    ((2, 8, 1), 1, 12, 4, (72, 40)),
)


@pytest.mark.usefixtures("excites")
@pytest.mark.parametrize("number", range(len(TILES)))
def test_a_tile(number, preset, device, monkeypatch):
    group, unroll, channels, hidden, size = TILES[number]
    tile = GemvTile(work_group=group, unroll=unroll)
    monkeypatch.setattr(excite, "candidates", lambda *_: [tile])
    gate = "HardSigmoid" if number % 2 else "Sigmoid"
    ops = _net(channels, hidden, size, "Relu" if number % 2 else "Silu", gate)
    ops.check(device, preset)
    assert ops.kernels.count(EXCITE) == 1
    assert not {"mean", "gemv"} & {*ops.kernels}


@pytest.fixture
def excites(monkeypatch) -> None:
    """Blocks that excite are one kernel, whatever that takes."""
    monkeypatch.setattr(fuse_means, "excite_clocks", lambda *_: -1.0)


@pytest.mark.usefixtures("excites")
@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_a_pool_of_the_whole_image_is_its_mean(ops, preset, device):
    x = ops("Tanh", ops.input(1, 20, 6, 5))
    mean = ops("AveragePool", x, kernel_shape=[6, 5])
    s = ops("Relu", ops("Conv", mean, ops.weight(6, 20, 1, 1), ops.weight(6)))
    ops.output(ops("Mul", x, ops("Sigmoid", ops("Conv", s, ops.weight(20, 6, 1, 1)))))
    ops.check(device, preset)
    assert EXCITE in ops.kernels
    assert not {"mean", "avg_pool2d"} & {*ops.kernels}


@pytest.mark.usefixtures("excites")
@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_a_mean_that_others_read_too_stays_a_kernel(ops, preset, device):
    mean = ops("GlobalAveragePool", ops("Tanh", ops.input(1, 20, 6, 5)))
    s = ops("Relu", ops("Conv", mean, ops.weight(6, 20, 1, 1), ops.weight(6)))
    ops.output(ops("Sigmoid", ops("Conv", s, ops.weight(12, 6, 1, 1))), ops("Neg", mean))
    ops.check(device, preset)
    assert {"mean", EXCITE} <= {*ops.kernels}


@pytest.mark.usefixtures("excites")
@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_matrices_of_a_vector(ops, preset, device):
    """As networks with fully connected layers have them: no convolution takes part."""
    x = ops("Tanh", ops.input(1, 22, 6, 5))
    mean = ops("ReduceMean", x, ops.ints(2, 3), keepdims=0)
    s = ops("Relu", ops("Add", ops("MatMul", mean, ops.weight(22, 7)), ops.weight(7)))
    e = ops("Sigmoid", ops("Add", ops("MatMul", s, ops.weight(7, 22)), ops.weight(22)))
    ops.output(ops("Mul", x, ops("Reshape", e, ops.ints(1, 22, 1, 1))))
    ops.check(device, preset)
    assert EXCITE in ops.kernels


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1.0, 1.0, shape).astype(np.float32)


def _pool(kind: str, *window: object, **how: object) -> Callable[[relax.Expr], relax.Expr]:
    return lambda x: getattr(relax.op.nn, f"{kind}_pool2d")(x, *window, **how)


_LAST = {"strides": (2, 1), "padding": (1, 0, 1, 1), "layout": "NHWC"}
_ROUNDED_UP = {"strides": (2, 2), "ceil_mode": True}
OF_RELAX: dict[str, tuple[Callable[[relax.Expr], relax.Expr], tuple[int, ...], str]] = {
    "maxima, channels last": (_pool("max", (3, 2), **_LAST), (2, 7, 6, 5), "max_pool2d"),
    "means, channels last": (_pool("avg", (3, 2), **_LAST), (2, 7, 6, 5), "avg_pool2d"),
    "maxima, rounded up": (_pool("max", (3, 3), **_ROUNDED_UP), (1, 6, 8, 10), "max_pool2d"),
    "means, rounded up": (_pool("avg", (3, 3), **_ROUNDED_UP), (1, 6, 8, 10), "avg_pool2d"),
    "a convolution, channels last": (
        lambda x: relax.op.nn.conv2d(
            *(x, relax.const(data(3, 3, 5, 6))),
            padding=(1, 0, 1, 2),
            data_layout="NHWC",
            kernel_layout="HWIO",
        ),
        *((1, 6, 7, 5), "conv2d"),
    ),
    "a norm by squares": (
        lambda x: relax.op.nn.rms_norm(x, relax.const(data(9)), axes=[-1], epsilon=1e-3),
        *((2, 5, 9), "rms_norm"),
    ),
    # The mean over rows and columns keeps the last axis, which is the texel's.
    "a mean of tokens, channels last": (
        lambda x: relax.op.mean(_pool("max", (2, 2), layout="NHWC")(x), axis=[1, 2]),
        *((2, 5, 6, 10), "mean"),
    ),
}


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
@pytest.mark.parametrize("name", OF_RELAX)
def test_what_onnx_cannot_say(device, preset, name):
    make, shape, family = OF_RELAX[name]
    state = check_relax(device, make, data(*shape), preset=preset)
    families = [state.program.kernels[step.kernel].family for step in state.program.steps]
    assert family in families
