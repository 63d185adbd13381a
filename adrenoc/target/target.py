"""The device that is compiled for, found by name in `targets/`.

`targets/gpu/*.toml` describe GPUs, `targets/soc/*.toml` the Snapdragons that carry them, and
`targets/stand_ins/*.toml` GPUs of other makers that kernels can be timed on, `targets/cost/*.toml`
what estimates of kernels reckon with.  Each value there is a table
`{ value = ..., source = "..." }`; a value that nobody knows is absent, but for the few that
`targets/assumed.toml` states for all.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from adrenoc.errors import TargetError
from adrenoc.files.read import data_folder, sha256_json
from adrenoc.target.common_gpu import BANNED, common_gpu
from adrenoc.target.cost.cost import Cost
from adrenoc.target.cost.read import UNKNOWN, CostTables
from adrenoc.target.gpu import OPENCL_C_VERSIONS, Gpu, Limits, Performance, Quirk, Soc
from adrenoc.target.sourced import SourcedFile
from adrenoc.text.spelling import did_you_mean

__all__ = ["Gpu", "Limits", "Performance", "Quirk", "Soc", "Target", "list_targets", "load_target"]

ANDROID_TRIPLE = "aarch64-linux-android"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A device to compile for.

    `name` is canonical (`adreno`, `adreno:a750`, `adreno:sm8650`, `host`).  `host`: the part that
    runs on the CPU is for this machine, not for arm64 Android.  `sources` says for each value
    ("limits.fp16") where it is known from; `options` are defaults that the target's file sets.
    """

    name: str
    gpu: Gpu
    cost: Cost
    """What estimates of kernels reckon with, by the table that the GPU's file names."""
    soc: Soc | None = None
    host: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    cost_sources: tuple[tuple[str, str], ...] = ()
    """The same of `cost` ("cost.conv_local.k_step_slots")."""

    @property
    def title(self) -> str:
        """The name on the box."""
        return f"{self.soc.title} ({self.gpu.title})" if self.soc else self.gpu.title

    @property
    def measured_as(self) -> str:
        """The GPU under whose name times are kept: a host's are its own, whatever it compiles."""
        return "host" if self.host else self.gpu.name

    @property
    def limits(self) -> Limits:
        """What kernels may ask of the GPU."""
        return self.gpu.limits

    @property
    def performance(self) -> Performance:
        """The GPU's figures, at the clock of the SoC where that is known."""
        if self.soc is None or self.soc.clock_mhz is None:
            return self.gpu.performance
        return replace(self.gpu.performance, clock_mhz=self.soc.clock_mhz)

    @property
    def llvm_triple(self) -> str:
        """The CPU part's LLVM triple."""
        return f"{platform.machine()}-unknown-linux-gnu" if self.host else ANDROID_TRIPLE

    def has_extension(self, name: str) -> bool | None:
        """Whether the drivers seen list an OpenCL extension; None: no list was found."""
        return dict(self.gpu.extensions).get(name)

    @property
    def has_dot_products(self) -> bool:
        """Whether OpenCL C has a name for dot products of four bytes.

        Qualcomm's own name counts up to OpenCL C 2.0: a compiler of 3.0 was seen that refuses it.
        """
        listed = self.has_extension("cl_khr_integer_dot_product")
        if not listed and self.limits.opencl_c < "3.0":
            listed = self.has_extension("cl_qcom_dot_product8")
        return listed is True

    def source_of(self, key: str) -> str | None:
        """Where the value of `key` ("limits.local_mem_bytes") is known from."""
        return dict(self.cost_sources if key.startswith("cost.") else self.sources).get(key)

    def digest(self) -> str:
        """SHA-256 of all that can change a compilation; sources and prose are left out."""
        facts = asdict(replace(self, sources=(), cost_sources=()))
        for quirk in facts["gpu"]["quirks"]:
            del quirk["text"], quirk["source"]
        return sha256_json({**facts, "llvm_triple": self.llvm_triple})


def load_target(name: str, *, folder: Path | None = None) -> Target:
    """Find a device by name: `adreno`, `adreno:a750`, `adreno:sm8650`, `adreno:8gen3`, `host`.

    `host` and `host:a750` hold the same kernels around a CPU part for this machine; `host:h100`
    holds those that the cost model chooses for a stand-in.
    `adreno` alone promises what every listed Adreno GPU holds.  `folder` is the data folder to
    read; by default the one that comes with adrenoc.

    Raises:
        TargetError: the name is unknown, or a target file is wrong.
    """
    return _Catalog(folder or data_folder("targets")).target(name)


def list_targets(*, folder: Path | None = None) -> tuple[Target, ...]:
    """All targets: `adreno`, then each GPU, then each SoC, the stand-ins, then `host`.

    Raises:
        TargetError: a target file is wrong.
    """
    catalog = _Catalog(folder or data_folder("targets"))
    names = [f"adreno:{name}" for name in (*catalog.gpu_names, *catalog.socs)]
    names += [f"host:{name}" for name in catalog.stand_ins]
    return tuple(catalog.target(name) for name in ("adreno", *names, "host"))


