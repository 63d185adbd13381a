"""`adrenoc.lock`: what a build read and what came of it, by digests.

Equal model, options and tools give equal bytes; so a lock that still holds says that nothing
changed, and one that does not says what did.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from adrenoc.base.errors import LockError, OptionError
from adrenoc.base.files.read import read_plain, sha256_file, sha256_json
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.gates import Figures, figures_of
from adrenoc.bundle.manifest import to_plain
from adrenoc.importers.formats import find_model_files
from adrenoc.project.project_file import Recipe

_SCHEMA_VERSION = 1
_SHOWN = 12
"""Digits of a digest in messages."""


@dataclass(frozen=True, kw_only=True)
class LockedBundle:
    """One bundle: the words of its compilation, what those read, and what came out.

    `reads` has digests of files by the option that names them; `parts` those of the bundle's files,
    all kernels as one.
    """

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
        """As the file holds it."""
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
