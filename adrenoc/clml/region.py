"""A region: operators of one model that CLML runs as one graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Operand:
    """A tensor that an operator reads: one of the graph by name, or a constant by value."""

    name: str = ""
    value: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator:
    """One node of the JSON graph.

    `name` is what the runtime dispatches on (a composite name of TVM's, matched by its ending),
    `output` the tensor of the graph that it makes, with its shape.  `attrs` hold int, float, str,
    or flat lists of these.  `row` is the row of the pattern table that it came from, and `covers`
    names the operators of the model that it stands for.
    """

    name: str
    inputs: tuple[Operand, ...]
    output: str
    shape: tuple[int, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    row: str = ""
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """Operators in execution order; tensors of `inputs` come in, those of `outputs` go out.

    `shapes` holds the shape of each input; all floats of the graph have the one `dtype`.
    `version` is the oldest CLML interface that has all of the operators.  Halves are added up as
    `sum_dtype`; "" leaves it to the runtime, which takes halves as TVM's does.
    """

    symbol: str
    dtype: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    operators: tuple[Operator, ...]
    sum_dtype: str = ""

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """(name, value) of each constant in the order in which the graph first reads it."""
        for number, operand in enumerate(self.constant_operands()):
            if operand.value is None:
                raise ValueError(f"{self.symbol}: operand {operand.name} is no constant")
            name = f"{self.symbol}_openclml_const_{number}"
            yield name, np.ascontiguousarray(operand.value.astype(self.dtype))

    def constant_operands(self) -> Iterator[Operand]:
        """Yield the constant operands; one that two operators share comes once."""
        seen: set[int] = set()
        for operator in self.operators:
            for operand in operator.inputs:
                if operand.value is not None and id(operand) not in seen:
                    seen.add(id(operand))
                    yield operand
