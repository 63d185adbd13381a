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
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from adrenoc.base.errors import TargetError
from adrenoc.base.files.read import data_folder, sha256_json
from adrenoc.base.text.spelling import did_you_mean
from adrenoc.target.cost import UNKNOWN, Cost, CostTables
from adrenoc.target.gpu import DOT_PRODUCTS, Gpu, Limits, Performance, Quirk, Soc, collect_avoided
from adrenoc.target.gpu_file import (
    GpuFacts,
    OwnFile,
    check_costs,
    check_figures,
    common_gpu,
    is_for_host,
    own_path,
    read_gpu_file,
)
from adrenoc.target.sourced import SourcedFile

ANDROID = "android"
LINUX = "linux"
SYSTEMS = (ANDROID, LINUX)
_TRIPLES = {ANDROID: "aarch64-linux-android", LINUX: "aarch64-unknown-linux-gnu"}


def runs_on_android(triple: str) -> bool:
    """Return whether what was compiled for an LLVM triple is for Android."""
    return triple.endswith("-android")


def runs_here(triple: str) -> bool:
    """Return whether code for an LLVM triple runs on this machine, as far as that tells."""
    return triple.partition("-")[0] == platform.machine() and not runs_on_android(triple)


__all__ = ["Gpu", "Limits", "Performance", "Quirk", "Soc", "Target", "list_targets", "load_target"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A device to compile for.  `name` is canonical (`adreno`, `adreno:a750`, `adreno:sm8650`,
    `host`).  `host`: the part that runs on the CPU is for this machine, not for arm64 with
    `system`.  `sources` says for each value ("limits.fp16") where it is known from; `options` are
    defaults that the target's file sets."""

    name: str
    gpu: Gpu
    cost: Cost
    """What estimates of kernels reckon with, by the table that the GPU's file names."""
    soc: Soc | None = None
    host: bool = False
    system: str = ANDROID
    options: tuple[tuple[str, Any], ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    cost_sources: tuple[tuple[str, str], ...] = ()
    """The same of `cost` ("cost.conv_local.k_step_slots")."""
    own: OwnFile | None = None
    """The user's file that describes it, where it is none of the listed devices."""
    measured: tuple[tuple[str, float | bool], ...] = ()
    """What that file says was measured and no estimate reckons with."""

    @property
    def title(self) -> str:
        """Return the name on the box."""
        return f"{self.soc.title} ({self.gpu.title})" if self.soc else self.gpu.title

    @property
    def measured_as(self) -> str:
        """Return the GPU under whose name times are kept: a host's are its own, whatever it is."""
        return "host" if self.host else self.gpu.name

    @property
    def path(self) -> Path | None:
        """Return the user's file, which no output of a command may replace."""
        return self.own.path if self.own is not None else None

    @property
    def option(self) -> str:
        """Return what `--device` takes for it."""
        if self.own is None:
            return self.name
        if self.own.device:
            return self.own.device
        return f"host:{self.own.path}" if self.host else str(self.own.path)

    @property
    def host_name(self) -> str:
        """Return the name of the device on this computer that has the same kernels."""
        if self.host or self.name.startswith("host"):
            return self.name
        return f"host:{self.name}" if self.own else self.name.replace("adreno", "host", 1)

    @property
    def limits(self) -> Limits:
        """Return what kernels may ask of the GPU."""
        return self.gpu.limits

    @property
    def performance(self) -> Performance:
        """Return the GPU's figures, at the clock of the SoC where that is known."""
        if self.soc is None or self.soc.clock_mhz is None:
            return self.gpu.performance
        return replace(self.gpu.performance, clock_mhz=self.soc.clock_mhz)

    @property
    def llvm_triple(self) -> str:
        """Return the CPU part's LLVM triple."""
        return f"{platform.machine()}-unknown-linux-gnu" if self.host else _TRIPLES[self.system]

    def has_extension(self, name: str) -> bool | None:
        """Return whether the drivers seen list an OpenCL extension; None: no list was found."""
        return dict(self.gpu.extensions).get(name)

    @property
    def has_dot_products(self) -> bool:
        """Return whether OpenCL C has dot products of four bytes that kernels can use.  Qualcomm's
        own name counts up to OpenCL C 2.0: a compiler of 3.0 was seen that refuses it.
        Convolutions of bytes share their weights through local memory."""
        if DOT_PRODUCTS in self.avoided or not self.limits.local_mem_bytes:
            return False
        listed = self.has_extension("cl_khr_integer_dot_product")
        if not listed and self.limits.opencl_c < "3.0":
            listed = self.has_extension("cl_qcom_dot_product8")
        return listed is True

    def source_of(self, key: str) -> str | None:
        """Return where the value of `key` ("limits.local_mem_bytes") is known from."""
        return dict(self.cost_sources if key.startswith("cost.") else self.sources).get(key)

    @cached_property
    def avoided(self) -> dict[str, str]:
        """Return what compilations leave out, by the words of `adrenoc/target/gpu.py`, and why."""
        return collect_avoided(self.gpu.quirks)

    def digest(self) -> str:
        """SHA-256 of all that can change a compilation; sources and prose are left out."""
        facts = asdict(replace(self, sources=(), cost_sources=(), own=None))
        del facts["measured"], facts["system"]  # the triple says the system
        for quirk in facts["gpu"]["quirks"]:
            del quirk["text"], quirk["source"]
        # A bundle carries the whole file, prose and all.
        facts["own"] = self.own.sha256 if self.own is not None else None
        return sha256_json({**facts, "llvm_triple": self.llvm_triple})


def load_target(name: str, *, folder: Path | None = None) -> Target:
    """Find a device by name: `adreno`, `adreno:a750`, `adreno:sm8650`, `adreno:8gen3`, `host`.

    `host` and `host:a750` hold the same kernels around a CPU part for this machine; `host:h100`
    holds those that the cost model chooses for a stand-in.
    `adreno` alone promises what every listed Adreno GPU holds.  `FILE.toml` is a file of a user's
    own in the form of `targets/gpu/`, `host:FILE.toml` its kernels around a CPU part for this
    machine.  `folder` is the data folder to read; by default the one that comes with adrenoc.
    """
    path = own_path(name)
    if path is not None:
        return load_own_target(OwnFile.read(path), host=is_for_host(name), folder=folder)
    return _catalog(folder).target(name)


def load_own_target(file: OwnFile, *, host: bool, folder: Path | None = None) -> Target:
    """Return the device that a user's file describes; with `host` its kernels for this machine."""
    catalog = _catalog(folder)
    target = catalog.own(file)
    return catalog.host_of(target) if host else target


def host_twin(target: Target) -> Target:
    """Return the target on this computer that has the same kernels."""
    if target.host:
        return target
    if target.own is not None:
        return load_own_target(target.own, host=True)
    return load_target(target.host_name)


def list_targets(*, folder: Path | None = None) -> tuple[Target, ...]:
    """Return all targets: `adreno`, then each GPU, then each SoC, the stand-ins, then `host`."""
    catalog = _catalog(folder)
    names = [f"adreno:{name}" for name in (*catalog.gpu_names, *catalog.socs)]
    names += [f"host:{name}" for name in catalog.stand_ins]
    return tuple(catalog.target(name) for name in ("adreno", *names, "host"))


def _catalog(folder: Path | None) -> _Catalog:
    """Return the files of a folder; those that come with adrenoc are read once."""
    return _open_shipped(data_folder("targets")) if folder is None else _Catalog(folder)


@cache
def _open_shipped(folder: Path) -> _Catalog:
    return _Catalog(folder)


def _plain(name: str) -> str:
    """Return a name as it is compared: X1-85, x1 85 and x185 are one GPU."""
    return re.sub(r"[\s_-]", "", name.lower())


class _Catalog:
    """The target files of one folder, each read at most once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        stems = sorted(path.stem for path in folder.glob("gpu/*.toml"))
        self.gpu_names = [stem for stem in stems if stem != "host"]
        self.stand_ins = sorted(path.stem for path in folder.glob("stand_ins/*.toml"))
        self.costs = CostTables(folder)
        self.gpu: Callable[[str], Target] = cache(self._read_gpu)
        self.target: Callable[[str], Target] = cache(self._target)

    @cached_property
    def assumed_facts(self) -> dict[str, tuple[Any, str]]:
        """Return what holds for GPUs whose files do not tell: the value and its source, by key."""
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

    def _target(self, name: str) -> Target:
        wanted = _plain(name)
        family, _, device = wanted.partition(":")
        if family == "host" and device in self.stand_ins:
            stand_in = self._read_gpu(device, folder="stand_ins")
            return self.host_of(stand_in)
        if family == "host":
            return self.host_of(self.target(f"adreno:{device}" if device else "adreno"))
        if wanted == "adreno":
            targets = [self.gpu(gpu) for gpu in self.gpu_names]
            gpu_of_all, sources = common_gpu([(t.gpu, dict(t.sources)) for t in targets])
            cost, of_cost = self.costs.read_named(UNKNOWN)
            return Target(
                name="adreno",
                gpu=gpu_of_all,
                cost=cost,
                sources=tuple(sources.items()),
                cost_sources=tuple(of_cost.items()),
            )
        if family == "adreno":
            plain = {_plain(gpu): gpu for gpu in self.gpu_names}
            gpu = plain.get(device.removeprefix("a"))
            if gpu is not None:
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
            "expected adreno, adreno:GPU, adreno:SOC, host, host:GPU or FILE.toml",
            hint="adrenoc targets",
        )

    def host_of(self, phone: Target) -> Target:
        """Return the kernels of a phone's GPU or of a stand-in around a CPU part for this machine.
        Limits are those that the software device and the GPU both hold, the figures that schedules
        go by are the GPU's."""
        own = self.gpu("host")
        both, sources = common_gpu([(t.gpu, dict(t.sources)) for t in (own, phone)])
        kept = {key: text for key, text in sources.items() if key.startswith("limits.")}
        is_listed = phone.name.startswith("adreno")
        title = own.gpu.title if is_listed else phone.gpu.title
        # What changes kernels changes these too.
        quirks = tuple(q for q in phone.gpu.quirks if q.avoid or phone.own is not None)
        extensions = {**dict(own.gpu.extensions), **_extensions_denied(phone.own)}
        gpu = replace(
            own.gpu,
            title=title,
            limits=both.limits,
            performance=phone.performance,
            extensions=tuple(sorted(extensions.items())),
            quirks=(*own.gpu.quirks, *quirks),
        )
        return replace(
            own,
            name=phone.host_name,
            options=(*own.options, *phone.options),
            cost=phone.cost,
            cost_sources=phone.cost_sources,
            gpu=gpu,
            sources=tuple({**dict(own.sources), **dict(phone.sources), **kept}.items()),
            host=True,
            own=phone.own,
            measured=phone.measured,
        )

    def _all_names(self) -> list[str]:
        aliases = [alias for soc, _ in self.socs.values() for alias in (soc.name, *soc.aliases)]
        gpus = [f"a{gpu}" for gpu in self.gpu_names]
        stand_ins = [f"host:{name}" for name in self.stand_ins]
        return ["host", *stand_ins, "adreno", *(f"adreno:{name}" for name in (*gpus, *aliases))]

    def _read_gpu(self, name: str, *, folder: str = "gpu") -> Target:
        file = SourcedFile(self.folder / folder / f"{name}.toml")
        facts = read_gpu_file(file, name=name, costs=self.costs, assumed=self.assumed_facts)
        return _make_target(f"adreno:a{name}" if folder == "gpu" else f"host:{name}", facts)

    def own(self, file: OwnFile) -> Target:
        """Return the device that a file of a user's own describes."""
        sourced = file.parse()
        named = file.base(sourced)
        base = None if named is None else self._base(sourced, named)
        # Its times are those of the listed GPU that it is one of.
        is_one = base is not None and base.gpu.name != "adreno"
        facts = read_gpu_file(
            sourced,
            name=base.gpu.name if base is not None and is_one else file.stem,
            costs=self.costs,
            assumed=self.assumed_facts,
            base=base,
            keys=frozenset({"base"}),
        )
        check_figures(sourced, facts.gpu)
        table = sourced.table("cost").get("base", UNKNOWN)
        is_stated = base is None or "base" in sourced.table("cost")
        listed = self.costs.read_named(table)[0] if is_stated or base is None else base.cost
        check_costs(sourced, facts.cost, listed)
        return replace(_make_target(file.name, facts), own=file)

    def _base(self, file: SourcedFile, name: str) -> GpuFacts:
        family, _, device = name.lower().partition(":")
        try:
            is_stand_in = family == "host" and device in self.stand_ins
            found = self._read_gpu(device, folder="stand_ins") if is_stand_in else self.target(name)
        except TargetError as error:
            raise file.wrong("base", error.message, "the name of a listed device") from error
        if found.host:
            raise file.wrong("base", f"seen {name!r}", "adreno, adreno:GPU or adreno:SOC")
        return GpuFacts(
            gpu=replace(found.gpu, performance=found.performance),
            cost=found.cost,
            options=found.options,
            sources=dict(found.sources),
            cost_sources=dict(found.cost_sources),
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


def _extensions_denied(file: OwnFile | None) -> dict[str, bool]:
    """Return the extensions that a user's file denies, as `adrenoc device calibrate` found."""
    stated = {} if file is None else file.parse().table("extensions")
    return {name: False for name, entry in stated.items() if entry["value"] is False}


def _make_target(name: str, facts: GpuFacts) -> Target:
    return Target(
        name=name,
        gpu=facts.gpu,
        cost=facts.cost,
        cost_sources=tuple(facts.cost_sources.items()),
        options=facts.options,
        measured=facts.measured,
        sources=tuple(facts.sources.items()),
    )
