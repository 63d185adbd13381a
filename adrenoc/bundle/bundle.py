"""Bundles: what adrenoc compiles a model into, as a folder or as a tar file of it.

NAME.adrenoc/
    manifest.json        what the bundle promises (`adrenoc.bundle.manifest`), a digest per file
    model.so             host code, serialised OpenCL kernels and VM byte code
    params.safetensors   the packed constants, under the names that the manifest lists
    moves.json           constants that are others of that file in another order, where there are
    kernels/NAME.cl      the source of each kernel, to read
    launches.json        what each launch computes, by the model's names, with its work
    target.toml          the user's own target file, where it was compiled for one
    decisions.json       what the compiler chose, and why
    proof.json           inputs and what comes of them, where `adrenoc prove` put it
    programs/            built kernels of a device and driver, where `adrenoc device warm` put some
    buckets/, devices/   the same for other shapes, and with kernels of single GPUs
                         (`adrenoc.bundle.buckets`)

Files come to a folder that takes its place at the end: a bundle is whole, or as it was. Apps carry
bundles deflated, and without the sources of kernels.  The kernels' texts that a driver builds lie
in `model.so`; `kernels/*.cl` are the same texts for people to look at, a fifth of a bundle for many
GPUs.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.base.errors import BundleError, DiskFullError, OutputError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.files.outputs import (
    OTHER_PLACE,
    Digests,
    FolderKind,
    scratch_folder_for,
    write_folder_atomically,
)
from adrenoc.base.files.read import read_plain, sha256_file
from adrenoc.base.host.time_trace import section
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.manifest import (
    REBUILD_HINT,
    FileEntry,
    KernelInfo,
    LibraryInfo,
    Manifest,
    ParamSpec,
)
from adrenoc.bundle.params import (
    MOVES,
    ConstantSource,
    read_moves,
    read_params,
    walk_params,
    write_params,
)
from adrenoc.bundle.tar import (
    MANIFEST,
    check_paths,
    deflate_files,
    guess_suffix,
    inflate_files,
    unpack_tar,
    write_tar,
)

if TYPE_CHECKING:
    import numpy as np

    from adrenoc.compile.compiler import Compiled


@dataclass(frozen=True, kw_only=True)
class LaunchInfo:
    """One launch of an OpenCL kernel.

    `node` is the model's own name of what it computes, or the name of its tensor; `tensors` are the
    model's names of what it makes, empty in bundles of older versions.  `flops` counts
    a multiply-add as two; `bytes` counts each tensor that it touches once; `floor_us` is the least
    time that the target's figures allow (`adrenoc.target.gpu`), None where they do not tell.
    """

    kernel: str
    node: str
    flops: int
    bytes: int
    floor_us: float | None = None
    tensors: tuple[str, ...] = ()


def launches_to_json(launches: Sequence[LaunchInfo]) -> str:
    """Launches as text, a line each."""
    lines = ",\n".join(json.dumps(asdict(launch), ensure_ascii=False) for launch in launches)
    return f"[\n{lines}\n]\n" if lines else "[]\n"


def launches_from_json(text: str, *, where: str) -> tuple[LaunchInfo, ...]:
    """Read them back; `where` names the file in messages."""

    def wrong(place: str, what: str) -> BundleError:
        return BundleError(f"{where} does not hold launches: {place} {what}", hint=REBUILD_HINT)

    try:
        plain = read_json(text)
    except ValueError as error:
        raise wrong("it", f"is not JSON: {error}") from error
    reader = RecordReader(wrong, defaults=True)
    launches: tuple[LaunchInfo, ...] = reader.read(tuple[LaunchInfo, ...], plain, "it")
    return launches


LIBRARY = "model.so"
CPU_LIBRARY = "cpu.so"
"""The model as code for the CPU, where a bundle carries it."""
PARAMS = "params.safetensors"
DECISIONS = "decisions.json"
LAUNCHES = "launches.json"
TARGET = "target.toml"
TOKENIZER = "tokenizer.json"
CHAT = "chat.json"
"""Of a language model: its template of messages, and how it wants tokens picked."""
TEXT_TABLES = "text_tables.bin"
"""The same as the phone's runtime reads it."""
KERNELS = "kernels"
PROGRAMS = "programs"
PROOF = "proof.json"

