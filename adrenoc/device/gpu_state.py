"""Clock, temperature and governor of an Adreno GPU, and whether two timings can be compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SYSFS = "/sys"
# A clock moves a little between two readings at the same level of its table.
CLOCK_TOLERANCE = 0.05


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """What the phone's kernel says of its GPU at one moment; empty or 0 where it cannot be read."""

    model: str = ""
    clock_mhz: float = 0.0
    max_clock_mhz: float = 0.0
    governor: str = ""
    temperature_c: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether anything could be read: only on a phone, and often only for its shell."""
        return self != GpuState()

    def __str__(self) -> str:
        facts = (
            f"{self.clock_mhz:.0f} MHz" if self.clock_mhz else "",
            f"of {self.max_clock_mhz:.0f} MHz" if self.max_clock_mhz else "",
            f"governor {self.governor}" if self.governor else "",
            f"{self.temperature_c:.1f} °C" if self.temperature_c else "",
        )
        return ", ".join(fact for fact in facts if fact) or "unknown"


def parse_gpu_state(text: str) -> GpuState:
    """Read what `adrenoc.runtime.gpu_state` answers."""
    facts = json.loads(text)
    return GpuState(
        model=str(facts.get("model", "")),
        clock_mhz=float(facts.get("clock_hz", 0)) / 1e6,
        max_clock_mhz=float(facts.get("max_clock_hz", 0)) / 1e6,
        governor=str(facts.get("governor", "")),
        temperature_c=float(facts.get("temperature_mc", 0)) / 1e3,
    )


def read_gpu_state(function: Callable[[str], str] | None) -> GpuState:
    """Ask the runtime, which may be a remote one; None is a runtime that cannot tell."""
    return GpuState() if function is None else parse_gpu_state(function(SYSFS))


def clock_notes(states: Sequence[GpuState], facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a reader of the times of one run should know of the clocks that it ran at.

    `facts` are the device's (`adrenoc.opencl.devices`): a CPU has no such clock.
    """
    if reason := why_not_comparable(states):
        return (f"not comparable with other runs: {reason}",)
    if facts.get("type") == "gpu" and not all(state.clock_mhz for state in states):
        return ("the GPU's clock could not be read: other runs may have been at another one",)
    return ()


def why_not_comparable(states: Sequence[GpuState]) -> str:
    """Return why times taken at these states say nothing against each other; empty where they
    do."""
    known = [state for state in states if state.is_known]
    governors = sorted({state.governor for state in known})
    if len(governors) > 1:
        return f"the GPU's governor changed: {', '.join(governors)}"
    clocks = [state.clock_mhz for state in known if state.clock_mhz]
    if clocks and max(clocks) > min(clocks) * (1 + CLOCK_TOLERANCE):
        return f"the GPU's clock changed from {clocks[0]:.0f} to {clocks[-1]:.0f} MHz"
    return ""