class _Catalog:
    """The target files of one folder, each read at most once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        stems = sorted(path.stem for path in folder.glob("gpu/*.toml"))
        self.gpu_names = [stem for stem in stems if stem != "host"]
        self.stand_ins = sorted(path.stem for path in folder.glob("stand_ins/*.toml"))
        self.costs = CostTables(folder)
        self.gpu: Callable[[str], Target] = cache(self._read_gpu)

    @cached_property
    def assumed(self) -> dict[str, tuple[Any, str]]:
        """What holds for GPUs whose files do not tell: the value and its source, by key."""
        path = self.folder / "assumed.toml"
        if not path.exists():
            return {}
        file = SourcedFile(path)
        file.check_keys(file.tables, {"sources", "performance"})
        facts = file.facts(Performance, "performance")
        return {
            key: (getattr(facts, key), file.sources[f"performance.{key}"])
            for key in file.table("performance")
        }

    @cached_property
    def socs(self) -> dict[str, tuple[Soc, SourcedFile]]:
        """SoC name -> the SoC and its file."""
        paths = sorted(self.folder.glob("soc/*.toml"))
        return {path.stem: self._read_soc(path) for path in paths}

    def target(self, name: str) -> Target:
        wanted = re.sub(r"[\s_-]", "", name.lower())
        family, _, device = wanted.partition(":")
        if family == "host" and device in self.stand_ins:
            stand_in = self._read_gpu(device, folder="stand_ins")
            target = self._host(stand_in)
            return replace(target, gpu=replace(target.gpu, title=stand_in.gpu.title))
        if family == "host":
            return self._host(self.target(f"adreno:{device}" if device else "adreno"))
        if wanted == "adreno":
            targets = [self.gpu(gpu) for gpu in self.gpu_names]
            gpu_of_all, sources = common_gpu([(t.gpu, dict(t.sources)) for t in targets])
            cost, of_cost = self.costs.named(UNKNOWN)
            return Target(
                name="adreno",
                gpu=gpu_of_all,
                cost=cost,
                sources=tuple(sources.items()),
                cost_sources=tuple(of_cost.items()),
            )
        if family == "adreno":
            gpu = device.removeprefix("a")
            if gpu in self.gpu_names:
                return self.gpu(gpu)
            for soc, file in self.socs.values():
                if device in (soc.name, *soc.aliases):
                    gpu_target = self.gpu(soc.gpu)
                    return replace(
                        gpu_target,
                        name=f"adreno:{soc.name}",
                        soc=soc,
                        sources=(*gpu_target.sources, *file.sources.items()),
                    )
        raise TargetError(
            f'unknown device "{name}"{did_you_mean(name, self._all_names())}, '
            "expected adreno, adreno:GPU, adreno:SOC, host or host:GPU",
            hint="adrenoc targets",
        )

    def _host(self, phone: Target) -> Target:
        """The kernels of a phone's GPU, or of a stand-in, around a CPU part for this machine.

        Limits are those that the software device and the GPU both hold, the figures that
        schedules go by are the GPU's.
        """
        own = self.gpu("host")
        both, sources = common_gpu([(t.gpu, dict(t.sources)) for t in (own, phone)])
        kept = {key: text for key, text in sources.items() if key.startswith("limits.")}
        return replace(
            own,
            name=phone.name.replace("adreno", "host"),
            cost=phone.cost,
            cost_sources=phone.cost_sources,
            gpu=replace(own.gpu, limits=both.limits, performance=phone.performance),
            sources=tuple({**dict(own.sources), **dict(phone.sources), **kept}.items()),
            host=True,
        )

    def _all_names(self) -> list[str]:
        aliases = [alias for soc, _ in self.socs.values() for alias in (soc.name, *soc.aliases)]
        gpus = [f"a{gpu}" for gpu in self.gpu_names]
        stand_ins = [f"host:{name}" for name in self.stand_ins]
        return ["host", *stand_ins, "adreno", *(f"adreno:{name}" for name in (*gpus, *aliases))]

    def _read_gpu(self, name: str, *, folder: str = "gpu") -> Target:
        file = SourcedFile(self.folder / folder / f"{name}.toml")
        tables = ("sources", "limits", "performance", "cost", "extensions", "options", "quirks")
        file.check_keys(file.tables, {"title", "generation", "clml_version", *tables})
        title = file.text(file.tables, "title")
        generation = file.value(file.tables, "generation", str)
        limits = file.facts(Limits, "limits")
        if limits.opencl_c not in OPENCL_C_VERSIONS:
            expected = "one of " + ", ".join(OPENCL_C_VERSIONS)
            raise file.wrong("limits.opencl_c", f"seen {limits.opencl_c!r}", expected)
        quirks = _read_quirks(file)
        for quirk in quirks:
            limits = _without_wrong_groups(limits, quirk, file)
        performance = file.facts(Performance, "performance")
        assumed = {k: v for k, v in self.assumed.items() if getattr(performance, k) is None}
        performance = replace(performance, **{key: value for key, (value, _) in assumed.items()})
        file.sources.update({f"performance.{k}": source for k, (_, source) in assumed.items()})
        gpu = Gpu(
            name=name,
            title=title,
            generation=generation,
            limits=limits,
            performance=performance,
            extensions=_read_extensions(file),
            clml_version=file.value(file.tables, "clml_version", int)
            if "clml_version" in file.tables
            else None,
            quirks=quirks,
        )
        cost, of_cost = self.costs.of_file(file)
        return Target(
            name=f"adreno:a{name}" if folder == "gpu" else f"host:{name}",
            gpu=gpu,
            cost=cost,
            cost_sources=tuple(of_cost.items()),
            options=_read_options(file),
            sources=tuple(file.sources.items()),
        )

    def _read_soc(self, path: Path) -> tuple[Soc, SourcedFile]:
        file = SourcedFile(path)
        file.check_keys(file.tables, {"title", "aliases", "gpu", "clock_mhz", "sources"})
        aliases = file.tables.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            raise file.wrong("aliases", f"seen {aliases!r}", "a list of names")
        gpu = file.value(file.tables, "gpu", str)
        if gpu not in self.gpu_names:
            guess = did_you_mean(gpu, self.gpu_names)
            raise file.wrong("gpu", f"seen {gpu!r}{guess}", "the name of a file in gpu/")
        has_clock = "clock_mhz" in file.tables
        soc = Soc(
            name=path.stem,
            title=file.text(file.tables, "title"),
            aliases=tuple(aliases),
            gpu=gpu,
            clock_mhz=file.value(file.tables, "clock_mhz", int) if has_clock else None,
        )
        file.sources = {f"soc.{key}": source for key, source in file.sources.items()}
        return soc, file


def _without_wrong_groups(limits: Limits, quirk: Quirk, file: SourcedFile) -> Limits:
    """The limits without the work-groups that a quirk says fail, and the quirk as their source."""
    if quirk.banned_work_groups:
        banned = {*limits.banned_work_groups, *quirk.banned_work_groups}
        limits = replace(limits, banned_work_groups=tuple(sorted(banned)))
        known = file.sources.get(BANNED)
        told = f"quirk {quirk.name}: {quirk.source}"
        file.sources[BANNED] = f"{known}; {told}" if known else told
    below = quirk.work_group_items_below
    if below is None or below > limits.max_work_group_size:
        return limits
    file.sources["limits.max_work_group_size"] = f"quirk {quirk.name}: {quirk.source}"
    return replace(limits, max_work_group_size=below - 1)


def _read_extensions(file: SourcedFile) -> tuple[tuple[str, bool], ...]:
    table = file.table("extensions")
    for key in table:
        if not re.fullmatch(r"cl_[a-z]+_\w+", key):
            raise file.wrong(f"extensions.{key}", "unknown key", "the name of an OpenCL extension")
    return tuple((key, file.value(table, key, bool, "extensions")) for key in sorted(table))


def _read_options(file: SourcedFile) -> tuple[tuple[str, Any], ...]:
    # adrenoc.options knows which options there are; here only the form is checked.
    table = file.table("options")
    kinds = {key: type(entry["value"]) for key, entry in table.items() if _has_value(entry)}
    return tuple((key, file.value(table, key, kinds.get(key, str), "options")) for key in table)


def _has_value(entry: object) -> bool:
    return isinstance(entry, dict) and type(entry.get("value")) in (bool, int, str)


def _read_quirks(file: SourcedFile) -> tuple[Quirk, ...]:
    entries = file.tables.get("quirks", [])
    if not isinstance(entries, list):
        raise file.wrong("quirks", f"seen {entries!r}", "tables [[quirks]]")
    return tuple(_read_quirk(file, entry, f"quirks[{i}]") for i, entry in enumerate(entries))


def _read_quirk(file: SourcedFile, entry: dict[str, Any], key: str) -> Quirk:
    file.check_keys(entry, {field.name for field in fields(Quirk)}, key)
    shapes = entry.get("banned_work_groups", [])
    if not all(isinstance(s, list) and [type(n) for n in s] == [int] * 3 for s in shapes):
        raise file.wrong(f"{key}.banned_work_groups", f"seen {shapes!r}", "[[x, y, z], ...]")
    below = entry.get("work_group_items_below")
    if below is not None and (type(below) is not int or below < 1):
        raise file.wrong(f"{key}.work_group_items_below", f"seen {below!r}", "a number above 0")
    return Quirk(
        name=file.text(entry, "name", key),
        text=file.text(entry, "text", key),
        source=file.cited(file.text(entry, "source", key), f"{key}.source"),
        banned_work_groups=tuple((x, y, z) for x, y, z in shapes),
        work_group_items_below=below,
    )