_OF_THE_WHOLE = (PARAMS, MOVES, PROGRAMS, PROOF, TOKENIZER, CHAT, TEXT_TABLES)
"""Files that parts of a bundle share."""
_DECISION_KEYS = ("stage", "subject", "taken", "reason")
# What the manifest of a bundle has had in every version.
_ALWAYS = frozenset({"schema_version", "name", "model", "target", "kernels", "library", "files"})


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle that was opened: `path` as the user gave it, `root` the folder with its files."""

    path: Path
    root: Path
    manifest: Manifest
    # Keeps the unpacked files of a tar form alive for as long as the bundle is.
    unpacked: TemporaryFolder | None = None
    # Of a part (a bucket, or what is for one GPU): the folder of the bundle that it is part of.
    whole: Path | None = None

    def file(self, name: str) -> Path:
        """Return a file of the bundle; what parts share lies in the whole one."""
        if self.whole is not None and name in _OF_THE_WHOLE:
            return self.whole / name
        return self.root / name

    @contextmanager
    def read_as_one(self) -> Iterator[None]:
        """While files of it are read: parts of two bundles would make wrong numbers."""
        try:
            yield
        except BundleError:
            self._refuse_replaced()
            raise
        self._refuse_replaced()

    def _refuse_replaced(self) -> None:
        with suppress(BundleError):
            if read_manifest(self.root, shown=self.path) == self.manifest:
                return
        raise BundleError(f"{self.path} was replaced while it was read", hint="run it again")

    @property
    def library(self) -> Path:
        """Return the shared library."""
        return self.root / LIBRARY

    @property
    def bytes(self) -> int:
        """Return the size of all files."""
        return sum(entry.bytes for entry in self.manifest.files)

    @property
    def kept_states(self) -> tuple[tuple[str, str], ...]:
        """States, each with the output that the model has it as in the next run; no caches."""
        pairs = self.manifest.options.values.get("states", ())
        return tuple((str(past), str(present)) for past, present in pairs)

    def params(self, specs: Sequence[ParamSpec] | None = None) -> dict[str, np.ndarray]:
        """Return the packed constants by name; with `specs` these alone."""
        wanted = self.manifest.params if specs is None else specs
        where = f"{self.path}: {PARAMS}"
        return read_params(self.file(PARAMS), wanted, where=where, moves=self.moves())

    def walk_params(self, specs: Sequence[ParamSpec]) -> Iterator[np.ndarray]:
        """Return the packed constants of `specs` in their order, each read as it comes."""
        where = f"{self.path}: {PARAMS}"
        return walk_params(self.file(PARAMS), specs, where=where, moves=self.moves())

    def moves(self) -> dict[str, ConstantSource]:
        """Return how constants that it does not hold come of those that it holds, by name."""
        return read_moves(self.file(MOVES), f"{self.path}: {MOVES}")

    def decisions(self) -> list[dict[str, str]]:
        """Return the compiler's decisions, in order."""
        where = f"{self.path}: {DECISIONS}"
        try:
            log = read_json(_text(self.root / DECISIONS, self.path))
            return [{key: str(entry[key]) for key in _DECISION_KEYS} for entry in log]
        except (ValueError, TypeError, KeyError) as error:
            raise BundleError(
                f"{where} does not hold decisions: {error}", hint=REBUILD_HINT
            ) from error

    def launches(self) -> tuple[LaunchInfo, ...]:
        """Return what each launch computes, in order; empty in a bundle that does not tell."""
        file = self.root / LAUNCHES
        if not file.is_file():
            return ()
        return launches_from_json(_text(file, self.path), where=f"{self.path}: {LAUNCHES}")

    def kernels(self) -> tuple[KernelInfo, ...]:
        """Return the kernels with their sources read from the bundle."""
        return tuple(
            replace(kernel, source=self._kernel_source(kernel)) for kernel in self.manifest.kernels
        )

    def _kernel_source(self, kernel: KernelInfo) -> str:
        file = kernel_file(self.root, kernel)
        listed = {entry.path for entry in self.manifest.files}
        if file.relative_to(self.root).as_posix() not in listed:
            raise BundleError(
                f"{self.path}: {MANIFEST} lists no source of the kernel {kernel.name}",
                hint=REBUILD_HINT,
            )
        return _text(file, self.path)


def open_bundle(path: Path) -> Bundle:
    """Open the bundle at `path`, a folder or a tar file, and verify every file's digest."""
    if not os.path.lexists(path):
        message = f"there is no bundle at {path}{guess_suffix(path)}"
        raise BundleError(message, hint=f"adrenoc compile MODEL --output {quote_word(path)}")
    unpacked = None if path.is_dir() else make_temporary(path)
    root = path if unpacked is None else unpacked.path
    if unpacked is not None:
        unpack_tar(path, root)
    manifest = read_manifest(root, shown=path)
    for entry in manifest.files:
        _verify(root, entry, shown=path)
    if any(entry.inflated_bytes for entry in manifest.files):
        if unpacked is None:
            raise BundleError(
                f"{path} was unpacked from a tar file for apps, whose files are deflated",
                hint="give the tar file itself",
            )
        inflate_files(root, manifest, path)
        manifest = read_manifest(root, shown=path)
    return Bundle(path=path, root=root, manifest=manifest, unpacked=unpacked)


