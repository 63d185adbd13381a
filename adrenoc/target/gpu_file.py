"""Read the file of one GPU: `targets/gpu/NAME.toml`, or one of a user's own in the same form.

A file may build on a listed device, and then states only what differs:

    title = "my phone"
    base = "adreno:750"

    [performance]
    launch_us = { value = 7.5, source = "measured on my phone, driver E031.45, 2026-12-01" }

The device `adreno` stands for many GPUs, and promises only what each of them holds.

A user's own file, given as `--device FILE.toml`, may come from somebody else, so it is read with a
bound, sets no options, and its limits have to be such as an OpenCL device can have.  Its name is
the file's, which a bundle remembers; the bundle carries the text too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from adrenoc.base.errors import TargetError
from adrenoc.base.files.read import MOST_TOML_BYTES, read_plain, sha256_bytes
from adrenoc.base.text import names
from adrenoc.base.text.spelling import quote_word
from adrenoc.target.cost import NO_COSTS, Cost, CostTables
from adrenoc.target.gpu import (
    FEATURES,
    OPENCL_C_VERSIONS,
    Gpu,
    Limits,
    Performance,
    Quirk,
    WorkGroup,
    describe_quirk,
    is_word,
)
from adrenoc.target.sourced import SourcedFile

SUFFIX = ".toml"
_HOST = re.compile(r"\s*host\s*:\s*", re.IGNORECASE)

# What the least of the listed GPUs has, or an embedded profile of OpenCL promises,
# and what nothing that computes in 32 bits of an index may pass.
_BOUNDS = {
    "image2d_max_width_texels": (2048, 1 << 20),
    "image2d_max_height_texels": (2048, 1 << 20),
    "image_max_array_layers": (1, 1 << 20),
    "image_pitch_align_texels": (1, 1 << 16),
    "max_read_image_args": (8, 1 << 16),
    "max_write_image_args": (8, 1 << 16),
    "max_kernel_args": (16, 1 << 16),
    "max_kernel_args_bytes": (256, 1 << 20),
    "max_work_group_size": (4, 1 << 16),
    "local_mem_bytes": (2048, 1 << 24),
    "max_alloc_bytes": (1 << 20, 1 << 48),
}
_LEAST_SIDE = 64
"""Of work-groups: teams lie along x or y; along z one is enough."""
_MAY_BE_NONE = "limits.local_mem_bytes"
"""What kernels can do without altogether, as where barriers do not wait."""
_RATES = {
    "compute_units": (1, 4096),
    "micro_sps_per_compute_unit": (1, 64),
    "registers_vec4_per_fiber_slot": (16, 4096),
    "wave_granularity": (1, 64),
    "max_waves_per_compute_unit": (1, 256),
    "fp32_fma_lanes": (1, 10**6),
    "fp16_rate": (0.01, 100.0),
    "clock_mhz": (1, 10**5),
    "texels_per_clock": (0.001, 10.0**6),
    "dram_gb_per_s": (0.01, 10.0**5),
    "launch_us": (0.001, 10.0**6),
    "host_launch_us": (0.001, 10.0**6),
    "split_winograd_least_pixels": (1, 10**9),
}
_WAVES = frozenset(1 << power for power in range(11))
_TIMES = 1000.0
"""How much more or less than the listed table a cost may be."""


@dataclass(frozen=True, kw_only=True)
class OwnFile:
    """The text of such a file; `path` is as the user gave it, `name` the last part of it.  `device`
    is what the options say in place of the path, where the text was made of them."""

    path: Path
    name: str
    text: str
    device: str = ""

    @staticmethod
    def read(path: Path, *, name: str | None = None) -> OwnFile:
        """Read a file; `name` is what it was called, where it lies under another name."""
        called = path.name if name is None else name
        _check_name(path, called)
        try:
            text = read_plain(path, MOST_TOML_BYTES).decode("utf-8")
        except OSError as error:
            raise TargetError(
                f"cannot read the target file {path}: {error.strerror or error}",
                hint="adrenoc targets",
            ) from error
        except UnicodeDecodeError as error:
            raise TargetError(
                f"{path} is not a TOML file: it is not UTF-8 at byte {error.start}",
                hint=f"correct {quote_word(path)}, then: adrenoc targets {quote_word(path)}",
            ) from error
        return OwnFile(path=path, name=called, text=text)

    @property
    def stem(self) -> str:
        """Return the name without its ending."""
        return self.name.removesuffix(SUFFIX)

    @property
    def sha256(self) -> str:
        """Return the digest of the text, in hexadecimal."""
        return sha256_bytes(self.text.encode("utf-8"))

    def parse(self) -> SourcedFile:
        """Parse the text as a target file."""
        shown = "" if self.device else str(self.path)
        return SourcedFile(self.path, text=self.text, device=shown)

    @staticmethod
    def base(file: SourcedFile) -> str | None:
        """Return the listed device that a file builds on."""
        return file.text(file.tables, "base") if "base" in file.tables else None


def check_output_name(path: Path) -> None:
    """Check that a file of this name could be read again as a target."""
    if own_path(path.name) is None:
        raise TargetError(
            f"the target file {path} is to end in {SUFFIX}, which --device knows it by",
            hint=f"--output {quote_word(path)}{SUFFIX}",
        )
    _check_name(path, path.name)


def _check_name(path: Path, name: str) -> None:
    if not names.BUNDLE.allows(name):
        raise TargetError(
            f"the target file {path} is called {name!r}, expected {names.BUNDLE.expected}",
            hint=f"rename {quote_word(path)}, to phone.toml for one",
        )


def own_path(name: str) -> Path | None:
    """Return the file that a device is: `FILE.toml`, `host:FILE.toml`; None for a listed one."""
    if not name.strip().lower().endswith(SUFFIX):
        return None
    return Path(_HOST.sub("", name, count=1) if _HOST.match(name) else name)


def is_for_host(name: str) -> bool:
    """Return whether a device's name asks for a CPU part for this machine."""
    return _HOST.match(name) is not None


