"""A random graph under construction: what there is to read, and what may be added."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.host.run_op import Ops

Between = Callable[[int, int], int]
"""Decides: a whole number, both ends included."""

Shape = tuple[int, ...]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)


Made = Tensor | None
"""What a step gives; None where it does not fit the tensor."""


class Chooser:
    """All kinds of decisions, made of one."""

    def __init__(self, between: Between) -> None:
        self.between = between

    def one_of(self, items: Sequence[Item]) -> Item:
        return items[self.between(0, len(items) - 1)]

    def some(self, items: Sequence[Item]) -> list[Item]:
        """One or several of them, in their order."""
        return [item for item in items if self.maybe()] or [self.one_of(items)]

    def maybe(self) -> bool:
        return self.between(0, 1) == 1

    def order(self, count: int) -> list[int]:
        """A permutation of so many axes."""
        left = list(range(count))
        return [left.pop(self.between(0, len(left) - 1)) for _ in range(count)]


class Grower(Chooser):
    """Adds operators to `ops`, as `between` decides; no tensor has over `most` elements."""

    def __init__(self, ops: Ops, between: Between, most: int) -> None:
        super().__init__(between)
        self.ops = ops
        self.tensors: list[Tensor] = []
        self.read: set[str] = set()
        self.exact: set[str] = set()
        """Tensors that are known to the last bit."""
        self.ends: list[str] = []
        """Integers and booleans that may be outputs."""
        self.most = most
        self._weights: dict[tuple[Shape, float], str] = {}

    def input(self, *shape: int) -> Tensor:
        made = Tensor(self.ops.input(*shape), tuple(shape))
        self.tensors.append(made)
        self.exact.add(made.name)
        return made

    def whole_input(self, shape: Shape, count: int, dtype) -> str:
        """A graph input of whole numbers from zero to less than `count`."""
        return self.ops.whole_input(*shape, count=count, dtype=dtype)

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of that shape may be made."""
        return 0 < math.prod(shape) <= self.most and min(shape, default=1) > 0

    def __call__(
        self, op: str, *operands: Tensor | str, shape: Sequence[int] | None = None, **attrs
    ) -> Made:
        """Add an operator of one result; of the shape of the first operand if none is given."""
        first = operands[0]
        if shape is None:
            assert isinstance(first, Tensor)
            shape = first.shape
        if not self.fits(shape):
            return None
        names = [o.name if isinstance(o, Tensor) else o for o in operands]
        self.read.update(names)
        return self.keep(self.ops(op, *names, **attrs), shape)

    def keep(self, name: str, shape: Sequence[int]) -> Tensor:
        """Remember a tensor that an operator made."""
        made = Tensor(name, tuple(shape))
        self.tensors.append(made)
        return made

    def weight(self, *shape: int, around: float = 0.0) -> str:
        """A random constant of span 1; at times one that the graph has."""
        known = (shape, around)
        if known not in self._weights or self.maybe():
            self._weights[known] = self.ops.weight(*shape, around=around)
        return self._weights[known]

    def mask(self, *shape: int) -> str:
        """A random constant of bool."""
        return self.ops.mask(*shape)

    def ints(self, *values: int) -> str:
        """A constant vector of int64."""
        return self.ops.ints(*values)

    def like(self, shape: Shape, *, besides: Tensor) -> Tensor | None:
        """Another tensor of that shape, if there is one."""
        found = [t for t in self.tensors if t.shape == shape and t.name != besides.name]
        return self.one_of(found) if found else None