def is_part(folder: str, above: str) -> bool:
    """Return whether a bundle's list names a folder right below `above`, as a part has to lie."""
    parent, _, name = folder.rpartition("/")
    return parent == above and name not in ("", ".", "..")


def open_part(bundle: Bundle, folder: str) -> Bundle:
    """Return a folder of a bundle as one of its own, whose files were verified with it."""
    root = bundle.root / folder
    manifest = read_manifest(root, shown=bundle.path / folder)
    whole = {(file.path, file.sha256) for file in bundle.manifest.files}
    for file in manifest.files:
        # The constants of all parts are one file of the whole bundle.
        own = file.path if file.path in _OF_THE_WHOLE else f"{folder}/{file.path}"
        if (own, file.sha256) not in whole:
            raise BundleError(
                f"{bundle.path}: {MANIFEST} does not list {own} as the part in {folder} does",
                hint=REBUILD_HINT,
            )
    return replace(bundle, root=root, manifest=manifest, whole=bundle.whole or bundle.root)


def read_manifest(root: Path, *, shown: Path) -> Manifest:
    """Return the manifest of the bundle folder `root`; messages call the bundle `shown`."""
    file = root / MANIFEST
    try:
        is_there = file.is_file()
    except OSError as error:
        raise _unreadable(shown, MANIFEST, error) from error
    if not is_there:
        raise BundleError(f"{shown} is not a bundle: it holds no {MANIFEST}", hint=REBUILD_HINT)
    manifest = Manifest.from_json(_text(file, shown), f"{shown}: {MANIFEST}")
    check_paths(manifest.files, shown)
    return manifest


def make_temporary(path: Path) -> TemporaryFolder:
    """Return a folder for the bundle at `path`, which goes with the process at the latest."""
    try:
        return TemporaryFolder("bundle")
    except OSError as error:
        raise DiskFullError(
            f"{path} cannot be unpacked: there is no folder for temporary files "
            f"({error.strerror or error})",
            hint="set TMPDIR to a folder with room in it",
        ) from error


def _text(file: Path, shown: Path) -> str:
    """Return a text of a bundle."""
    try:
        return read_plain(file).decode("utf-8")
    except OSError as error:
        raise _unreadable(shown, file.name, error) from error
    except UnicodeDecodeError as error:
        raise BundleError(f"{shown}: {file.name} is not text", hint=REBUILD_HINT) from error


def _unreadable(shown: Path, name: str, error: OSError) -> BundleError:
    return BundleError(
        f"{shown}: {name} cannot be read: {error.strerror or error}", hint=REBUILD_HINT
    )


