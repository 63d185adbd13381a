"""Built runtimes in a wheel, adrenoc-runtime: for phones and boards, where no NDK is at hand.

Its package holds a folder for each ABI, as `adrenoc runtime build -o DIR` writes it, and a
file that tells their sources.  No code of it is imported.  `scripts/ci/release` makes it."""

import importlib.util
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from adrenoc.base.files.outputs import what_is_wrong
from adrenoc.base.reporter import Reporter
from adrenoc.native.android.java_classes import native_half_digest
from adrenoc.native.android.runtime_build import (
    RUNTIME_FOLDER,
    Runtime,
    build_runtime,
    open_runtime,
    runtime_stamp,
)
from adrenoc.native.android.runtime_toolchain import ANDROID_ABIS

PACKAGE = "adrenoc_runtime"
SOURCES_FILE = "sources.txt"


def find_runtime(abi: str, reporter: Reporter) -> Runtime:
    """Return the runtime for `abi` of the wheel where it is of these sources, else a built one.
    Raises DependencyError, ToolError, LinkError or OutputError as `build_runtime` does."""
    folder = _find_package()
    if folder is not None and (folder / abi).is_dir():
        wrong = _other_sources(folder) or what_is_wrong(folder / abi, RUNTIME_FOLDER)
        if not wrong:
            return open_runtime(folder / abi)
        reporter.warn(f"the runtime in {folder / abi} is not taken: {wrong}; one is built")
    return build_runtime(abi=abi, reporter=reporter)


def look_at_wheel() -> tuple[list[str], str]:
    """Return the ABIs of Android that the wheel has runtimes for, and why they are not taken."""
    folder = _find_package()
    held = [] if folder is None else [abi for abi in ANDROID_ABIS if (folder / abi).is_dir()]
    return held, _other_sources(folder) if folder is not None and held else ""


def _find_package() -> Path | None:
    package = importlib.util.find_spec(PACKAGE)
    places = None if package is None else package.submodule_search_locations
    return Path(places[0]) if places else None


def sources() -> str:
    """Return what tells the sources of a wheel: of the runtime and of its Java half."""
    return f"{runtime_stamp()} java {native_half_digest()[:12]}"


def _other_sources(folder: Path) -> str:
    """Return how a wheel's sources differ from those of this adrenoc; empty where equal."""
    try:
        told = (folder / SOURCES_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        told = "sources that it does not tell"
    try:
        ours = sources()
    except PackageNotFoundError as error:
        return f"{error.name} is not installed"
    return "" if told == ours else f"it is of {told}, this adrenoc of {ours}"