def check_figures(file: SourcedFile, gpu: Gpu) -> None:
    """Refuse limits and rates that no OpenCL device has."""
    for section, bounds in (("limits", _BOUNDS), ("performance", _RATES)):
        for name, (least, most) in bounds.items():
            value, key = getattr(getattr(gpu, section), name), f"{section}.{name}"
            is_none = value is None or (value == 0 and key == _MAY_BE_NONE)
            if not is_none and not least <= value <= most:
                raise file.wrong(key, f"seen {value}", f"from {least} to {most}")
    sides = gpu.limits.group_sides
    if min(sides[:2]) < min(_LEAST_SIDE, gpu.limits.max_work_group_size):
        expected = f"{_LEAST_SIDE} or more in x and y"
        raise file.wrong("limits.max_work_item_sizes", f"seen {list(sides)}", expected)
    sizes = gpu.performance.wave_sizes or ()
    if not _WAVES.issuperset(sizes):
        seen = f"seen {list(sizes)}"
        raise file.wrong("performance.wave_sizes", seen, "powers of two, 1024 at most")


def check_costs(file: SourcedFile, cost: Cost, listed: Cost) -> None:
    """Refuse what is no measured cost: which schedules are tried is not for a file to say."""
    families = {key: table for key, table in file.table("cost").items() if key != "base"}
    for family, table in families.items():
        for key in table:
            before, now = (getattr(getattr(of, family), key) for of in (listed, cost))
            name = f"cost.{family}.{key}"
            if not is_cost(key, before):
                raise file.wrong(name, f"seen {now}", "a cost; this bounds what is tried")
            if not before / _TIMES <= now <= before * _TIMES:
                expected = f"from a thousandth to a thousand times {before}"
                raise file.wrong(name, f"seen {now}", expected)


def is_cost(key: str, value: object) -> bool:
    """Return whether a key of a cost table is a cost to measure, and no bound of a search."""
    is_number = isinstance(value, float) or key.endswith("_clocks")
    return is_number and not key.startswith(NO_COSTS)