def _read_listed(root: Path) -> Digests | None:
    """Return what the manifest of a folder lists; None where it is not the manifest of a bundle.
    Bundles of other versions are ours, too; what a user wrote into a listed file is not kept."""
    try:
        plain = read_json(read_plain(root / MANIFEST))
        known = plain.keys() >= _ALWAYS and isinstance(plain["schema_version"], int)
        paths = [entry["path"] for entry in plain["files"] if entry["sha256"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return dict.fromkeys(map(str, paths), "") if known and LIBRARY in paths else None


BUNDLE_FOLDER = FolderKind(name="bundle", marker=MANIFEST, listed=_read_listed)


def _verify(root: Path, entry: FileEntry, *, shown: Path) -> None:
    file = root / entry.path
    try:
        if not file.is_file():
            raise BundleError(f"{shown} lacks the file {entry.path}", hint=REBUILD_HINT)
        size = file.stat().st_size
        # The size first: a digest of what is far longer takes its time.
        digest = sha256_file(file) if size == entry.bytes else ""
    except OSError as error:
        raise _unreadable(shown, entry.path, error) from error
    if size != entry.bytes:
        raise BundleError(
            f"{shown}: {entry.path} has {size} bytes, expected {entry.bytes}", hint=REBUILD_HINT
        )
    if digest != entry.sha256:
        raise BundleError(
            f"{shown}: {entry.path} is not what was compiled (its SHA-256 differs)",
            hint=REBUILD_HINT,
        )


def kernel_file(root: Path, kernel: KernelInfo) -> Path:
    """Return where the source of a kernel lies in the bundle folder `root`."""
    return root / KERNELS / f"{kernel.name}.cl"


_COPY_BYTES = 1 << 20


def fill_bundle(
    root: Path,
    compiled: Compiled,
    *,
    library: LibraryInfo,
    manifest: Mapping[str, Any],
    params: FileEntry | None = None,
    floors: bool = True,
) -> Manifest:
    """Write all files of a bundle into the folder `root`, in which `model.so` lies already.

    `library` are its facts; `manifest` gives what a compiled model does not know of itself:
    `name`, `model`, `target`, `options` and `versions` of `Manifest`; `params` is the file of the
    constants where that was written elsewhere.  Without `floors` launches hold none: those of a
    target that lacks a rate are too low to gate on.  Returns the whole manifest.
    """
    if params is None:
        with section("write constants", "file"):
            params = write_params(root / PARAMS, compiled.params)
    (root / KERNELS).mkdir()
    for kernel in compiled.kernels:
        kernel_file(root, kernel).write_text(kernel.source, encoding="utf-8")
    decisions = json.dumps(compiled.decisions.to_json(), indent=1, ensure_ascii=False)
    (root / DECISIONS).write_text(decisions + "\n", encoding="utf-8")
    launches = (one if floors else replace(one, floor_us=None) for one in compiled.launches)
    (root / LAUNCHES).write_text(launches_to_json(tuple(launches)), encoding="utf-8")
    paths = [path for path in root.rglob("*") if path.is_file() and path != root / params.path]
    files = [*(file_entry(root, path) for path in paths), params]
    whole = Manifest(
        **manifest,
        inputs=compiled.inputs,
        outputs=compiled.outputs,
        states=compiled.states,
        params=compiled.param_specs,
        kernels=compiled.kernels,
        memory=compiled.memory,
        statistics=compiled.statistics,
        regions=compiled.regions,
        library=library,
        files=tuple(sorted(files, key=lambda entry: Path(entry.path))),
    )
    (root / MANIFEST).write_text(whole.to_json(), encoding="utf-8")
    return whole


def file_entry(root: Path, path: Path) -> FileEntry:
    """Return what the manifest of the bundle in `root` says of the file at `path`."""
    return FileEntry(
        path=path.relative_to(root).as_posix(), bytes=path.stat().st_size, sha256=sha256_file(path)
    )


def move_bundle(source: Path, output: Path) -> None:
    """Put the bundle folder `source`, which lies beside `output`, in its place."""
    with write_folder_atomically(output, BUNDLE_FOLDER) as folder:
        for path in source.iterdir():
            path.rename(folder / path.name)


def copy_files(source: Path, target: Path, *, link: bool = False) -> None:
    """Copy the files below `source` to the folder `target`, or `link` to them where that goes.

    Raises:
        OSError: the first that goes wrong, with its own errno (`shutil.copytree` hides it).
    """
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
            continue
        if link:
            with suppress(OSError):
                os.link(path, copy)
                continue
        with path.open("rb") as reading, copy.open("xb") as writing:
            shutil.copyfileobj(reading, writing, _COPY_BYTES)


def add_programs(bundle: Bundle, programs: Mapping[str, bytes]) -> None:
    """Put kernels that were built for a device into a bundle, folder or tar, all or nothing.
    `programs` maps file names to contents; those that the bundle has under other names stay."""
    put_files(bundle, {f"{PROGRAMS}/{name}": content for name, content in programs.items()})


def put_files(bundle: Bundle, contents: Mapping[str, bytes]) -> None:
    """Put files into a bundle, folder or tar, by their paths in it, all or nothing."""
    try:
        if bundle.unpacked is None:
            with write_folder_atomically(bundle.path, BUNDLE_FOLDER) as folder:
                _copy_with(bundle, contents, folder)
            return
        with scratch_folder_for(bundle.path) as folder:
            _copy_with(bundle, contents, folder)
            write_tar(folder, bundle.path, name=bundle.manifest.name)
    except OutputError as error:
        # A bundle is changed where it lies: no option names another place.
        elsewhere = "copy the bundle to another place, and name that one"
        error.hint = error.hint.replace(OTHER_PLACE, elsewhere)
        raise


def _copy_with(bundle: Bundle, contents: Mapping[str, bytes], folder: Path) -> None:
    """Copy a bundle to an empty folder, with these files in it or in place of its own."""
    copy_files(bundle.root, folder)
    for path, content in contents.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    kept = [entry for entry in bundle.manifest.files if entry.path not in contents]
    made = [file_entry(folder, folder / path) for path in contents]
    files = sorted([*kept, *made], key=lambda entry: entry.path)
    manifest = replace(bundle.manifest, files=tuple(files))
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")


def write_app_tar(root: Path, output: Path, *, name: str) -> None:
    """Write the bundle folder `root` as a tar file for an app.

    Raises:
        OSError: there is no room for it beside `output`.
    """
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".app-") as scratch:
        copy = Path(scratch) / "bundle"
        copy.mkdir()
        copy_files(root, copy, link=True)
        for folder in sorted(copy.rglob(KERNELS)):
            shutil.rmtree(folder)
        if (copy / TEXT_TABLES).is_file():  # the same, as the runtime reads it
            for file in (TOKENIZER, CHAT):
                (copy / file).unlink(missing_ok=True)
        deflate_files(copy)
        write_tar(copy, output, name=name)
