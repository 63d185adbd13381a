"""Bundles: what adrenoc compiles a model into, as a folder or as a tar file of it.

NAME.adrenoc/
    manifest.json        what the bundle promises (`adrenoc.manifest`), with a digest per file
    model.so             host code, serialised OpenCL kernels and VM byte code
    params.safetensors   the packed constants, under the names that the manifest lists
    kernels/NAME.cl      the source of each kernel, to read
    launches.json        what each launch computes, by the model's names, with its work
    decisions.json       what the compiler chose, and why
    programs/            kernels built for one device and driver, where `adrenoc warm` put some
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from adrenoc.errors import BundleError
from adrenoc.files import sha256_file, write_atomically, write_folder_atomically
from adrenoc.launches import LaunchInfo, launches_from_json, launches_to_json
from adrenoc.manifest import (
    FileEntry,
    KernelInfo,
    LibraryInfo,
    Manifest,
    MemoryPlan,
    ParamSpec,
    RegionInfo,
    Statistics,
    TensorSpec,
)

if TYPE_CHECKING:
    import numpy as np

    from adrenoc.decision import DecisionLog

SUFFIX = ".adrenoc"
MANIFEST = "manifest.json"
LIBRARY = "model.so"
PARAMS = "params.safetensors"
DECISIONS = "decisions.json"
LAUNCHES = "launches.json"
KERNELS = "kernels"
PROGRAMS = "programs"

_COPY_BYTES = 1 << 20
_REBUILD_HINT = "compile the model again: adrenoc compile MODEL --device DEVICE"


class CompiledModel(Protocol):
    """What `compile_model` returns, as far as a bundle holds it."""

    @property
    def params(self) -> Mapping[str, np.ndarray]:
        """The packed constants by name."""

    @property
    def param_specs(self) -> tuple[ParamSpec, ...]:
        """The packed constants in the order in which `main` takes them."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The model's inputs in order."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The model's outputs in order."""

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """Each OpenCL kernel, with its source."""

    @property
    def memory(self) -> MemoryPlan:
        """The plan of intermediate storage."""

    @property
    def statistics(self) -> Statistics:
        """Where operators and tensors went."""

    @property
    def launches(self) -> tuple[LaunchInfo, ...]:
        """What each launch computes, in order."""

    @property
    def regions(self) -> tuple[RegionInfo, ...]:
        """What OpenCL ML computes where a device has it."""

    @property
    def decisions(self) -> DecisionLog:
        """What was chosen, and why."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle that was opened: `path` as the user gave it, `root` the folder with its files."""

    path: Path
    root: Path
    manifest: Manifest
    # Keeps the unpacked files of a tar form alive for as long as the bundle is.
    unpacked: tempfile.TemporaryDirectory[str] | None = None
    # Of a bucket: the folder of the bundle that it is part of.
    whole: Path | None = None

    def file(self, name: str) -> Path:
        """A file of the bundle; constants and built kernels of a bucket lie in the whole one."""
        if self.whole is not None and name in (PARAMS, PROGRAMS):
            return self.whole / name
        return self.root / name

    @property
    def library(self) -> Path:
        """The shared library."""
        return self.root / LIBRARY

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(entry.bytes for entry in self.manifest.files)

    def params(self) -> dict[str, np.ndarray]:
        """The packed constants by name."""
        from safetensors.numpy import load_file

        loaded: dict[str, np.ndarray] = load_file(self.file(PARAMS))
        return loaded

    def decisions(self) -> list[dict[str, str]]:
        """The compiler's decisions, in order."""
        log: list[dict[str, str]] = json.loads((self.root / DECISIONS).read_text(encoding="utf-8"))
        return log

    def launches(self) -> tuple[LaunchInfo, ...]:
        """What each launch computes, in order; empty in a bundle that does not tell."""
        file = self.root / LAUNCHES
        if not file.is_file():
            return ()
        return launches_from_json(
            file.read_text(encoding="utf-8"), where=f"{self.path}: {LAUNCHES}"
        )

    def kernels(self) -> tuple[KernelInfo, ...]:
        """The kernels with their sources read from the bundle.

        Raises:
            BundleError: the source of one is not listed, or no text.
        """
        return tuple(
            replace(kernel, source=self._kernel_source(kernel)) for kernel in self.manifest.kernels
        )

    def _kernel_source(self, kernel: KernelInfo) -> str:
        file = _kernel_file(self.root, kernel)
        listed = {entry.path for entry in self.manifest.files}
        if file.relative_to(self.root).as_posix() not in listed:
            raise BundleError(
                f"{self.path}: {MANIFEST} lists no source of the kernel {kernel.name}",
                hint=_REBUILD_HINT,
            )
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BundleError(
                f"{self.path}: the source of the kernel {kernel.name} is not text (UTF-8)",
                hint=_REBUILD_HINT,
            ) from error


