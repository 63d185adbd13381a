"""The least time that a GPU can need for given work: a roofline of the target's file.

Three pipes work side by side, so the busiest one bounds the time:

    time = max(flops / ALU rate, texels / texture rate, bytes / DRAM bandwidth)

    ALU rate        fp32_fma_lanes * 2 * clock_mhz, times fp16_rate for half arithmetic
    texture rate    texels_per_clock * clock_mhz, of half and float texels alike
    DRAM bandwidth  dram_gb_per_s

It is a floor, not a forecast: caches, occupancy, latency and address arithmetic only add to it,
and so does the gap between two kernels: what the target has for it (`launch_us`) is shown beside
the floor, as `adrenoc check` does.

One rule for both models of time in the house: nothing is chosen by floors.  Choices are made by the
estimates of schedules (`adrenoc/kernels/families/`), which hold every bound above at the same
rates, DRAM's of the planes between Winograd's three kernels among them, and add registers, waits
and launches.  The floor of the way that is not chosen may be the lower one: no schedule of a direct
3x3 convolution comes near its own, while one of Winograd's that waits for DRAM is at it.

A rate that the target's file does not state leaves its bound out, and `missing` names it.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.target.gpu import Performance


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a kernel has to do, whatever its schedule.

    `flops` counts a multiply-add as two, `half` says in which precision; `texels` are those that
    the kernel reads; `bytes_read` and `bytes_written` count each tensor
    once, which is the least that goes over the memory bus.
    """

    flops: int = 0
    half: bool = False
    texels: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Microseconds on each pipe, None where the target gives no rate; `time_us` is the floor.

    `bound` names what decides: `alu`, `texture`, `dram`, or "" where nothing is known.
    """

    time_us: float | None = None
    bound: str = ""
    alu_us: float | None = None
    texture_us: float | None = None
    dram_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The rates of one GPU, each for a microsecond; None where its file does not say.

    `missing` are the keys of the target's file that would fill the gaps.
    """

    flops_per_us: float | None
    half_flops_per_us: float | None
    texels_per_us: float | None
    bytes_per_us: float | None
    launch_us: float | None
    missing: tuple[str, ...]

    @staticmethod
    def from_performance(performance: Performance) -> Roofline:
        """Return the rates that follow from a target's figures."""
        p = performance
        flops = _product(p.fp32_fma_lanes, 2, p.clock_mhz)
        return Roofline(
            flops_per_us=flops,
            half_flops_per_us=_product(flops, p.fp16_rate),
            texels_per_us=_product(p.texels_per_clock, p.clock_mhz),
            bytes_per_us=_product(p.dram_gb_per_s, 1e3),
            launch_us=p.launch_us,
            missing=tuple(f"performance.{k}" for k in _USED if getattr(p, k) is None),
        )

    def estimate(self, work: Work) -> Estimate:
        """Return the floor for one launch of this work."""
        flops_rate = self.half_flops_per_us if work.half else self.flops_per_us
        bounds = {
            "alu": _quotient(work.flops, flops_rate),
            "texture": _quotient(work.texels, self.texels_per_us),
            "dram": _quotient(work.bytes_read + work.bytes_written, self.bytes_per_us),
        }
        known = {name: time_us for name, time_us in bounds.items() if time_us is not None}
        bound = max(known, key=lambda name: known[name]) if known else ""
        return Estimate(
            time_us=known[bound] if known else None,
            bound=bound,
            alu_us=bounds["alu"],
            texture_us=bounds["texture"],
            dram_us=bounds["dram"],
        )


_USED = ("fp32_fma_lanes", "fp16_rate", "clock_mhz", "texels_per_clock", "dram_gb_per_s")


def _product(*factors: float | None) -> float | None:
    result = 1.0
    for factor in factors:
        if factor is None:
            return None
        result *= factor
    return result


def _quotient(amount: float, rate: float | None) -> float | None:
    return None if rate is None else amount / rate
