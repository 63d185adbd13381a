"""The GPU that stands for many: it promises only what each of them holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from adrenoc.target.gpu import Gpu, Limits, Performance, Quirk, WorkGroup

# Of an alignment the largest suits all; of anything else the least does.
_ALIGNMENTS = ("image_pitch_align_texels",)
# What a kernel must fit into, and what is assumed of all alike.  Rates, clocks and sizes of caches
# say nothing about many GPUs.
_BUDGETS = (
    "registers_vec4_per_fiber_slot",
    "max_waves_per_compute_unit",
    "launch_us",
    "texel_weights",
    "split_winograd_least_pixels",
)

BANNED = "limits.banned_work_groups"
SIDES = "limits.max_work_item_sizes"

GpuAndSources = tuple[Gpu, dict[str, str]]


def common_gpu(gpus: Sequence[GpuAndSources]) -> GpuAndSources:
    """Return what all of `gpus` hold, with the source of each value: the GPU that decides it.

    A number is the least of those known, a flag holds where all have it (unknown where one is
    unknown and none denies it), extensions are those that every GPU has a word on, quirks add up.
    """
    merged = _Merge(gpus)
    limits: dict[str, Any] = {
        field.name: merged.value("limits", field.name)
        for field in fields(Limits)
        if not field.metadata.get("derived")
    }
    limits["banned_work_groups"] = merged.merge_banned()
    sides = [gpu.limits.group_sides for gpu, _ in gpus]
    limits["max_work_item_sizes"] = tuple(map(min, zip(*sides, strict=True)))
    performance = {name: merged.value("performance", name) for name in _BUDGETS}
    extensions = _common_extensions(gpus)
    for name, _ in extensions:
        merged.sources[f"extensions.{name}"] = "the listed Adreno GPUs taken together"
    gpu = Gpu(
        name="adreno",
        title="any listed Adreno",
        generation="a6xx and later",
        limits=Limits(**limits),
        performance=Performance(**performance, wave_sizes=merged.wave_sizes()),
        extensions=extensions,
        quirks=_all_quirks(gpus),
    )
    return gpu, merged.sources


class _Merge:
    def __init__(self, gpus: Sequence[GpuAndSources]) -> None:
        self.gpus = gpus
        self.sources: dict[str, str] = {}

    def value(self, section: str, name: str) -> Any:
        """Merge one value of all GPUs, and note which GPU decided."""
        known = []
        for gpu, sources in self.gpus:
            value = getattr(getattr(gpu, section), name)
            if value is not None:
                known.append((value, gpu, sources))
        if not known:
            return None
        pick = max if name in _ALIGNMENTS else min
        # "2.0" < "3.0" and False < True, so the least is right for these as well.
        value, gpu, sources = pick(known, key=lambda entry: entry[0])
        if isinstance(value, bool) and value and len(known) < len(self.gpus):
            return None
        key = f"{section}.{name}"
        count = "" if len(known) == len(self.gpus) else f", of the {len(known)} GPUs it is known of"
        self.sources[key] = f"{gpu.title}{count}: {sources[key]}"
        return value

    def merge_banned(self) -> tuple[WorkGroup, ...]:
        """Return the work-groups that any of the GPUs is wrong with."""
        banned = {group for gpu, _ in self.gpus for group in gpu.limits.banned_work_groups}
        if banned:
            sources = [s for _, s in self.gpus if BANNED in s]
            self.sources[BANNED] = "; ".join(dict.fromkeys(s[BANNED] for s in sources))
        return tuple(sorted(banned))

    def wave_sizes(self) -> tuple[int, ...] | None:
        """Return the wave sizes that every GPU with known ones has."""
        known = [gpu.performance.wave_sizes for gpu, _ in self.gpus if gpu.performance.wave_sizes]
        shared = sorted(set(known[0]).intersection(*known)) if known else []
        if shared:
            self.sources["performance.wave_sizes"] = "the listed Adreno GPUs taken together"
        return tuple(shared) or None


def _common_extensions(gpus: Sequence[GpuAndSources]) -> tuple[tuple[str, bool], ...]:
    maps = [dict(gpu.extensions) for gpu, _ in gpus]
    shared = sorted(set(maps[0]).intersection(*maps)) if maps else []
    return tuple((name, all(known[name] for known in maps)) for name in shared)


def _all_quirks(gpus: Sequence[GpuAndSources]) -> tuple[Quirk, ...]:
    return tuple(dict.fromkeys(quirk for gpu, _ in gpus for quirk in gpu.quirks))
