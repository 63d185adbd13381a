"""What a plan stores in half, and numbers as they are when they have been stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.ir.graph import Graph
from adrenoc.ir.half import HALF_MAX
from adrenoc.ir.program import Program

_HALF = "float16"


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What is stored in half: computed tensors and constants of the planning graph."""

    tensors: frozenset[str]
    constants: frozenset[str]

    @property
    def count(self) -> int:
        """How many tensors and constants are stored in half."""
        return len(self.tensors) + len(self.constants)

    def together(self, other: Stored) -> Stored:
        """What is stored in half in one of the two."""
        return Stored(
            tensors=self.tensors | other.tensors, constants=self.constants | other.constants
        )


NOTHING = Stored(tensors=frozenset(), constants=frozenset())


def stored_in_half(program: Program) -> Stored:
    """The tensors and constants that a program holds in half precision."""
    graph = program.graph
    written = {graph.owner(name) for step in program.steps for name in step.writes}
    tensors = {
        name
        for name, tensor in graph.tensors.items()
        if tensor.value is None
        and graph.owner(name) in written
        and graph.placements[graph.owner(name)].dtype == _HALF
    }
    # Weights for local memory lie in pairs, as words; then the name alone tells.
    constants = {
        constant_of(graph, name)
        for name, param in program.params.items()
        if str(param.value.dtype) == _HALF or name.endswith(_HALF)
    }
    return Stored(tensors=frozenset(tensors), constants=frozenset(constants))


def round_to(value: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers that remain of these in a dtype; beyond its range infinity."""
    with np.errstate(over="ignore"):
        return value.astype(dtype).astype(value.dtype)


def round_within(value: np.ndarray, dtype: str) -> np.ndarray:
    """As stored, but within the range: overflow is the fault of who made it."""
    if dtype == "float16":
        value = np.clip(value, -HALF_MAX, HALF_MAX)
    return round_to(value, dtype)


def constant_of(graph: Graph, param: str) -> str:
    """The constant that a param was packed from: its name begins with the constant's."""
    name = param
    while name not in graph.tensors and "_" in name:
        name = name.rpartition("_")[0]
    return name
