"""A small Android app around bundles: Android Studio opens it, and it shows outputs and times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adrenoc.base.files.outputs import write_folder_atomically
from adrenoc.base.files.owned_folder import make_listed_kind, write_list
from adrenoc.bundle.bundle import Bundle
from adrenoc.native.android.package.aar import find_runtimes
from adrenoc.native.android.package.packed import copy_sample
from adrenoc.native.android.package.repository import RUNTIME, write_repository
from adrenoc.native.android.runtime_build import Runtime

PACKAGES = "packages"
SAMPLE_FOLDER = make_listed_kind("sample")
_BUILD = "app/build.gradle.kts"


def write_sample(bundles: Sequence[Bundle], runtimes: Sequence[Runtime], output: Path) -> None:
    """Write the app with `bundles` to the folder `output`, all or nothing.

    Raises:
        BundleError: a bundle is not for Android, or no runtime is for its machine.
        LinkError: a runtime was not built for Android.
        OutputError: `output` holds more than this wrote, or cannot be written.
    """
    found = find_runtimes(bundles, runtimes)
    with write_folder_atomically(output, SAMPLE_FOLDER) as app:
        copy_sample("android", app)
        models = write_repository(bundles, runtimes, app / PACKAGES).models
        dependencies = "\n".join(
            f"    implementation({_quote(str(one))})" for one in (RUNTIME, *models)
        )
        values = {
            "@MIN_SDK@": str(found.api),
            "@ABIS@": ", ".join(_quote(abi) for abi in sorted(found.by_abi)),
            "@DEPENDENCIES@": dependencies,
        }
        text = (app / _BUILD).read_text(encoding="utf-8")
        for mark, value in values.items():
            text = text.replace(mark, value)
        (app / _BUILD).write_text(text, encoding="utf-8")
        write_list(app, SAMPLE_FOLDER)


def _quote(text: str) -> str:
    """Return a string of Kotlin that means the text itself."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'
