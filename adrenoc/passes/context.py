"""What a pass may ask beside the graph that it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from adrenoc.base.decision import DecisionLog
from adrenoc.ir.graph import Graph
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.shared.machine import CostModel
from adrenoc.target.gpu import Limits
from adrenoc.target.target import Target


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the user chose, what is compiled for, and where a pass says what it decides."""

    options: CompileOptions
    target: Target
    log: DecisionLog
    names: Mapping[str, str] = field(default_factory=dict)
    """Tensor of the graph -> the model's own name of it, for those that have one."""

    @property
    def limits(self) -> Limits:
        """Return what the GPU can hold."""
        return self.target.limits

    @property
    def costs(self) -> CostModel:
        """Return what estimates of clocks go by."""
        return CostModel.from_target(self.options, self.target)

    def avoids(self, word: str) -> bool:
        """Return whether the target is to do without this, by a word of `target/gpu.py`."""
        return word in self.target.avoided

    @property
    def silent(self) -> Context:
        """Copy the context for a pass that asks what another would do: nobody reads that log."""
        return replace(self, log=DecisionLog())


Pass = Callable[[Graph, Context], Graph]
"""The signature of every pass on the planning graph; the graph that it is given stays as it is."""
