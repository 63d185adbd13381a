"""Concatenations in place and slices without a kernel, against onnxruntime."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.host.run_op import Ops

PRESETS = ("fp32", "mixed", "buffer", "fp16")


class Net(Ops):
    """Operators that know the channels of their results; rows and columns stay."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.channels: dict[str, int] = {}
        self.images = 1

    def start(self, channels: int, images: int = 1) -> str:
        self.images = images
        x = self.input(images, channels, 6, 5)
        self.channels[x] = channels
        return x

    def conv(self, x: str, channels: int, kernel: int = 1, groups: int = 1) -> str:
        count = self.channels[x] // groups * kernel * kernel
        weight = self.const(
            self._random.uniform(-1, 1, (channels, self.channels[x] // groups, kernel, kernel))
            * (2 / count) ** 0.5
        )
        pads = [kernel // 2] * 4
        y = self("Conv", x, weight, self.weight(channels), pads=pads, group=groups)
        self.channels[y] = channels
        return y

    def op(self, kind: str, *sources: str, **attrs: Any) -> str:
        y = self(kind, *sources, **attrs)
        self.channels[y] = self.channels[sources[0]]
        return y

    def concat(self, *parts: str) -> str:
        y = self("Concat", *parts, axis=1)
        self.channels[y] = sum(self.channels[part] for part in parts)
        return y

    def cut(self, x: str, *channels: int) -> list[str]:
        parts = self.split(x, 1, *channels)
        self.channels.update(zip(parts, channels, strict=True))
        return parts

    @property
    def moves(self) -> int:
        """Kernels of the last run that only moved data, beside those at the border."""
        return sum(k in ("concat", "strided_slice", "strided_slice_concat") for k in self.kernels)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_dense_block(device: Any, preset: str) -> None:
    net = Net()
    features = [net.conv(net.start(3, images=2), 8, kernel=3)]
    for made in (4, 8, 6):
        whole = features[0] if len(features) == 1 else net.concat(*features)
        narrow = net.op("Relu", net.conv(whole, 7))
        features.append(net.conv(narrow, made, kernel=3))
    net.output(net.conv(net.concat(*features), 5))
    net.check(device, preset)
    assert net.moves == 0


@pytest.mark.parametrize("preset", PRESETS)
def test_splits_branches_and_joins(device: Any, preset: str) -> None:
    """Pools, depthwise and transposed convolutions, resizes and residuals write parts and read
    slices; the last part may end within a block."""
    net = Net()
    whole = net.conv(net.start(5), 30)
    first, second, third = net.cut(whole, 8, 12, 10)
    pooled = net.op("MaxPool", second, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    deep = net.conv(first, 8, kernel=3, groups=8)
    added = net.op("Add", net.conv(third, 8), first)
    last = net.conv(third, 10)
    joined = net.concat(pooled, deep, added, last)
    nested = net.concat(net.conv(third, 4), joined)
    net.output(net.op("Relu", net.conv(nested, 9)), net.op("Softmax", nested, axis=1))
    net.check(device, preset)
    assert net.moves == 0


@pytest.mark.parametrize("preset", ["fp32", "buffer"])
def test_ghost_modules_and_parts_within_blocks(device: Any, preset: str) -> None:
    net = Net()
    x = net.start(4)
    first = net.conv(x, 8)
    ghost = net.concat(first, net.conv(first, 8, kernel=3, groups=8))
    odd = net.concat(net.conv(ghost, 6), net.conv(ghost, 7))
    left, right = net.cut(odd, 5, 8)
    twice = net.concat(net.conv(right, 4), left, left)
    net.output(net.conv(twice, 3), net.op("Relu", ghost))
    net.check(device, preset)


@st.composite
def networks(draw: Any) -> Net:
    """Random graphs of branches that are split and joined again."""
    net = Net(seed=draw(st.integers(0, 1000)))
    counts = st.sampled_from([4, 8, 12, 16, 5, 7])
    made = [net.conv(net.start(draw(counts), draw(st.integers(1, 2))), draw(counts))]
    for _ in range(draw(st.integers(3, 9))):
        x = draw(st.sampled_from(made[-6:]))
        kind = draw(st.sampled_from(["conv", "concat", "concat", "split", "relu", "add", "ghost"]))
        channels = net.channels[x]
        if kind == "concat":
            more = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
            if sum(net.channels[n] for n in (x, *more)) <= 128:
                made.append(net.concat(x, *more))
        elif kind == "split" and channels > 4:
            first = draw(st.sampled_from([c for c in (2, 4, 8, 12) if c < channels]))
            made += net.cut(x, first, channels - first)
        elif kind == "add":
            made.append(net.op("Add", net.conv(x, channels, kernel=3), x))
        elif kind == "ghost":
            made.append(net.concat(x, net.conv(x, channels, kernel=3, groups=channels)))
        elif kind == "relu":
            made.append(net.op("Relu", x))
        else:
            made.append(net.conv(x, draw(counts), kernel=draw(st.sampled_from([1, 3]))))
    used = {made[-1], *(n for n in made[:-1] if draw(st.integers(0, 4)) == 0)}
    net.output(*(net.op("Sigmoid", n) for n in made if n in used))
    return net


@examples(4)
@given(net=networks(), preset=st.sampled_from(["fp32", "buffer"]))
def test_random_branches(device: Any, net: Net, preset: str) -> None:
    net.check(device, preset, tolerance=5e-5 if preset == "fp32" else None)


@pytest.mark.parametrize("preset", ["fp32", "buffer"])
def test_outputs_beside_what_is_read_inside(device: Any, preset: str) -> None:
    net = Net()
    made = net.conv(net.start(5), 7)
    joined = net.concat(net.conv(made, 8), net.op("Relu", made))
    mean = net("GlobalAveragePool", joined)
    flat = net("Reshape", mean, net.ints(1, 15))
    net.output(made, net.conv(made, 6, kernel=3), joined, flat)
    net.check(device, preset)
    assert "layout" not in net.kernels[1:]
    assert "reshape" not in net.kernels
