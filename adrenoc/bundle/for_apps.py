"""Bundles as apps carry them: without the sources of kernels, which only people read.

The kernels' texts that a driver builds lie in `model.so`; `kernels/*.cl` are the same texts to look
at, a fifth of a bundle for many GPUs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from adrenoc.bundle.bundle import KERNELS, file_entry, read_manifest
from adrenoc.bundle.tar import MANIFEST, write_tar


def write_app_tar(root: Path, output: Path, *, name: str) -> None:
    """Write the bundle folder `root` as a tar file for an app.

    Raises:
        BundleError: a manifest is damaged.
        OutputError: `output` cannot be written.
        OSError: there is no room for it beside `output`.
    """
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".app-") as scratch:
        copy = Path(scratch) / "bundle"
        shutil.copytree(root, copy, copy_function=_link_or_copy)
        for folder in sorted(copy.rglob(KERNELS)):
            shutil.rmtree(folder)
        # The innermost first: each is a file of those around it.
        for path in sorted(copy.rglob(MANIFEST), key=lambda path: -len(path.parts)):
            _list_what_is_left(path)
        write_tar(copy, output, name=name)


def _list_what_is_left(path: Path) -> None:
    """Write a manifest anew, of the files that are there; what lies elsewhere stays listed."""
    root = path.parent
    manifest = read_manifest(root, shown=root)
    files = [
        file_entry(root, root / file.path) if (root / file.path).is_file() else file
        for file in manifest.files
        if KERNELS not in Path(file.path).parts
    ]
    text = replace(manifest, files=tuple(files)).to_json()
    path.unlink()  # it may be the bundle's own file
    path.write_text(text, encoding="utf-8")


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
