"""Find an Android NDK and read what it is.

The order: what was asked for; `ANDROID_NDK_HOME`, `ANDROID_NDK_ROOT`, `ANDROID_NDK`; the newest in
the SDKs that `ANDROID_HOME` and `ANDROID_SDK_ROOT` name and in the folders where SDKs usually are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.errors import DependencyError
from adrenoc.base.files import read
from adrenoc.base.host.extras import pip_install
from adrenoc.base.text.json_text import read_json

# r23 is the first NDK without GNU binutils, whose place and names differ.
MIN_MAJOR = 23
# Android 7: the oldest that has what the runtime calls.
MIN_API = 24
_REVISION = re.compile(r"^Pkg\.Revision\s*=\s*([0-9]{1,9}(?:\.[0-9]{1,9})*)", re.MULTILINE)
_MOST_BYTES = 1 << 20
"""Of a text that describes an NDK."""
# The folder of an NDK's tools is named after the system that they run on.
_HOST = "linux-"
_PREBUILT = Path("toolchains") / "llvm" / "prebuilt"
_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "windows": "Windows"}
_USUAL_SDKS = ("~/Android/Sdk", "~/Library/Android/sdk", "/usr/lib/android-sdk", "/opt/android-sdk")


@dataclass(frozen=True, kw_only=True)
class Ndk:
    """An NDK that is new enough; `origin` tells what led to it."""

    folder: Path
    version: tuple[int, ...]
    origin: str

    @property
    def revision(self) -> str:
        """The NDK's number as its makers write it, such as 27.0.12077973."""
        return ".".join(str(part) for part in self.version)

    @property
    def toolchain_file(self) -> Path:
        """What CMake reads to compile for Android."""
        return self.folder / "build" / "cmake" / "android.toolchain.cmake"

    @property
    def tools(self) -> Path:
        """Compilers and linkers for this machine."""
        return min((self.folder / _PREBUILT).glob(f"{_HOST}*")) / "bin"

    @property
    def apis(self) -> tuple[int, int]:
        """The oldest and the newest API level that it compiles for; 0 where it does not tell."""
        try:
            told = read_json(read.read_plain(self.folder / "meta" / "platforms.json", _MOST_BYTES))
            return int(told["min"]), int(told["max"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            return 0, 0


def find_ndk(asked: Path | None = None) -> Ndk | None:
    """The NDK to use, or None where there is none.

    Raises:
        DependencyError: what was asked for, or what a variable names, is no NDK, too old, or for
            another system.
    """
    if asked is not None:
        return open_ndk(asked, origin="--set ndk")
    for variable, folder in read.android_ndk_folders()[:1]:
        return open_ndk(folder, origin=variable)
    found, _ = _ndks_in_sdks()
    return max(found, key=lambda ndk: ndk.version) if found else None


def why_no_ndk() -> str:
    """Why `find_ndk` gives None: nothing is there, or what is there does not serve."""
    _, refused = _ndks_in_sdks()
    return "; ".join(refused) or "none in the usual places, and no variable names one"


def _ndks_in_sdks() -> tuple[list[Ndk], list[str]]:
    """Those that serve, and what is wrong with the others."""
    found: list[Ndk] = []
    refused: list[str] = []
    for variable, sdk in (*read.android_sdk_folders(), *_usual_sdks()):
        try:
            kits = sorted(sdk.glob("ndk/*/source.properties"))
        except OSError:  # a name too long, a folder of others
            continue
        for properties in kits:
            try:
                found.append(open_ndk(properties.parent, origin=variable))
            except DependencyError as error:
                refused.append(error.message)
    return found, refused


def open_ndk(folder: Path, *, origin: str) -> Ndk:
    """The NDK in `folder`.

    Raises:
        DependencyError: it holds no NDK, one that is too old, or one for another system.
    """
    version = ndk_version(folder)
    if version[0] < MIN_MAJOR:
        raise DependencyError(
            f"the NDK at {folder} ({origin}) is r{version[0]}; adrenoc needs r{MIN_MAJOR} or newer",
            hint="install a newer NDK (https://developer.android.com/ndk/downloads), or "
            f"{pip_install('link')}",
        )
    hosts = sorted(path.name for path in (folder / _PREBUILT).glob("*"))
    if not any(host.startswith(_HOST) for host in hosts):
        systems = " and ".join(_SYSTEMS.get(host.partition("-")[0], host) for host in hosts)
        runs = f"its tools are for {systems}" if hosts else f"it has no {_PREBUILT}/{_HOST}*"
        raise DependencyError(
            f"the NDK at {folder} ({origin}) does not run on Linux: {runs}",
            hint="install the NDK for Linux (https://developer.android.com/ndk/downloads)",
        )
    return Ndk(folder=folder, version=version, origin=origin)


def ndk_version(folder: Path) -> tuple[int, ...]:
    """The revision that `source.properties` of an NDK gives, as numbers.

    Raises:
        DependencyError: the folder holds no NDK.
    """
    try:
        text = read.read_plain(folder / "source.properties", _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        text = ""
    match = _REVISION.search(text)
    if match is None:
        raise DependencyError(
            f"{folder} is not an Android NDK: no `source.properties` with a Pkg.Revision in it",
            hint="give the folder that holds source.properties: ANDROID_NDK_HOME=PATH",
        )
    return tuple(int(part) for part in match.group(1).split("."))


def _usual_sdks() -> tuple[tuple[str, Path], ...]:
    return tuple((place, Path(place).expanduser()) for place in _USUAL_SDKS)
