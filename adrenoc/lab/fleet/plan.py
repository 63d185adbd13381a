"""Which jobs a fleet has: for each device to say what it is, then each model in each way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrenoc.base.text.names import bundle_name
from adrenoc.device.compiled_for import adreno_number
from adrenoc.importers.formats import find_model_files
from adrenoc.lab.fleet.store import Store
from adrenoc.lab.fleet.work import CALIBRATE, COMPILE, IDENTIFY, RUN, VERIFY, Job
from adrenoc.target.device_report import load_listed


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """What is to be done with each device.

    `target` is what to compile for, empty to ask each device; `actions` are of RUN, VERIFY
    and CALIBRATE.  `check` holds outputs against the reference on this computer.  `budget_s`
    bounds one calibration, `limit_s` any job, and `patience_s` how long a device may be
    away.  `jobs` commands run side by side on this computer, some 0.5 GB each.
    """

    models: tuple[Path, ...]
    actions: tuple[str, ...] = (RUN,)
    target: str = ""
    preset: str = ""
    check: bool = True
    repeat: int = 10
    budget_s: float = 300.0
    limit_s: float = 1800.0
    patience_s: float = 60.0
    jobs: int = 8


class Plan:
    """Makes the jobs; models are hashed once, when it is made.

    Raises:
        ModelNotFoundError: a model is not there.
    """

    def __init__(self, options: FleetOptions, store: Store) -> None:
        self.options, self._store = options, store
        self._digests = {model: find_model_files(model).sha256() for model in options.models}

    def identify(self, device: str) -> Job:
        """Ask a device what it is."""
        return Job(action=IDENTIFY, device=device, words=("device", "list", "--json"))

    def compile(self, target: str, model: Path) -> Job:
        """Make the bundle of a model, for all devices of a target."""
        bundle = self.bundle_path(target, model)
        words = ("compile", str(model), "--device", target, *self._preset())
        words += ("-o", str(bundle), "--json")
        return Job(
            action=COMPILE,
            model=str(model),
            target=target,
            words=words,
            inputs=(self._digests[model],),
        )

    def list_jobs(self, device: str, target: str) -> tuple[Job, ...]:
        """What is to be done on one device of a known target, in this order."""
        jobs: list[Job] = []
        if RUN in self.options.actions:
            jobs += [self._run(device, target, model) for model in self.options.models]
        if VERIFY in self.options.actions:
            jobs.append(self._verify(device, target))
        if CALIBRATE in self.options.actions:
            jobs.append(self._calibrate(device))
        return tuple(jobs)

    def bundle_path(self, target: str, model: Path) -> Path:
        """Where the bundle of a model for a target goes."""
        return self._path("bundles", target, model, ".adrenoc")

    def _path(self, room: str, target: str, model: Path, suffix: str) -> Path:
        made_of, devices = f"{self._digests[model]} {self.options.preset}", target.split(",")
        if len(devices) > 1:  # all together would be too long for a file's name
            made_of, target = f"{made_of} {target}", f"{len(devices)} devices"
        return self._store.path_for(room, target, model, made_of, suffix)

    def _preset(self) -> tuple[str, ...]:
        return ("--preset", self.options.preset) if self.options.preset else ()

    def _run(self, device: str, target: str, model: Path) -> Job:
        options, bundle = self.options, self.bundle_path(target, model)
        words = ["run", str(bundle), "--repeat", str(options.repeat), "--json"]
        words += ["--check", str(model)] if options.check else []
        return Job(
            action=RUN,
            device=device,
            model=str(model),
            target=target,
            words=tuple(words),
            inputs=(self._digests[model], options.preset),
        )

    def _verify(self, device: str, target: str) -> Job:
        """Every kernel family on a device; what the driver gets wrong goes into a file."""
        file = self._store.folder / "devices" / f"{bundle_name(device)}.json"
        kept = self._progress(VERIFY, device)
        words = [
            "device",
            "verify",
            "--device",
            target,
            "-o",
            str(file),
            "--json",
            "--resume",
            kept,
        ]
        return Job(action=VERIFY, device=device, target=target, words=tuple(words), progress=kept)

    def _calibrate(self, device: str) -> Job:
        file = self._store.folder / "devices" / f"{bundle_name(device)}.toml"
        budget = f"{self.options.budget_s:.0f}s"
        kept = self._progress(CALIBRATE, device)
        words = [
            "device",
            "calibrate",
            "--budget",
            budget,
            "-o",
            str(file),
            "--json",
            "--resume",
            kept,
        ]
        return Job(action=CALIBRATE, device=device, words=tuple(words), progress=kept)

    def _progress(self, action: str, device: str) -> str:
        return str(self._store.folder / "progress" / f"{bundle_name(device)}.{action}")


def target_of(output: Mapping[str, Any]) -> str:
    """What to compile for a device that says so of itself (`adrenoc device list --on --json`)."""
    told = output.get("server", {})
    facts: Any = next(iter(told.get("devices") or ()), {})
    number = adreno_number(facts if isinstance(facts, dict) else {})
    is_arm = str(told.get("machine", "")).startswith("aarch64")
    common = "adreno" if is_arm else "host"
    name = load_listed(number).name
    if name == "adreno":
        return common
    return name if is_arm else name.replace("adreno:", "host:")
