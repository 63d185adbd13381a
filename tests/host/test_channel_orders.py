"""Channels that are shuffled, split, turned or flattened, and views, against onnxruntime."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adrenoc.bundle.bundle import open_bundle
from tests.commands import succeed
from tests.examples import examples
from tests.host.run_op import Ops
from tests.tflite.build import ModelBuilder, T


class Net(Ops):
    """Operators that know the channels of their results and the extent of their rows."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.channels: dict[str, int] = {}
        self.rows: dict[str, tuple[int, int]] = {}

    def start(self, channels: int, rows: int = 7, columns: int = 5, images: int = 1) -> str:
        return self._made(self.input(images, channels, rows, columns), channels, (rows, columns))

    def conv(self, x: str, channels: int, kernel: int = 1, groups: int = 1, stride: int = 1) -> str:
        count = self.channels[x] // groups * kernel * kernel
        shape = (channels, self.channels[x] // groups, kernel, kernel)
        weight = self.const(self._random.uniform(-1, 1, shape) * (2 / count) ** 0.5)
        pads = [kernel // 2] * 4
        y = self(
            "Conv",
            x,
            weight,
            self.weight(channels),
            pads=pads,
            group=groups,
            strides=[stride, stride],
        )
        rows, columns = ((n - 1) // stride + 1 for n in self.rows[x])
        return self._made(y, channels, (rows, columns))

    def deep(self, x: str, stride: int = 1) -> str:
        """A depthwise convolution."""
        return self.conv(x, self.channels[x], kernel=3, groups=self.channels[x], stride=stride)

    def op(self, kind: str, *sources: str, **attrs) -> str:
        y = self(kind, *sources, **attrs)
        return self._made(y, self.channels[sources[0]], self.rows[sources[0]])

    def concat(self, *parts: str) -> str:
        channels = sum(self.channels[part] for part in parts)
        return self._made(self("Concat", *parts, axis=1), channels, self.rows[parts[0]])

    def cut(self, x: str, *channels: int) -> list[str]:
        parts = self.split(x, 1, *channels)
        return [self._made(p, n, self.rows[x]) for p, n in zip(parts, channels, strict=True)]

    def shuffle(self, x: str, groups: int) -> str:
        channels, (rows, columns) = self.channels[x], self.rows[x]
        shape = np.array([1, groups, channels // groups, rows, columns])
        wide = self("Reshape", x, self.const(shape, np.int64))
        turned = self("Transpose", wide, perm=[0, 2, 1, 3, 4])
        whole = np.array([1, channels, rows, columns])
        y = self("Reshape", turned, self.const(whole, np.int64))
        return self._made(y, channels, (rows, columns))

    def pick(self, x: str, *channels: int) -> str:
        y = self("Gather", x, self.const(np.array(channels), np.int64), axis=1)
        return self._made(y, len(channels), self.rows[x])

    def unit(self, x: str) -> str:
        """A block of ShuffleNetV2: half of the channels go on as they are."""
        half = self.channels[x] // 2
        kept, changed = self.cut(x, half, half)
        changed = self.op("Relu", self.conv(changed, half))
        changed = self.op("Relu", self.conv(self.deep(changed), half))
        return self.shuffle(self.concat(kept, changed), 2)

    def step(self, x: str, half: int) -> str:
        """Its block of stride two."""
        kept = self.op("Relu", self.conv(self.deep(x, 2), half))
        changed = self.op("Relu", self.conv(x, half))
        changed = self.op("Relu", self.conv(self.deep(changed, 2), half))
        return self.shuffle(self.concat(kept, changed), 2)

    @property
    def moves(self) -> list[str]:
        """Kernels of the last run that only moved data, beside those at the border."""
        moving = ("concat", "strided_slice", "reshape", "take")
        return [k for k in self.kernels if k.startswith(moving) and not k.endswith("_add")]

    def _made(self, name: str, channels: int, rows: tuple[int, int]) -> str:
        self.channels[name], self.rows[name] = channels, rows
        return name


@pytest.mark.parametrize("preset", ["fp32", "buffer", "fp16"])
def test_stages_of_shufflenet(device, preset):
    """Halves that are no multiple of four, and ranges of one channel."""
    net = Net()
    x = net.step(net.start(6, 9, 13), 10)
    x = net.step(net.unit(net.unit(x)), 6)
    net.output(net.op("Relu", net.conv(x, 9)))
    net.check(device, preset)
    assert net.moves == []


@pytest.mark.parametrize("preset", ["fp32", "buffer"])
def test_uneven_splits_with_residuals(device, preset):
    net = Net()
    parts = net.cut(net.op("Relu", net.conv(net.start(5), 28)), 7, 7, 7, 7)
    made = [parts[0]]
    for part in parts[1:]:
        last = part if len(made) == 1 else net.op("Add", made[-1], part)
        made.append(net.op("Sigmoid", net.conv(last, 7, kernel=3)))
    net.output(net.conv(net.concat(*made), 6))
    net.check(device, preset)
    assert net.moves == []


def test_a_part_that_keeps_its_order_goes_on(device):
    """Blocks of Res2Net: the last part is pooled, with what fills its last block up."""
    net = Net()
    *parts, last = net.cut(net.op("Relu", net.conv(net.start(5), 18)), 6, 6, 6)
    made = [net.op("Relu", net.conv(part, 6, kernel=3)) for part in parts]
    how = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}
    pooled = net.op("AveragePool", last, **how)
    net.output(net.conv(net.concat(*made, pooled), 6))
    net.check(device, "fp32")
    assert net.moves == []


@pytest.mark.parametrize(("groups", "preset"), [(2, "fp32"), (3, "buffer"), (4, "fp16")])
def test_a_shuffle_between_convolutions(device, preset, groups):
    net = Net()
    x = net.op("HardSwish", net.conv(net.start(5), 12))
    x = net.op("MaxPool", net.deep(net.shuffle(x, groups)), kernel_shape=[1, 1])
    scaled = net.op("Mul", x, net.weight(12, 1, 1))
    net.output(net.conv(scaled, 6, kernel=3), net.conv(x, 3))
    net.check(device, preset)
    assert net.moves == []


@pytest.mark.parametrize(("groups", "preset"), [(2, "fp32"), (3, "buffer"), (4, "fp16")])
def test_a_shuffle_between_groups(device, preset, groups):
    """Blocks of ShuffleNet: channels of a group go to all groups, some more than others."""
    net = Net()
    x = net.conv(net.start(5), 24)
    made = net.op("Relu", net.conv(x, 9 * groups, groups=groups))
    made = net.deep(net.shuffle(made, groups))
    added = net.op("Add", net.conv(made, 24, groups=groups), x)
    net.output(net.conv(net.op("Relu", added), 6))
    net.check(device, preset)
    assert net.moves == []


@pytest.mark.parametrize("preset", ["fp32"])
def test_what_else_reads_them_reads_the_usual_order(device, preset):
    """A softmax over channels, an output of the model, a channel that stands there twice."""
    net = Net()
    x = net.conv(net.start(5), 10)
    shuffled = net.shuffle(x, 2)
    left, right = net.cut(net.op("Relu", net.conv(x, 10)), 3, 7)
    picked = net.pick(x, 9, 0, 0, 4)
    net.output(
        net.op("Softmax", shuffled, axis=1),
        net.conv(net.concat(left, picked), 3),
        net.conv(right, 5),
        right,
    )
    net.check(device, preset)


@st.composite
def networks(draw) -> Net:
    """Random graphs of shuffles, uneven splits and joins."""
    net = Net(seed=draw(st.integers(0, 1000)))
    counts = st.sampled_from([6, 10, 12, 16, 24])
    made = [net.conv(net.start(draw(counts)), draw(counts))]
    kinds = ["conv", "deep", "shuffle", "shuffle", "split", "join", "join", "relu", "add", "unit"]
    kinds += ["groups", "groups"]
    for _ in range(draw(st.integers(4, 10))):
        x = draw(st.sampled_from(made[-4:]))
        kind, channels = draw(st.sampled_from(kinds)), net.channels[x]
        if kind == "shuffle":
            groups = draw(st.sampled_from([g for g in (2, 3, 4) if channels % g == 0] or [1]))
            made.append(net.shuffle(x, groups))
        elif kind == "split" and channels > 2:
            first = draw(st.integers(1, channels - 1))
            made += net.cut(x, first, channels - first)
        elif kind == "join":
            more = draw(st.lists(st.sampled_from(made), min_size=1, max_size=2))
            if sum(net.channels[n] for n in (x, *more)) <= 64:
                made.append(net.concat(x, *more))
        elif kind == "add":
            made.append(net.op("Add", net.conv(x, channels), x))
        elif kind == "deep":
            made.append(net.deep(x))
        elif kind == "relu":
            made.append(net.op("Relu", x))
        elif kind == "groups" and channels % 6 == 0:
            made.append(net.conv(x, channels, groups=draw(st.sampled_from([2, 3]))))
            made.append(net.shuffle(made[-1], draw(st.sampled_from([2, 3]))))
        elif kind == "unit" and channels % 2 == 0:
            made.append(net.unit(x))
        else:
            made.append(net.conv(x, draw(counts), kernel=draw(st.sampled_from([1, 3]))))
    ends = {made[-1], *(n for n in made[:-1] if draw(st.integers(0, 5)) == 0)}
    net.output(*(net.conv(n, 4) for n in made if n in ends))
    return net


@examples(4)
@given(net=networks(), preset=st.sampled_from(["fp32", "buffer"]))
def test_random_orders(device, net, preset):
    net.check(device, preset, tolerance=5e-5 if preset == "fp32" else None)


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