def fill_bundle(
    root: Path,
    compiled: CompiledModel,
    *,
    library: LibraryInfo,
    manifest: Mapping[str, Any],
    params: FileEntry | None = None,
) -> Manifest:
    """Write all files of a bundle into the folder `root`, in which `model.so` lies already.

    `library` are its facts; `manifest` gives what a compiled model does not know of itself:
    `name`, `model`, `target`, `options` and `versions` of `Manifest`; `params` is the file of the
    constants where that was written elsewhere.  Returns the whole manifest.
    """
    if params is None:
        write_params(root / PARAMS, compiled.params)
    (root / KERNELS).mkdir()
    for kernel in compiled.kernels:
        _kernel_file(root, kernel).write_text(kernel.source, encoding="utf-8")
    decisions = json.dumps(compiled.decisions.to_json(), indent=1, ensure_ascii=False)
    (root / DECISIONS).write_text(decisions + "\n", encoding="utf-8")
    (root / LAUNCHES).write_text(launches_to_json(compiled.launches), encoding="utf-8")
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    whole = Manifest(
        **manifest,
        inputs=compiled.inputs,
        outputs=compiled.outputs,
        params=compiled.param_specs,
        kernels=compiled.kernels,
        memory=compiled.memory,
        statistics=compiled.statistics,
        regions=compiled.regions,
        library=library,
        files=(*_entries(root, paths), *([params] if params else [])),
    )
    (root / MANIFEST).write_text(whole.to_json(), encoding="utf-8")
    return whole


def file_entry(root: Path, path: Path) -> FileEntry:
    """What the manifest of the bundle in `root` says of the file at `path`."""
    return FileEntry(
        path=path.relative_to(root).as_posix(),
        bytes=path.stat().st_size,
        sha256=sha256_file(path),
    )


def open_bundle(path: Path) -> Bundle:
    """Open the bundle at `path`, a folder or a tar file, and verify every file's digest.

    Raises:
        BundleError: it is missing, no bundle, of another schema version, or damaged.
    """
    if not path.exists():
        raise BundleError(
            f"there is no bundle at {path}", hint=f"adrenoc compile MODEL --output {path}"
        )
    unpacked = None
    root = path
    if path.is_file():
        unpacked = tempfile.TemporaryDirectory(prefix="adrenoc-bundle-")
        root = Path(unpacked.name)
        _unpack(path, root)
    manifest = read_manifest(root, shown=path)
    for entry in manifest.files:
        _verify(root, entry, shown=path)
    return Bundle(path=path, root=root, manifest=manifest, unpacked=unpacked)


def read_manifest(root: Path, *, shown: Path) -> Manifest:
    """The manifest of the bundle folder `root`; messages call the bundle `shown`.

    Raises:
        BundleError: there is none, or it cannot be understood.
    """
    file = root / MANIFEST
    if not file.is_file():
        raise BundleError(f"{shown} is not a bundle: it holds no {MANIFEST}", hint=_REBUILD_HINT)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BundleError(f"{shown}: {MANIFEST} is not text", hint=_REBUILD_HINT) from error
    return Manifest.from_json(text, f"{shown}: {MANIFEST}")


def copy_bundle(source: Path, output: Path) -> None:
    """Copy the bundle folder `source` to the folder `output`, all or nothing.

    Raises:
        OutputError: `output` cannot be written, or something else is in its place.
    """
    with write_folder_atomically(output, marker=MANIFEST) as folder:
        copy_files(source, folder)