def clamp_value(key: str, value: float, cost: Cost) -> float:
    """Return what a file may say for "performance.launch_us" that is nearest to what was measured.
    `cost` is the table that the file builds on."""
    section, _, name = key.rpartition(".")
    if section.startswith("cost."):
        listed = getattr(getattr(cost, section.removeprefix("cost.")), name)
        least, most = listed / _TIMES, listed * _TIMES
    else:
        bounds: dict[str, tuple[float, float]] = {**_BOUNDS, **_RATES}
        least, most = bounds.get(name, (value, value))
    return type(value)(min(max(value, least), most))


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
    """Return what all of `gpus` hold, with the source of each value: the GPU that decides it.  A
    number is the least of those known, a flag holds where all have it (unknown where one is unknown
    and none denies it), extensions are those that every GPU has a word on, quirks add up."""
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
    maps = [dict(gpu.extensions) for gpu, _ in gpus]
    shared = sorted(set(maps[0]).intersection(*maps)) if maps else []
    extensions = tuple((name, all(known[name] for known in maps)) for name in shared)
    for name, _ in extensions:
        merged.sources[f"extensions.{name}"] = "the listed Adreno GPUs taken together"
    gpu = Gpu(
        name="adreno",
        title="any listed Adreno",
        generation="a6xx and later",
        limits=Limits(**limits),
        performance=Performance(**performance, wave_sizes=merged.wave_sizes()),
        extensions=extensions,
        quirks=tuple(dict.fromkeys(quirk for gpu, _ in gpus for quirk in gpu.quirks)),
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


_TABLES = {"sources", "limits", "performance", "cost", "extensions", "quirks", "measured"}
_FAILING_FROM = ("work_group_items_below", "image_extent_below", "local_bytes_below")
Assumed = Mapping[str, tuple[Any, str]]
"""Performance that holds where no file tells: value and source by key."""


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """What one file, or a listed device that it builds on, says of a GPU."""

    gpu: Gpu
    cost: Cost
    options: tuple[tuple[str, Any], ...] = ()
    measured: tuple[tuple[str, float | bool], ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    cost_sources: dict[str, str] = field(default_factory=dict)


def read_gpu_file(
    file: SourcedFile,
    *,
    name: str,
    costs: CostTables,
    assumed: Assumed,
    base: GpuFacts | None = None,
    keys: frozenset[str] = frozenset({"options"}),
) -> GpuFacts:
    """Return the facts of the GPU `name`; of what the file leaves out, those of `base`.  `keys` are
    further keys that this kind of file may have."""
    file.check_keys(file.tables, {"title", "generation", "clml_version", *_TABLES, *keys})
    title = file.text(file.tables, "title")
    under = base.gpu if base is not None else None
    generation = under.generation if under is not None else ""
    if under is None or "generation" in file.tables:
        generation = file.value(file.tables, "generation", str)
    quirks = (*(under.quirks if under is not None else ()), *_read_quirks(file))
    limits = file.facts(Limits, "limits", (under.limits if under is not None else None))
    if limits.opencl_c not in OPENCL_C_VERSIONS:
        expected = "one of " + ", ".join(OPENCL_C_VERSIONS)
        raise file.wrong("limits.opencl_c", f"seen {limits.opencl_c!r}", expected)
    if len(limits.max_work_item_sizes or (1, 1, 1)) != 3:
        seen = f"seen {list(limits.max_work_item_sizes or ())}"
        raise file.wrong(SIDES, seen, "[x, y, z]")
    for quirk in quirks:
        limits = _drop_failing(limits, quirk, file)
    known = under.performance if under is not None else None
    performance = file.facts(Performance, "performance", known)
    unstated = {k: v for k, v in assumed.items() if getattr(performance, k) is None}
    performance = replace(performance, **{key: value for key, (value, _) in unstated.items()})
    file.sources.update({f"performance.{k}": source for k, (_, source) in unstated.items()})
    clml_version = under.clml_version if under is not None else None
    if "clml_version" in file.tables:
        clml_version = file.value(file.tables, "clml_version", int)
    measured = _read_measured(file)
    extensions = dict(under.extensions if under is not None else ()) | _read_extensions(file)
    gpu = Gpu(
        name=name,
        title=title,
        generation=generation,
        limits=limits,
        performance=performance,
        extensions=tuple(sorted(extensions.items())),
        clml_version=clml_version,
        quirks=quirks,
    )
    options = (*(base.options if base is not None else ()), *_read_options(file))
    below = (base.cost, base.cost_sources) if base is not None else None
    cost, of_cost = costs.read_file(file, below)
    return GpuFacts(
        gpu=gpu,
        cost=cost,
        options=options,
        measured=measured,
        sources={**(base.sources if base is not None else {}), **file.sources},
        cost_sources=of_cost,
    )


def _drop_failing(limits: Limits, quirk: Quirk, file: SourcedFile) -> Limits:
    """Return the limits without what a quirk says fails, and the quirk as their source."""
    if quirk.banned_work_groups:
        banned = {*limits.banned_work_groups, *quirk.banned_work_groups}
        limits = replace(limits, banned_work_groups=tuple(sorted(banned)))
        known = file.sources.get(BANNED)
        file.sources[BANNED] = (
            f"{known}; {describe_quirk(quirk)}" if known else describe_quirk(quirk)
        )
    if quirk.work_item_sizes:
        file.sources[SIDES] = describe_quirk(quirk)
        sides = zip(limits.group_sides, quirk.work_item_sizes, strict=True)
        limits = replace(limits, max_work_item_sizes=tuple(map(min, sides)))
    bounds = (
        ("max_work_group_size", quirk.work_group_items_below),
        ("image2d_max_width_texels", quirk.image_extent_below),
        ("image2d_max_height_texels", quirk.image_extent_below),
        ("local_mem_bytes", quirk.local_bytes_below),
    )
    for key, below in bounds:
        if below is not None and below <= getattr(limits, key):
            file.sources[f"limits.{key}"] = describe_quirk(quirk)
            limits = replace(limits, **{key: below - 1})  # type: ignore[arg-type]
    return limits


def _read_extensions(file: SourcedFile) -> dict[str, bool]:
    table = file.table("extensions")
    for key in table:
        if not re.fullmatch(r"cl_[a-z]+_\w+", key):
            raise file.wrong(f"extensions.{key}", "unknown key", "the name of an OpenCL extension")
    return {key: file.value(table, key, bool, "extensions") for key in sorted(table)}


def _read_measured(file: SourcedFile) -> tuple[tuple[str, float | bool], ...]:
    """Figures of `adrenoc device calibrate` that change no kernel: they are there to be read."""
    table = file.table("measured")
    for key in table:
        if not re.fullmatch(r"[a-z][a-z0-9_.]{0,60}", key):
            raise file.wrong(
                f"measured.{key}", "unknown key", "a measure of adrenoc device calibrate"
            )
    kinds = {
        key: bool if isinstance(entry, dict) and type(entry.get("value")) is bool else float
        for key, entry in table.items()
    }
    return tuple((key, file.value(table, key, kinds[key], "measured")) for key in table)


def _read_options(file: SourcedFile) -> tuple[tuple[str, Any], ...]:
    # adrenoc.ir.options knows which options there are; here only the form is checked.
    table = file.table("options")
    held = {key: e.get("value") if isinstance(e, dict) else None for key, e in table.items()}
    kinds = {key: type(value) if type(value) in (bool, int) else str for key, value in held.items()}
    return tuple((key, file.value(table, key, kinds[key], "options")) for key in table)


def _read_quirks(file: SourcedFile) -> tuple[Quirk, ...]:
    entries = file.tables.get("quirks", [])
    if not isinstance(entries, list):
        raise file.wrong("quirks", f"seen {entries!r}", "tables [[quirks]]")
    return tuple(_read_quirk(file, entry, f"quirks[{i}]") for i, entry in enumerate(entries))


def _is_work_group(shape: object) -> bool:
    """Return whether it is threads in x, y, z."""
    is_triple = isinstance(shape, list) and [type(n) for n in shape] == [int] * 3
    return is_triple and all(n > 0 for n in shape)  # type: ignore[attr-defined]


def _read_quirk(file: SourcedFile, entry: dict[str, Any], key: str) -> Quirk:
    if not isinstance(entry, dict):
        raise file.wrong(key, f"seen {entry!r}", "tables [[quirks]]")
    file.check_keys(entry, {field.name for field in fields(Quirk)}, key)
    shapes = entry.get("banned_work_groups", [])
    if not isinstance(shapes, list) or not all(map(_is_work_group, shapes)):
        raise file.wrong(f"{key}.banned_work_groups", f"seen {shapes!r}", "[[x, y, z], ...]")
    sides = entry.get("work_item_sizes", [])
    if sides != [] and not _is_work_group(sides):
        raise file.wrong(f"{key}.work_item_sizes", f"seen {sides!r}", "[x, y, z]")
    bounds = {name: entry.get(name) for name in _FAILING_FROM}
    for name, below in bounds.items():
        least = 1 if name == "local_bytes_below" else 2  # there may be no local memory at all
        if below is not None and (type(below) is not int or below < least):
            expected = f"a whole number above {least - 1}"
            raise file.wrong(f"{key}.{name}", f"seen {below!r}", expected)
    avoid = entry.get("avoid", [])
    if not isinstance(avoid, list) or not all(map(is_word, avoid)):
        expected = f"a list of {', '.join(FEATURES)} or operator:NAME"
        raise file.wrong(f"{key}.avoid", f"seen {avoid!r}", expected)
    return Quirk(
        name=file.text(entry, "name", key),
        text=file.text(entry, "text", key),
        source=file.write_out_citations(file.text(entry, "source", key), f"{key}.source"),
        banned_work_groups=tuple((x, y, z) for x, y, z in shapes),
        work_item_sizes=tuple(sides),
        avoid=tuple(avoid),
        **bounds,
    )
