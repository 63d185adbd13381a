"""Networks of branches that are split and joined, for tests of passes."""

import numpy as np
import onnx

from tests.models import graph


class Net:
    """A network under construction; every tensor is [1, channels, 8, 8]."""

    def __init__(self, channels: int) -> None:
        self._nodes = ""
        self._constants: dict[str, np.ndarray] = {}
        self._channels = {"x": channels}
        self._first = channels

    def conv(self, source: str, channels: int, kernel: int = 1, groups: int = 1) -> str:
        """A convolution that keeps rows and columns."""
        name = self._new(channels)
        shape = (channels, self._channels[source] // groups, kernel, kernel)
        # Means: sums would leave the range of half, and stay in float32, where less is fused.
        self._constants[f"w_{name}"] = np.full(shape, 1 / np.prod(shape[1:]), np.float32)
        how = f"pads = {[kernel // 2] * 4}, group = {groups}"
        self._nodes += f"{name} = Conv <{how}>({source}, w_{name}) "
        return name

    def concat(self, *parts: str) -> str:
        name = self._new(sum(self._channels[part] for part in parts))
        self._nodes += f"{name} = Concat <axis = 1>({', '.join(parts)}) "
        return name

    def split(self, source: str, *channels: int) -> list[str]:
        names = [self._new(count) for count in channels]
        self._constants[f"s_{names[0]}"] = np.array(channels)
        self._nodes += f"{', '.join(names)} = Split <axis = 1>({source}, s_{names[0]}) "
        return names

    def op(self, kind: str, *sources: str) -> str:
        name = self._new(self._channels[sources[0]])
        self._nodes += f"{name} = {kind}({', '.join(sources)}) "
        return name

    def halved(self, source: str) -> str:
        """Every second row and column."""
        name = self._new(self._channels[source])
        self._nodes += f"{name} = MaxPool <kernel_shape = [2, 2], strides = [2, 2]>({source}) "
        return name

    def doubled(self, source: str) -> str:
        """Every row and column twice."""
        name = self._new(self._channels[source])
        self._constants["scales"] = np.array([1, 1, 2, 2], np.float32)
        self._nodes += f"{name} = Resize({source}, , scales) "
        return name

    def norm(self, source: str) -> str:
        """A scale and a shift of each channel, and ReLU."""
        shape = (1, self._channels[source], 1, 1)
        for kind in ("Mul", "Add"):
            number = f"n{len(self._constants)}"
            self._constants[number] = np.full(shape, 0.5, np.float32)
            source = self.op(kind, source, number)
        return self.op("Relu", source)

    def model(self, *outputs: str) -> onnx.ModelProto:
        shape = [1, self._first, 8, 8]
        return graph(self._nodes, {"x": shape}, outputs, self._constants, opset=18)

    def _new(self, channels: int) -> str:
        name = f"t{len(self._channels)}"
        self._channels[name] = channels
        return name
