"""What packages have in common: what was written, and which runtime is for which ABI of Android."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import adrenoc
from adrenoc.base.errors import LinkError
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.runtime_build import Runtime

# Machine of an ELF file -> ABI of Android.
ABIS = {"aarch64": "arm64-v8a", "arm": "armeabi-v7a", "x86_64": "x86_64"}


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A package that was written: where, and the paths in it with their bytes."""

    path: Path
    files: tuple[tuple[str, int], ...]


def abi_of(runtime: Runtime) -> str:
    """Return the ABI of Android that a runtime is for.

    Raises:
        LinkError: it was not built for Android.
    """
    facts = read_elf(runtime.library)
    glibc = sorted(name for name in facts.needed if name.endswith((".so.6", ".so.2", ".so.1")))
    if facts.machine not in ABIS or glibc:
        raise LinkError(
            f"the runtime at {runtime.folder} is not for Android (it is for {facts.machine}"
            + (f" and needs {', '.join(glibc)})" if glibc else ")"),
            hint="ANDROID_NDK_HOME=PATH adrenoc runtime build --abi arm64-v8a -o DIR, then "
            "--runtime DIR",
        )
    return ABIS[facts.machine]


def copy_sample(kind: str, output: Path) -> None:
    """Copy the sample `cpp` or `android` to the folder `output`."""
    sample = Path(adrenoc.__file__).resolve().parent / "native" / "samples" / kind
    shutil.copytree(sample, output, dirs_exist_ok=True)
