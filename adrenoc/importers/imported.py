"""What every importer returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adrenoc.decision import Decision
from adrenoc.manifest import TensorSpec

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A model as Relax IR.

    `module["main"]` takes the inputs in order and returns one tensor or a tuple of tensors; its
    weights are constants and all its shapes are static.  `inputs` and `outputs` carry the model's
    own names.  `tensors` maps each variable of `main` to the tensor of the model that it holds,
    which a comparison layer by layer needs; `nodes` maps a tensor of the model to its node there,
    where nodes have names.
    """

    module: tvm.IRModule
    format: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    decisions: tuple[Decision, ...]
    model_sha256: str
    tensors: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
