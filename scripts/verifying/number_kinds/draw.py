"""Small graphs under construction, drawn by seed: where numbers come from, and in which range.

Many graphs stand side by side in one model, each with inputs and outputs of its own: what compiles
together takes a fraction of the time.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from scripts.verifying.number_kinds.ranges import RANGES

OPSET = 21
Shape = tuple[int, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph: `size` is about its largest number."""

    name: str
    shape: Shape
    size: float = 1.0


@dataclass(kw_only=True)
class Parts:
    """What a model is made of."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    ruled: dict[str, float] = field(default_factory=dict)
    """What a network learned and a choice follows from: halves may decide a tie."""

    def model(self) -> onnx.ModelProto:
        """All graphs in one."""
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in self.inputs.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(n) for n in self.outputs]
        graph = helper.make_graph(self.nodes, "numbers", inputs, outputs, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        made.ir_version = 10
        return made


class Draw:
    """One graph: what it is made of is added to `parts` under names of its own."""

    def __init__(self, parts: Parts, name: str, seed: int) -> None:
        self.parts, self.name = parts, name
        self.random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        self.told: list[str] = []
        """What was chosen, for tables."""
        self._count = 0

    # Choices

    def one_of(self, choices: Sequence[T]) -> T:
        """Any of them."""
        return choices[int(self.random.integers(len(choices)))]

    def maybe(self, share: float = 0.5) -> bool:
        """Whether, in so many of all cases."""
        return bool(self.random.uniform() < share)

    def tell(self, *words: str) -> None:
        """Say what was chosen."""
        self.told += words

    # Nodes

    def __call__(self, op: str, *inputs: Tensor | str, shape: Shape = (), **attrs: Any) -> Tensor:
        """Add an operator; its first output, of the first input's shape unless told."""
        names = [i if isinstance(i, str) else i.name for i in inputs]
        made = self._new("t")
        self.parts.nodes.append(helper.make_node(op, names, [made], **attrs))
        first = next((i for i in inputs if isinstance(i, Tensor)), Tensor("", ()))
        return Tensor(made, shape or first.shape, first.size)

    def several(self, op: str, *inputs: Tensor | str, count: int, **attrs: Any) -> list[Tensor]:
        """Add an operator of several outputs."""
        names = [i if isinstance(i, str) else i.name for i in inputs]
        made = [self._new("t") for _ in range(count)]
        self.parts.nodes.append(helper.make_node(op, names, made, **attrs))
        return [Tensor(name, ()) for name in made]

    def const(self, value: Any, dtype: Any = np.float32) -> Tensor:
        """A constant."""
        array = np.asarray(value, dtype)
        name = self._new("k")
        self.parts.constants.append(numpy_helper.from_array(array, name))
        return Tensor(name, array.shape, float(np.abs(array).max()) if array.size else 0.0)

    def ints(self, *values: int) -> Tensor:
        """Axes, extents."""
        return self.const(values, np.int64)

    def input(self, values: np.ndarray) -> Tensor:
        """A graph input with these values."""
        name = self._new("x")
        self.parts.inputs[name] = values
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        return Tensor(name, values.shape, float(np.abs(finite).max(initial=0)))

    def output(self, *tensors: Tensor) -> None:
        """What is compared."""
        for tensor in tensors:
            name = f"{self.name}.{len([o for o in self.parts.outputs if o.startswith(self.name)])}"
            self.parts.nodes.append(helper.make_node("Identity", [tensor.name], [name]))
            self.parts.outputs.append(name)

    def rule(self, tensor: Tensor) -> None:
        """Halves may be in this tensor, which a network learned, and decide what is near a tie."""
        self.parts.ruled[tensor.name] = 2.0**-10

    def _new(self, letter: str) -> str:
        self._count += 1
        return f"{self.name}_{letter}{self._count}"

    # Shorthands

    def scale(self, x: Tensor, factor: Any) -> Tensor:
        """Times a constant."""
        k = self.const(factor)
        made = self("Mul", x, k, shape=np.broadcast_shapes(x.shape, k.shape))
        return Tensor(made.name, made.shape, x.size * k.size)

    def shift(self, x: Tensor, addend: Any) -> Tensor:
        """Plus a constant."""
        k = self.const(addend)
        made = self("Add", x, k, shape=np.broadcast_shapes(x.shape, k.shape))
        return Tensor(made.name, made.shape, x.size + k.size)

    def fit(self, x: Tensor, size: float) -> Tensor:
        """Scaled so that its largest number is about that."""
        return self.scale(x, size / x.size) if x.size else x

    def to_float(self, x: Tensor) -> Tensor:
        """Cast to float."""
        return self("Cast", x, to=TensorProto.FLOAT)

    def rows(self) -> Shape:
        """A few rows: of as many sums, which three are too few to tell the range of."""
        return (1, self.one_of((7, 8, 17, 40)), self.one_of((4, 8, 13, 32, 64)))

    def image(self) -> Shape:
        """Channels and pixels."""
        side = self.one_of((7, 8, 16, 20))
        return (1, self.one_of((1, 3, 4, 8, 16)), side, side)

    def floats(self, shape: Shape, names: Sequence[str] = tuple(RANGES)) -> Tensor:
        """A graph input in some range."""
        name = self.one_of(names)
        self.tell(name)
        return self.input(RANGES[name](self.random, shape).astype(np.float32))

    def weights(self, *shape: int, gain: float = 1.0) -> np.ndarray:
        """Trained-like weights of a product, [in, out]: a few columns are larger than the rest."""
        made = self.random.normal(size=shape) * gain / np.sqrt(np.prod(shape[:-1]))
        made *= np.exp(self.random.normal(size=shape[-1]) * 0.4)
        return np.asarray(made, np.float32)


Kind = Callable[[Draw], None]
