"""Networks of branches: chains of convolutions that are concatenated, split, shuffled and added.

What VoVNet, HGNet, DenseNet, ghost and cross-stage networks are made of, in any mixture: the
tensors of one resolution share images, which is where kernels that are joined can come to read
what they write.
"""

from collections.abc import Callable

from tests.host.random_graphs.grower import Between, Chooser
from tests.host.run_op import Ops

CHANNELS = (4, 8, 8, 12, 16, 16, 24, 32)
EXTENTS = (6, 8, 8, 13)
MOST_CHANNELS = 96
FEW_CHANNELS = 6
"""Of which one is not a multiple of four."""


class Branches:
    """A network under construction; `alive` are the tensors of the current resolution."""

    def __init__(self, between: Between, *, seed: int) -> None:
        self.ops = Ops(seed=seed)
        self.choose = Chooser(between)
        self.channels: dict[str, int] = {}
        self.alive: list[str] = []
        self.extent = self.choose.one_of(EXTENTS)
        self.read: set[str] = set()

    def start(self) -> None:
        """The input, and a first convolution."""
        x = self.ops.input(1, 3, self.extent, self.extent)
        self.channels[x] = 3
        self.keep(self.conv(x, self.some_channels(), 3))

    def some_channels(self) -> int:
        """Mostly whole blocks of four."""
        return FEW_CHANNELS if self.choose.between(0, 11) == 0 else self.choose.one_of(CHANNELS)

    def keep(self, name: str) -> str:
        """Let others read a tensor."""
        self.alive.append(name)
        return name

    def pick(self) -> str:
        """A tensor to go on from: mostly the last."""
        name = self.alive[-1] if self.choose.between(0, 2) else self.choose.one_of(self.alive)
        self.read.add(name)
        return name

    def made(self, name: str, channels: int) -> str:
        """Note the channels of a tensor."""
        self.channels[name] = channels
        return name

    def conv(self, x: str, channels: int, kernel: int, *, depthwise: bool = False) -> str:
        """A convolution that keeps the resolution, and perhaps what follows it."""
        have = self.channels[x]
        channels = have if depthwise else channels
        shape = (channels, 1 if depthwise else have, kernel, kernel)
        size = 1.0 if depthwise else have**-0.5
        weight = self.ops.const(self.ops.values(*shape) * 3 * size / kernel)
        attrs = {"pads": [kernel // 2] * 4, "group": have if depthwise else 1}
        y = self.ops("Conv", x, weight, self.ops.weight(channels), **attrs)
        for _ in range(self.choose.between(0, 1)):
            y = self.ops(self.choose.one_of(("Relu", "Relu", "Sigmoid", "HardSwish")), y)
        return self.made(y, channels)

    def norm(self, x: str) -> str:
        """What stands before the convolutions of a DenseNet."""
        shape = (1, self.channels[x], 1, 1)
        scaled = self.ops("Mul", x, self.ops.weight(*shape, around=1.0))
        shifted = self.ops("Add", scaled, self.ops.weight(*shape))
        return self.made(self.ops("Relu", shifted), self.channels[x])

    def separable(self, x: str) -> str:
        """A 1x1 and a depthwise convolution, in either order."""
        if self.choose.between(0, 1):
            narrow = self.conv(x, self.some_channels(), 1)
            return self.conv(narrow, 0, self.choose.one_of((3, 3, 5)), depthwise=True)
        return self.conv(self.conv(x, 0, 3, depthwise=True), self.some_channels(), 1)

    def any_layer(self, x: str) -> str:
        kind = self.choose.between(0, 8)
        if kind < 3:
            return self.separable(x)
        if kind < 5:
            return self.conv(x, self.some_channels(), self.choose.one_of((1, 1, 3)))
        if kind < 7:
            return self.conv(self.norm(x), self.some_channels(), self.choose.one_of((1, 1, 3)))
        if kind == 7:
            return self.conv(x, 0, 3, depthwise=True)
        return self.norm(x)

    def grow(self) -> None:
        """A chain of layers, then a concatenation of all of them, perhaps of each stage too."""
        parts, stages = [self.pick()], bool(self.choose.between(0, 2) == 0)
        for _ in range(self.choose.between(1, 3)):
            source = parts[-1]
            if stages and len(parts) > 1:
                source = self.concat(parts)
            parts.append(self.any_layer(source))
        if self.choose.between(0, 3) == 0:
            parts = parts[1:]
        self.keep(self.concat(parts))

    def concat(self, parts: list[str]) -> str:
        """A concatenation along the channels."""
        name = self.ops("Concat", *parts, axis=1)
        return self.made(name, sum(self.channels[part] for part in parts))

    def split(self) -> None:
        """The channels in two, of which both are used."""
        x = self.pick()
        have = self.channels[x]
        if have < 8:
            return
        first = 4 * self.choose.between(1, have // 4 - 1)
        for name, count in zip(
            self.ops.split(x, 1, first, have - first), (first, have - first), strict=True
        ):
            self.keep(self.made(name, count))

    def ghost(self) -> None:
        """What a split gives, one part changed, joined again with the other."""
        before = len(self.alive)
        self.split()
        if len(self.alive) == before:
            return
        one, other = self.alive[-2:]
        parts = [self.any_layer(one), other]
        if self.choose.between(0, 1):
            parts.reverse()
        self.read.update((one, other))
        self.keep(self.concat(parts))

    def add(self) -> None:
        x = self.pick()
        y = self.conv(self.any_layer(x), self.channels[x], 1)
        if self.choose.between(0, 1):
            self.keep(self.made(self.ops("Add", x, y), self.channels[x]))
        else:
            self.keep(self.concat([y, x]))

    def layer(self) -> None:
        self.keep(self.any_layer(self.pick()))

    def shuffle(self) -> None:
        """Channels become pixels, and pixels channels again."""
        x = self.conv(self.pick(), 16, self.choose.one_of((1, 3)))
        wide = self.ops("DepthToSpace", x, blocksize=2)
        back = self.ops("SpaceToDepth", self.ops("Relu", wide), blocksize=2)
        self.keep(self.made(back, 16))

    def narrow(self) -> None:
        """Fewer channels, where there have become many."""
        if self.channels[self.alive[-1]] > MOST_CHANNELS:
            self.keep(self.conv(self.alive[-1], 16, 1))


STEPS: tuple[Callable[[Branches], None], ...] = (
    Branches.grow,
    Branches.grow,
    Branches.grow,
    Branches.ghost,
    Branches.split,
    Branches.add,
    Branches.layer,
    Branches.shuffle,
)


def draw_branches(between: Between) -> Ops:
    net = Branches(between, seed=between(0, 1000))
    net.start()
    for _ in range(between(1, 4)):
        net.choose.one_of(STEPS)(net)
        net.narrow()
    ends = [net.alive[-1], *[name for name in net.alive if name not in net.read][:-1][:2]]
    if between(0, 2) == 0:
        ends.append(net.choose.one_of(net.alive))
    net.ops.output(*dict.fromkeys(ends))
    return net.ops
