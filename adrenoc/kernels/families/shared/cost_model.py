"""What the clocks of a kernel depend on beside its work."""

from __future__ import annotations

from dataclasses import dataclass, replace

from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.target.gpu import Limits
from adrenoc.target.target import Target


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """How a model is compiled, and what the GPU can hold and how fast it is."""

    options: CompileOptions
    limits: Limits
    machine: Machine

    @staticmethod
    def from_target(options: CompileOptions, target: Target) -> CostModel:
        """Return the cost model of a target's figures."""
        machine = Machine.from_performance(target.performance, target.cost)
        return CostModel(options=options, limits=target.limits, machine=machine)

    @property
    def float_model(self) -> CostModel:
        """The cost model of the same target with arithmetic in float32."""
        return replace(self, options=replace(self.options, compute_dtype="float32"))

    @property
    def in_float32(self) -> CostModel:
        """The same with arithmetic and storage in float32."""
        wide = replace(self.options, compute_dtype="float32", storage_dtype="float32")
        return replace(self, options=wide)
