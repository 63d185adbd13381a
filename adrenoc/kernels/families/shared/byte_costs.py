"""What multiplying bytes costs beside the same convolutions in the preset's arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.base.decision import DecisionLog
from adrenoc.target.gpu import Performance

_KILO = 1e3


@dataclass(kw_only=True)
class ByteCosts:
    """Estimates of the operators that multiply bytes, summed over a graph."""

    operators: int = 0
    bytes_clocks: float = 0.0
    floats_clocks: float = 0.0
    """Clocks of the same operators in the preset's storage and arithmetic, their inputs
    dequantised; one kernel each."""

    def add(self, as_bytes: float, as_floats: float) -> None:
        """Count one operator; clocks of the whole GPU."""
        self.operators += 1
        self.bytes_clocks += as_bytes
        self.floats_clocks += as_floats

    def say(self, log: DecisionLog, performance: Performance, preset: str) -> None:
        """Log both figures, in ms where the clock is known, and what was taken."""
        if not self.operators:
            return
        unit, scale = "kclocks", _KILO
        if performance.clock_mhz:
            unit, scale = "ms", performance.clock_mhz * _KILO
        floats = f"{self.floats_clocks / scale:.3g} {unit} as {preset} numbers, layer by layer"
        faster = self.bytes_clocks <= self.floats_clocks
        log.add(
            f"{self.operators} convolutions and products",
            f"multiplied as bytes, estimated {self.bytes_clocks / scale:.3g} {unit}",
            f"{floats}, whose sums are not exact" if faster else f"exact; it would take {floats}",
        )
