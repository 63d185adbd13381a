"""The jobs of a fleet: commands of adrenoc with `--json`, and the folder that keeps their results.

A result is written all or nothing once its command has ended, so that the same fleet begun again
does what is left.  Verifications and calibrations also go on from what they had measured.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adrenoc.base.errors import InputError, OutputError
from adrenoc.base.files.outputs import output_error, write_atomically
from adrenoc.base.files.read import read_plain
from adrenoc.base.host.proc import Result
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.names import bundle_name
from adrenoc.base.text.spelling import quote_word
from adrenoc.device.fit import adreno_number
from adrenoc.importers.formats import find_model_files
from adrenoc.target.device_set import load_listed

IDENTIFY, COMPILE, RUN = "identify", "compile", "run"
VERIFY, CALIBRATE = "verify", "calibrate"


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """What is to be done with each device.

    `target` is what to compile for, empty to ask each device; `actions` are of RUN, VERIFY and
    CALIBRATE.  `budget_s` bounds one calibration, `limit_s` any job, and `patience_s` how long a
    device may be away.  `jobs` commands run side by side on this computer, some 0.5 GB each.
    """

    models: tuple[Path, ...]
    actions: tuple[str, ...] = (RUN,)
    target: str = ""
    preset: str = ""
    repeat: int = 10
    budget_s: float = 300.0
    limit_s: float = 1800.0
    patience_s: float = 60.0
    jobs: int = 8


@dataclass(frozen=True, kw_only=True)
class Job:
    """One command.

    `device` is the id of the device, empty for what runs here; `model` is the path of a model,
    empty where none is meant.  `words` is the command behind `adrenoc` without the options that
    reach the device.  `inputs` are digests of what the command reads: with others it is another
    job.  `progress` is the file in which the command keeps what it has done so far.
    """

    action: str
    device: str = ""
    model: str = ""
    target: str = ""
    words: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    progress: str = ""

    @property
    def key(self) -> str:
        """Return what tells this job from every other one, as a file name."""
        parts = [self.action, self.device, self.model, self.target, self.words, self.inputs]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]

    @property
    def progress_bytes(self) -> int:
        """Return how much its command has kept of what it did, that it would go on from."""
        try:
            return Path(self.progress).stat().st_size if self.progress else 0
        except OSError:
            return 0


class JobPlanner:
    """Makes the jobs of a fleet; models are hashed once, when it is made. Raises ModelNotFoundError
    where a model is not there."""

    def __init__(self, options: FleetOptions, folder: Path) -> None:
        self.options, self._folder = options, folder
        self._digests = {model: find_model_files(model).sha256() for model in options.models}
        self._preset = ("--preset", options.preset) if options.preset else ()

    def identify(self, device: str) -> Job:
        """Ask a device what it is."""
        return Job(action=IDENTIFY, device=device, words=("device", "list", "--json"))

    def compile(self, target: str, model: Path) -> Job:
        """Make the bundle of a model, for all devices of a target."""
        words = ("compile", str(model), "--device", target, *self._preset)
        return Job(
            action=COMPILE,
            model=str(model),
            target=target,
            words=(*words, "-o", str(self.bundle_path(target, model)), "--json"),
            inputs=(self._digests[model],),
        )

    def list_jobs(self, device: str, target: str) -> tuple[Job, ...]:
        """Return what is to be done on one device of a known target, in this order."""
        actions, jobs = self.options.actions, []
        if RUN in actions:
            jobs += [self._run(device, target, model) for model in self.options.models]
        if VERIFY in actions:
            jobs.append(self._prove(VERIFY, device, target, ("--device", target), "json"))
        if CALIBRATE in actions:
            budget = f"{self.options.budget_s:.0f}s"
            jobs.append(self._prove(CALIBRATE, device, "", ("--budget", budget), "toml"))
        return tuple(jobs)

    def bundle_path(self, target: str, model: Path) -> Path:
        """Return where the bundle of a model for a target goes."""
        made_of, devices = f"{self._digests[model]} {self.options.preset}", target.split(",")
        if len(devices) > 1:  # all together would be too long for a file's name
            made_of, target = f"{made_of} {target}", f"{len(devices)} devices"
        tag = hashlib.sha256(made_of.encode()).hexdigest()[:8]
        name = f"{bundle_name(target)}-{bundle_name(model.stem)}-{tag}.adrenoc"
        return self._folder / "bundles" / name

    def _run(self, device: str, target: str, model: Path) -> Job:
        bundle, repeat = str(self.bundle_path(target, model)), str(self.options.repeat)
        return Job(
            action=RUN,
            device=device,
            model=str(model),
            target=target,
            words=("run", bundle, "--repeat", repeat, "--json", "--check", str(model)),
            inputs=(self._digests[model], self.options.preset),
        )

    def _prove(
        self, action: str, device: str, target: str, asked: tuple[str, ...], suffix: str
    ) -> Job:
        """Verify or calibrate a device; what is found goes into a file beside the results."""
        name = bundle_name(device)
        output = str(self._folder / "devices" / f"{name}.{suffix}")
        kept = str(self._folder / "progress" / f"{name}.{action}")
        words = ("device", action, *asked, "-o", output, "--json", "--resume", kept)
        return Job(action=action, device=device, target=target, words=words, progress=kept)


def target_of(output: Mapping[str, Any]) -> str:
    """Return what to compile for a device that says so (`adrenoc device list --on --json`)."""
    told = output.get("server", {})
    facts: Any = next(iter(told.get("devices") or ()), {})
    number = adreno_number(facts if isinstance(facts, dict) else {})
    is_arm = str(told.get("machine", "")).startswith("aarch64")
    common = "adreno" if is_arm else "host"
    name = load_listed(number).name
    if name == "adreno":
        return common
    return name if is_arm else name.replace("adreno:", "host:")


MARKER = "fleet.json"
_MARK = {"adrenoc": "fleet", "version": 1}
_FOLDERS = ("bundles", "devices", "progress", "results")


class ResultStore:
    """A fleet's folder, made where it is not there. Raises OutputError where something else is
    there, or it cannot be made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder):
                raise OutputError(
                    f"{folder} exists and is not the folder of a fleet: it has no {MARKER} that "
                    "adrenoc wrote",
                    hint="name another folder with --output",
                )
            folder.mkdir(exist_ok=True)
            for name in _FOLDERS:
                (folder / name).mkdir(exist_ok=True)
        except OSError as error:
            raise output_error(folder, error) from error
        if not _is_ours(folder):
            write_atomically(folder / MARKER, json.dumps(_MARK) + "\n")

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the folder for this process alone. Raises OutputError where another fleet is at work
        in it."""
        with (self.folder / "lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(
                    f"another `adrenoc device fleet` is at work in {self.folder}",
                    hint="wait for it, or name another folder with --output",
                ) from None
            yield

    def path(self, job: Job) -> Path:
        """Return where the result of a job goes."""
        return self.folder / "results" / f"{job.key}.json"

    def keep(self, job: Job, result: Result) -> None:
        """Write the result of a job, all or nothing. Raises OutputError where it cannot be
        written."""
        write_atomically(self.path(job), json.dumps(asdict(result), indent=1) + "\n")

    def find(self, job: Job) -> Result | None:
        """Return what a job gave, None where it has not been done, or failed. Raises InputError
        where what is there is no result."""
        path = self.path(job)

        def wrong(place: str, what: str) -> InputError:
            return InputError(
                f"{path} is no result of a fleet: {place} {what}",
                hint=f"rm {quote_word(path)}, and the job is done again",
            )

        try:
            plain = read_json(read_plain(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise wrong("it", f"cannot be read: {error}") from error
        found: Result = RecordReader(wrong).read(Result, plain, path.name)
        return None if found.exit_code else found


def _is_ours(folder: Path) -> bool:
    try:
        return bool(read_json(read_plain(folder / MARKER)) == _MARK)
    except (OSError, ValueError):
        return False
