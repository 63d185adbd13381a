"""Built runtimes in a wheel, adrenoc-runtime: for phones and boards, where no NDK is at hand.

Its package holds a folder for each ABI, as `adrenoc runtime build -o DIR` writes it, and a
file that tells their sources.  No code of it is imported.  `scripts/ci/release` makes it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from adrenoc.base.files.owned_folder import what_is_wrong
from adrenoc.base.reporter import Reporter
from adrenoc.native.android.java_classes import native_half_digest
from adrenoc.native.android.runtime_build import (
    RUNTIME_FOLDER,
    Runtime,
    build_runtime,
    open_runtime,
    runtime_stamp,
)

PACKAGE = "adrenoc_runtime"
SOURCES_FILE = "sources.txt"


def find_runtime(abi: str, reporter: Reporter) -> Runtime:
    """Return the runtime for `abi` of the wheel where it is of these sources, else a built one.

    Raises:
        DependencyError, ToolError, LinkError, OutputError: as `build_runtime` does.
    """
    package = importlib.util.find_spec(PACKAGE)
    if package is not None and package.submodule_search_locations:
        folder = Path(package.submodule_search_locations[0])
        if (folder / abi).is_dir():
            wrong = _other_sources(folder) or what_is_wrong(folder / abi, RUNTIME_FOLDER)
            if not wrong:
                return open_runtime(folder / abi)
            reporter.warn(f"the runtime in {folder / abi} is not taken: {wrong}; one is built")
    return build_runtime(abi=abi, reporter=reporter)


def sources() -> str:
    """Return what tells the sources of a wheel: of the runtime and of its Java half."""
    return f"{runtime_stamp()} java {native_half_digest()[:12]}"


def _other_sources(folder: Path) -> str:
    """Return how a wheel's sources differ from those of this adrenoc; empty where equal."""
    try:
        told = (folder / SOURCES_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        told = "sources that it does not tell"
    return "" if told == sources() else f"it is of {told}, this adrenoc of {sources()}"
