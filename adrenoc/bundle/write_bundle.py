"""Write what was compiled as a bundle, and put more into a bundle that is there.

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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.base.errors import OutputError
from adrenoc.base.files.outputs import OTHER_PLACE, scratch_folder_for, write_folder_atomically
from adrenoc.base.files.read import sha256_file
from adrenoc.base.host.time_trace import section
from adrenoc.bundle.bundle import (
    BUNDLE_FOLDER,
    CHAT,
    DECISIONS,
    KERNELS,
    LAUNCHES,
    PARAMS,
    PROGRAMS,
    TEXT_TABLES,
    TOKENIZER,
    Bundle,
    kernel_file,
    launches_to_json,
)
from adrenoc.bundle.deflated import deflate_files
from adrenoc.bundle.manifest import FileEntry, LibraryInfo, Manifest
from adrenoc.bundle.params import write_params
from adrenoc.bundle.tar import MANIFEST, write_tar

if TYPE_CHECKING:
    from adrenoc.compile.compiler import Compiled

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
    """Put the bundle folder `source`, which lies beside `output`, in its place.

    Raises:
        OutputError: `output` cannot be written, or something else is in its place.
    """
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

    `programs` maps file names to contents; those that the bundle has under other names stay.

    Raises:
        OutputError: the bundle cannot be written.
    """
    put_files(bundle, {f"{PROGRAMS}/{name}": content for name, content in programs.items()})


def put_files(bundle: Bundle, contents: Mapping[str, bytes]) -> None:
    """Put files into a bundle, folder or tar, by their paths in it, all or nothing.

    Raises:
        OutputError: the bundle cannot be written, or the disk is full.
    """
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
        BundleError: a manifest is damaged.
        OutputError: `output` cannot be written.
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
