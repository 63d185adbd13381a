"""`adrenoc.toml`, the models of a build with their devices, options and gates, and `adrenoc.lock`:
what a build read and what came of it, by digests.

output = "build"                       # where bundles go; "." beside the file
[defaults]                             # of every model
devices = ["adreno:660", "adreno:750"]
[gates]                                # of every bundle
launches = 60
grow = "size=1%"                       # against the lock
[[model]]
file = "detector.onnx"
shapes = ["images:1,3,320,320"]
tuning_log = "detector.tune.json"

Equal model, options and tools give equal bytes; so a lock that still holds says that nothing
changed, and one that does not says what did.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from adrenoc.base.errors import LockError, OptionError
from adrenoc.base.files.read import read_plain, read_toml, sha256_file, sha256_json
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.names import bundle_name
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.gates import Figures, GrowthLimit, figures_of, parse_gates
from adrenoc.bundle.manifest import to_plain
from adrenoc.bundle.tar import SUFFIX
from adrenoc.importers.containers import choose_model
from adrenoc.importers.formats import find_model_files
from adrenoc.ir.options import SETTINGS, show_setting
from adrenoc.target.gpu_file import is_for_host, own_path

PROJECT_SUFFIX = ".toml"
LOCK_SUFFIX = ".lock"
_HINT = "adrenoc build --help shows what the file may say"
_DEVICE = "adreno"


@dataclass(frozen=True, kw_only=True)
class BundleLimits:
    """The most that a bundle may take, and by how much it may grow against the lock (`grow`)."""

    kernels: int | None = None
    launches: int | None = None
    copies: int | None = None
    cpu_nodes: int | None = None
    buffer_nodes: int | None = None
    memory_mib: float | None = None
    size_mib: float | None = None
    time_us: float | None = None
    grow: str = ""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a model is compiled with; what is None is not said."""

    devices: tuple[str, ...] | None = None
    os: str | None = None
    preset: str | None = None
    shapes: tuple[str, ...] | None = None
    fix: tuple[str, ...] | None = None
    signatures: tuple[str, ...] | None = None
    forbid: tuple[str, ...] | None = None
    precision_policy: str | None = None
    accuracy: float | None = None
    inputs: str | None = None
    tuning_log: str | None = None
    device_report: str | None = None
    clml: str | None = None
    clml_version: int | None = None
    max_memory_mib: int | None = None
    pool_textures: bool | None = None
    int8_prompts: bool | None = None
    winograd: bool | None = None
    context: int | None = None
    prefill: str | None = None
    fallback: str | None = None
    tar: bool | None = None


@dataclass(frozen=True, kw_only=True)
class _Model(Settings):
    """A model: a file, or a folder of `onnx/model*.onnx`, of which `dtype` picks the file."""

    file: str
    dtype: str = ""
    name: str = ""
    gates: BundleLimits = field(default_factory=BundleLimits)


