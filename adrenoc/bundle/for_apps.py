"""Bundles as apps carry them: deflated, and without the sources of kernels.

The kernels' texts that a driver builds lie in `model.so`; `kernels/*.cl` are the same texts for
people to look at, a fifth of a bundle for many GPUs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from adrenoc.bundle.bundle import KERNELS
from adrenoc.bundle.deflated import deflate_files
from adrenoc.bundle.tar import write_tar


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
        deflate_files(copy)
        write_tar(copy, output, name=name)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
