"""What a bundle holds of a compiled model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from adrenoc.bundle.launches import LaunchInfo
from adrenoc.bundle.manifest import (
    KernelInfo,
    MemoryPlan,
    ParamSpec,
    RegionInfo,
    Statistics,
    TensorSpec,
)

if TYPE_CHECKING:
    import numpy as np

    from adrenoc.base.decision import DecisionLog


class CompiledModel(Protocol):
    """What `compile_model` returns, as far as a bundle holds it."""

    @property
    def params(self) -> Mapping[str, np.ndarray]:
        """The packed constants by name."""

    @property
    def param_specs(self) -> tuple[ParamSpec, ...]:
        """The packed constants in the order in which `main` takes them."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The model's inputs in order."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The model's outputs in order."""

    @property
    def states(self) -> tuple[str, ...]:
        """The inputs whose memory a run changes, for the next one."""

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """Each OpenCL kernel, with its source."""

    @property
    def memory(self) -> MemoryPlan:
        """The plan of intermediate storage."""

    @property
    def statistics(self) -> Statistics:
        """Where operators and tensors went."""

    @property
    def launches(self) -> tuple[LaunchInfo, ...]:
        """What each launch computes, in order."""

    @property
    def regions(self) -> tuple[RegionInfo, ...]:
        """What OpenCL ML computes where a device has it."""

    @property
    def decisions(self) -> DecisionLog:
        """What was chosen, and why."""
