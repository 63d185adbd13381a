"""Where a device is not as its listed GPU is written down, and what that means for choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adrenoc.lab.calibrate.derive import Value
from adrenoc.target.target import Target

NAMED = 0.2
"""The relative difference from the listed value from which on a measured one is named."""

_MEANS = {
    "compute_units": ("work is spread over more processors", "large tiles leave processors idle"),
    "clock_mhz": ("every estimate is shorter", "every estimate is longer"),
    "fp32_fma_lanes": (
        "kernels wait for texels and memory sooner: more results a thread win",
        "arithmetic bounds more kernels: Winograd wins more often",
    ),
    "fp16_rate": ("halves pay more than was reckoned", "halves save memory more than time"),
    "texels_per_clock": (
        "weights in textures and small tiles lose less",
        "texels bound more kernels: weights by local memory and larger tiles win",
    ),
    "dram_gb_per_s": (
        "planes between kernels cost less: joins win less often",
        "planes between kernels cost more: joins win more often",
    ),
    "launch_us": (
        "a launch costs more: joined kernels win more often",
        "a launch costs less: split kernels, such as Winograd's three, win more often",
    ),
    "bytes_per_clock": ("weights by buffers cost less", "weights by buffers cost more"),
    "local_read_clocks": (
        "local memory is slower than reckoned: kernels that read it less win",
        "local memory is faster than reckoned: kernels that share through it win",
    ),
    "local_bytes_per_clock": (
        "wide reads of local memory cost less: float and larger tiles through it win",
        "wide reads of local memory cost more: kernels that read it less win",
    ),
    "local_by_width": (
        "wide reads of local memory are sure to cost more, which was weighed with the contrary",
        "wide reads of local memory cost no more, which was weighed with the contrary",
    ),
    "texture_latency_clocks": ("more texels at once win", "fewer texels at once are enough"),
    "buffer_latency_clocks": ("more loads at once win", "fewer loads at once are enough"),
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A value beside the listed one; `ratio` is theirs, `means` is empty below 20 %.

    One that `is_certain` not is no part of the target file.
    """

    key: str
    listed: float | None
    listed_source: str
    measured: float
    spread: float
    doubt: float
    is_certain: bool
    ratio: float | None
    means: str


def differences(values: Sequence[Value], listed: Target) -> tuple[Difference, ...]:
    """Each value beside that of the listed GPU, or what stands in where its file has none."""
    return tuple(_difference(value, listed) for value in values)


def _difference(value: Value, listed: Target) -> Difference:
    section, _, name = value.key.rpartition(".")
    if section == "performance":
        known = getattr(listed.performance, name)
    else:
        known = getattr(getattr(listed.cost, section.removeprefix("cost.")), name)
    ratio = float(value.value) / float(known) if known else None
    means = ""
    if not value.is_certain:
        means = f"may be off by {100 * value.doubt:.0f} %: the listed value stands"
    elif ratio is not None and (ratio > 1 + NAMED or ratio < 1 / (1 + NAMED)):
        more, less = _MEANS[name]
        means = more if ratio > 1 else less
    return Difference(
        key=value.key,
        listed=known,
        listed_source=listed.source_of(value.key) or "",
        measured=float(value.value),
        spread=value.spread,
        doubt=value.doubt,
        is_certain=value.is_certain,
        ratio=ratio,
        means=means,
    )
