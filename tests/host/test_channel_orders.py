"""Shuffled and unevenly split channels, which nothing moves, against onnxruntime."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.host.run_op import Ops


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