@dataclass(frozen=True, kw_only=True)
class _File:
    output: str = "build"
    defaults: Settings = field(default_factory=Settings)
    gates: BundleLimits = field(default_factory=BundleLimits)
    model: tuple[_Model, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One bundle to make: `words` are those of `adrenoc compile`, with paths as the file has them.
    `reads` are the files that the words name, by option; "model" is the model."""

    name: str
    model: Path
    output: Path
    words: tuple[str, ...]
    reads: dict[str, Path]
    limits: BundleLimits
    grow: tuple[GrowthLimit, ...]


@dataclass(frozen=True, kw_only=True)
class Project:
    """All bundles of a file, in its order."""

    path: Path
    recipes: tuple[Recipe, ...]

    @property
    def lock_path(self) -> Path:
        """Return where its lock lies: beside it, by its name, as a folder may hold several
        projects."""
        named = self.path.stem if self.path.suffix == PROJECT_SUFFIX else self.path.name
        return self.path.with_name(named + LOCK_SUFFIX)


def read_project(path: Path) -> Project:
    """Read the file of a build. Raises ModelNotFoundError where a model is a folder without one;
    OptionError where it is missing or damaged, has an unknown key, lists no model, or two bundles
    of one name."""
    try:
        plain = read_toml(path)
    except OSError as error:
        raise OptionError(
            f"{path} cannot be read: {error.strerror or error}",
            hint=f"write one: printf '[[model]]\\nfile = \"model.onnx\"\\n' > {quote_word(path)}",
        ) from error
    except ValueError as error:
        raise OptionError(f"{path} is not TOML: {error}", hint=_HINT) from error
    file: _File = RecordReader(_wrong, defaults=True).read(_File, plain, str(path))
    if not file.model:
        raise OptionError(f"{path} lists no model; expected [[model]] with a file", hint=_HINT)
    _check_values(file, path)
    recipes = [recipe for model in file.model for recipe in _recipes(path.parent, file, model)]
    names = [recipe.name for recipe in recipes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(
            f"{path} makes two bundles of the name {twice}",
            hint='give one of the models a name of its own: name = "..."',
        )
    return Project(path=path, recipes=tuple(recipes))


def _wrong(where: str, what: str) -> OptionError:
    return OptionError(f"{where} {what}", hint=_HINT)


def _check_values(file: _File, path: Path) -> None:
    """Refuse what no command line could say: limits below nothing, and names that end early."""
    if file.output.startswith("~"):
        raise OptionError(
            f"{path}: output is {file.output!r}, but ~ stands for no folder in this file",
            hint='name a folder beside this file: output = "build"',
        )
    # Not resolved: a link that the user laid there leads where the user wants.
    root = path.parent.absolute()
    root, output = (Path(os.path.normpath(place)) for place in (root, root / file.output))
    if not output.is_relative_to(root):
        raise OptionError(
            f"{path}: output is {file.output!r}, which is outside of the project, expected a "
            f"folder in {root}",
            hint='output = "build"; a link of that name may lead elsewhere',
        )
    tables: list[tuple[str, Any]] = [("", file), ("defaults.", file.defaults)]
    tables += [("gates.", file.gates)]
    for number, model in enumerate(file.model):
        tables += [(f"model[{number}].", model), (f"model[{number}].gates.", model.gates)]
    for where, table in tables:
        for item in fields(table):
            value = getattr(table, item.name)
            texts = value if isinstance(value, tuple) else (value,)
            if any(isinstance(text, str) and "\0" in text for text in texts):
                raise _wrong(f"{path}: {where}{item.name}", "holds a character of number 0")
            if isinstance(table, BundleLimits) and isinstance(value, int | float) and value < 0:
                raise _wrong(f"{path}: {where}{item.name}", f"is {value}, expected 0 or more")


def _recipes(root: Path, file: _File, model: _Model) -> list[Recipe]:
    said = {f.name: getattr(file.defaults, f.name) for f in fields(Settings)}
    own = {name: getattr(model, name) for name in said if getattr(model, name) is not None}
    settings: dict[str, Any] = {**said, **own}
    devices = settings["devices"] or (_DEVICE,)
    place = choose_model(root / model.file, model.dtype)
    named = Path(model.file) if place == root / model.file else (root / model.file).resolve()
    name = bundle_name(model.name or named.stem)
    limits, gates = _join_limits(file.gates, model.gates)
    recipes = []
    for device in devices:
        one = name
        if len(devices) > 1:
            short = Path(device).stem if device.endswith(".toml") else device
            one = bundle_name(f"{name}-{short.replace(':', '-')}")
        end = SUFFIX + (".tar" if settings["tar"] else "")
        reads = {"model": place} | {
            key: root / settings[key] for key in _FILES if settings[key] is not None
        }
        reads |= {
            _device_key(device, word): root / path
            for word in device.split(",")
            if (path := own_path(word.strip())) is not None
        }
        recipes.append(
            Recipe(
                name=one,
                model=place,
                output=root / file.output / (one + end),
                words=_words(settings, device),
                reads=reads,
                limits=limits,
                grow=gates,
            )
        )
    return recipes


def _device_key(device: str, word: str) -> str:
    """Return what a target file is called among what a recipe reads: of several devices by its
    name."""
    return "device" if word == device else f"device {word.strip()}"


def _resolve_device(recipe: Recipe, word: str) -> str:
    """Return a device, by its whole path where it is a target file."""
    path = recipe.reads.get(_device_key(recipe.words[1], word))
    if path is None:
        return word
    return f"host:{path}" if is_for_host(word) else str(path)


_REPORT = "device_report"
_FILES = ("precision_policy", "tuning_log", _REPORT, "inputs")


def _join_limits(
    whole: BundleLimits, own: BundleLimits
) -> tuple[BundleLimits, tuple[GrowthLimit, ...]]:
    """Return a model's own limits over those of the file."""
    values = {f.name: getattr(whole, f.name) for f in fields(BundleLimits)}
    values |= {
        f.name: v for f in fields(BundleLimits) if (v := getattr(own, f.name)) not in (None, "")
    }
    return BundleLimits(**values), parse_gates(values["grow"])


def _words(settings: dict[str, Any], device: str) -> tuple[str, ...]:
    """Options of `adrenoc compile`; files are left to `resolve_words`."""
    words = ["--device", device]
    for name, value in settings.items():
        if name in ("devices", "tar", *_FILES) or value is None:
            continue
        if name in ("shapes", "fix", "signatures"):
            words += [word for one in value for word in (f"--{name.removesuffix('s')}", one)]
        elif name in SETTINGS:
            words += ["--set", f"{name}={show_setting(value)}"]
        else:
            words += [f"--{name}", str(value)]
    return tuple(words)


def resolve_words(recipe: Recipe) -> tuple[str, ...]:
    """Return the whole command line of `adrenoc compile`, from whichever folder."""
    words = list(recipe.words)
    words[1] = ",".join(_resolve_device(recipe, word) for word in words[1].split(","))
    if _REPORT in recipe.reads:
        words[1] += f"+{recipe.reads[_REPORT]}"
    files = [
        word
        for key in _FILES
        if key in recipe.reads and key != _REPORT
        for word in (f"--{key.replace('_', '-')}", str(recipe.reads[key]))
    ]
    ends = ("--output", str(recipe.output), "--json")
    return ("compile", str(recipe.model), *words, *files, *ends)


_SCHEMA_VERSION = 1
_SHOWN = 12
"""Digits of a digest in messages."""


@dataclass(frozen=True, kw_only=True)
class LockedBundle:
    """One bundle: the words of its compilation, what those read, and what came out. `reads` has
    digests of files by the option that names them; `parts` those of the bundle's files, all kernels
    as one."""

    name: str
    words: tuple[str, ...]
    reads: dict[str, str]
    target: str
    options: str
    tools: dict[str, str]
    parts: dict[str, str]
    figures: Figures


@dataclass(frozen=True, kw_only=True)
class Lock:
    """All bundles of a build, by name."""

    schema_version: int = _SCHEMA_VERSION
    bundles: tuple[LockedBundle, ...]

    def to_json(self) -> str:
        """Return it as the file holds it."""
        return json.dumps(to_plain(self), indent=1, ensure_ascii=False) + "\n"

    def find(self, name: str) -> LockedBundle | None:
        """Return the bundle of that name."""
        return next((one for one in self.bundles if one.name == name), None)


def read_lock(path: Path) -> Lock | None:
    """Return the lock in a file; None where there is no file. Raises LockError where it cannot be
    read, is damaged, or of another version."""
    try:
        plain = read_json(read_plain(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise _damaged(f"{path} is not JSON: {error}") from error
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if version != _SCHEMA_VERSION:
        raise _damaged(f"{path} has version {version!r}; this adrenoc reads {_SCHEMA_VERSION}")
    lock: Lock = RecordReader(lambda where, what: _damaged(f"{where} {what}")).read(
        Lock, plain, str(path)
    )
    return lock


def _damaged(what: str) -> LockError:
    return LockError(what, hint="remove the file, and make it again: adrenoc build")


def digest_reads(recipe: Recipe) -> dict[str, str]:
    """Digests of all that a compilation reads, by option. Raises ModelNotFoundError or OptionError
    where a file is missing; the sentence names it."""
    found = {}
    for key, path in recipe.reads.items():
        if key == "model":
            found[key] = find_model_files(path).sha256()
            continue
        try:
            found[key] = _digest(path)
        except OSError as error:
            raise OptionError(
                f"{path}, which {key.replace('_', '-')} of {recipe.name} names, cannot be read: "
                f"{error.strerror or error}",
                hint=f"ls -ld {quote_word(path.parent)}",
            ) from error
    return found


def _digest(path: Path) -> str:
    if not path.is_dir():
        return sha256_file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return sha256_json([(str(file.relative_to(path)), sha256_file(file)) for file in files])


def lock_bundle(recipe: Recipe, bundle: Bundle, reads: dict[str, str]) -> LockedBundle:
    """Return what the lock says of a bundle that was made."""
    manifest = bundle.manifest
    kernels = [(f.path, f.sha256) for f in manifest.files if "kernels/" in f.path]
    parts = {f.path: f.sha256 for f in manifest.files if "kernels/" not in f.path}
    parts |= {"kernels": sha256_json(kernels), "manifest.json": sha256_json(to_plain(manifest))}
    return LockedBundle(
        name=recipe.name,
        words=recipe.words,
        reads=reads,
        target=manifest.target.digest,
        options=manifest.options.digest,
        tools=dict(manifest.versions),
        parts=parts,
        figures=figures_of(bundle),
    )


def list_unlike_reads(
    recipe: Recipe, reads: dict[str, str], tools: dict[str, str], locked: LockedBundle | None
) -> list[str]:
    """Return what would be read that is not what the lock has; before anything is compiled."""
    if locked is None:
        return [f"{recipe.name} is not in the lock"]
    said = []
    if recipe.words != locked.words:
        said.append(f"{recipe.name}: options {_show(locked.words)}, now {_show(recipe.words)}")
    said += _unlike(recipe.name, locked.reads, reads)
    # The linker's version is known of a bundle alone.
    known = {tool: version for tool, version in locked.tools.items() if tool in tools}
    return said + _unlike(recipe.name, known, tools)


def list_unlike_results(locked: LockedBundle, made: LockedBundle) -> list[str]:
    """Return what came out that is not what the lock has."""
    name = made.name
    said = _unlike(name, locked.tools, made.tools)
    for key in ("target", "options"):
        said += _unlike(name, {key: getattr(locked, key)}, {key: getattr(made, key)})
    for part in fields(Figures):
        was, now = (asdict(one.figures)[part.name] for one in (locked, made))
        if was != now:
            said.append(f"{name}: {part.name} {was}, now {now}")
    return said + _unlike(name, locked.parts, made.parts)


def _unlike(name: str, before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [
        f"{name}: {key} {_short(before.get(key))}, now {_short(after.get(key))}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def _short(value: str | None) -> str:
    return "none" if value is None else value[:_SHOWN]


def _show(words: tuple[str, ...]) -> str:
    return f"`{' '.join(words)}`"