def copy_files(source: Path, target: Path) -> None:
    """Copy the files below `source` to the folder `target`.

    Raises:
        OSError: the first that goes wrong, with its own errno (`shutil.copytree` hides it).
    """
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
            continue
        with path.open("rb") as reading, copy.open("xb") as writing:
            shutil.copyfileobj(reading, writing, _COPY_BYTES)


def write_tar(source: Path, output: Path, *, name: str) -> None:
    """Write the bundle folder `source` as a tar file that unpacks to `NAME.adrenoc/`.

    Equal bundles give equal bytes: sorted names, no times, no owners.

    Raises:
        OutputError: `output` cannot be written.
    """
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(f"{name}{SUFFIX}/{path.relative_to(source).as_posix()}")
            member.size = path.stat().st_size
            with path.open("rb") as stream:
                tar.addfile(member, stream)
    write_atomically(output, buffer.getvalue())


def add_programs(bundle: Bundle, programs: Mapping[str, bytes]) -> None:
    """Put kernels that were built for a device into a bundle, folder or tar, all or nothing.

    `programs` maps file names to contents; those that the bundle has under other names stay.

    Raises:
        OutputError: the bundle cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="adrenoc-bundle-") as scratch:
        root = Path(scratch) / "bundle"
        shutil.copytree(bundle.root, root)
        (root / PROGRAMS).mkdir(exist_ok=True)
        for name, content in programs.items():
            (root / PROGRAMS / name).write_bytes(content)
        kept = [e for e in bundle.manifest.files if Path(e.path).parent != Path(PROGRAMS)]
        files = sorted([*kept, *_entries(root, (root / PROGRAMS).iterdir())], key=_path_of)
        manifest = replace(bundle.manifest, files=tuple(files))
        (root / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        if bundle.unpacked is not None:
            write_tar(root, bundle.path, name=manifest.name)
            return
        with write_folder_atomically(bundle.path, marker=MANIFEST) as folder:
            shutil.copytree(root, folder, dirs_exist_ok=True)


def _entries(root: Path, paths: Iterable[Path]) -> list[FileEntry]:
    return [file_entry(root, path) for path in paths]


def _path_of(entry: FileEntry) -> str:
    return entry.path


def _unpack(path: Path, root: Path) -> None:
    """Unpack the plain files of a bundle's tar form into `root`."""
    try:
        with tarfile.open(path, mode="r:") as tar:
            for member in tar:
                inner = PurePosixPath(*PurePosixPath(member.name).parts[1:])
                if not member.isfile() or ".." in inner.parts or not inner.parts:
                    continue
                target = root / inner
                target.parent.mkdir(parents=True, exist_ok=True)
                stream = tar.extractfile(member)
                if stream is not None:
                    with target.open("wb") as file:
                        shutil.copyfileobj(stream, file)
    except tarfile.TarError as error:
        raise BundleError(
            f"{path} is neither a bundle folder nor a whole tar file of one ({error})",
            hint=_REBUILD_HINT,
        ) from error


def _verify(root: Path, entry: FileEntry, *, shown: Path) -> None:
    file = root / entry.path
    if not file.is_file():
        raise BundleError(f"{shown} lacks the file {entry.path}", hint=_REBUILD_HINT)
    size = file.stat().st_size
    if size != entry.bytes:
        raise BundleError(
            f"{shown}: {entry.path} has {size} bytes, expected {entry.bytes}", hint=_REBUILD_HINT
        )
    if sha256_file(file) != entry.sha256:
        raise BundleError(
            f"{shown}: {entry.path} is not what was compiled (its SHA-256 differs)",
            hint=_REBUILD_HINT,
        )


def _kernel_file(root: Path, kernel: KernelInfo) -> Path:
    return root / KERNELS / f"{kernel.name}.cl"


def write_params(path: Path, params: Mapping[str, np.ndarray]) -> None:
    """Write packed constants, by name, as safetensors.

    Raises:
        OSError: it cannot be written.
    """
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # safetensors writes the memory as it lies, strides and all.
    dense = {name: np.ascontiguousarray(array) for name, array in params.items()}
    try:
        save_file(dense, path)
    except SafetensorError as error:
        # It hides the system's error in its text: "... No space left on device (os error 28)".
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        code = int(number.group(1))
        raise OSError(code, os.strerror(code), str(path)) from error
