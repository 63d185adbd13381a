"""What every importer returns, how much it may make of little, and how it quotes frontends."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adrenoc.base.decision import Decision
from adrenoc.base.errors import RefusedError
from adrenoc.bundle.manifest import TensorSpec

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A model as Relax IR.

    `module["main"]` takes the inputs in order and returns one tensor or a tuple of tensors; its
    weights are constants and all its shapes are static.  `inputs` and `outputs` carry the model's
    own names, and so do variables of `main` where they can: `tensors` maps each that holds a tensor
    of the model as the model has it to that tensor, which a comparison layer by layer needs.
    `states` are pairs of an input and of the output, which is not among `outputs` then, that it is
    in the next run: `main` gives those after the others, in this order. `nodes` maps a tensor of
    the model to its node there, where nodes have names."""

    module: tvm.IRModule
    format: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    decisions: tuple[Decision, ...]
    model_sha256: str
    tensors: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    states: tuple[tuple[str, str], ...] = ()

    def node_of(self, tensor: str) -> str:
        """Return the model's node that makes a tensor of the graph, or an empty string. A tensor
        `MODEL'S NAME.PART` is a step on the way to the model's."""
        whole, _, part = tensor.rpartition(".")
        if tensor not in self.nodes and whole in self.nodes:
            return f"{self.nodes[whole]} ({part})"
        return self.nodes.get(tensor, "")


MOST_GROWN = 2**24
"""Elements, 128 MiB of int64: a file says in a few bytes that zeros fill all memory."""


def check_grown(count: int) -> None:
    """Check that a constant which a few numbers of the file describe is not out of measure."""
    if count > MOST_GROWN:
        raise RefusedError(too_much(count))


def too_much(count: float) -> str:
    """Return why a constant of `count` elements is refused."""
    return f"it makes {count:.0f} constant elements, expected up to {MOST_GROWN}"


_OPERATOR = re.compile(r'ir\.Op\(.*?\bname="([^"]*)".*?support_level=\d+\)')
"""All that TVM prints of an operator, which its name stands for."""

# There is no common class: a frontend that meets an attribute or a form that it does not know
# fails with whatever Python or TVM raises there.
CONVERTER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RefusedError,
    RuntimeError,
    TypeError,
    ValueError,
)


def quote(error: Exception) -> str:
    """Return one line of the message: TVM prints IR around the reason, and a traceback above it."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    lines = [_OPERATOR.sub(r"\1", line) for line in lines]
    reasons = [line for line in lines if "must" in line or "failed" in line or "support" in line]
    return (reasons or lines or [type(error).__name__])[-1]
