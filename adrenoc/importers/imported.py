"""What every importer returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adrenoc.base.decision import Decision
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
    in the next run: `main` gives those after the others, in this order.
    `nodes` maps a tensor of the model to its node there, where nodes have names.
    """

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
        """Return the model's node that makes a tensor of the graph, or an empty string.

        A tensor `MODEL'S NAME.PART` is a step on the way to the model's.
        """
        whole, _, part = tensor.rpartition(".")
        if tensor not in self.nodes and whole in self.nodes:
            return f"{self.nodes[whole]} ({part})"
        return self.nodes.get(tensor, "")
