"""Look over an APK or AAR: will the app find OpenCL, load the runtime and map the bundle?"""

from __future__ import annotations

import struct
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adrenoc.elf import ElfFacts, read_elf
from adrenoc.errors import BundleError, LinkError
from adrenoc.link import ANDROID_PAGE_BYTES
from adrenoc.package import ABIS
from adrenoc.runtime_build import ANDROID_NEEDED, LIBRARY, NAME_LIBRARY

_MANIFEST = "AndroidManifest.xml"
_LOCAL_HEADER_BYTES = 30
_OUR_LIBRARIES = (LIBRARY, NAME_LIBRARY)


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """One thing that is wrong with an app, where, what comes of it, and what mends it."""

    where: str
    wrong: str
    then: str
    fix: str


def check_app(path: Path) -> tuple[Trouble, ...]:
    """Everything that is wrong with the APK or AAR at `path`; nothing when it is fine.

    Raises:
        BundleError: the file is missing, or no archive.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(_troubles(path, archive))
    except (OSError, zipfile.BadZipFile) as error:
        raise BundleError(
            f"{path} is no APK or AAR: {error}", hint="adrenoc package BUNDLE --aar -o OUT.aar"
        ) from error


def _troubles(path: Path, archive: zipfile.ZipFile) -> Iterator[Trouble]:
    names = set(archive.namelist())
    is_apk = "classes.jar" not in names
    manifest = archive.read(_MANIFEST) if _MANIFEST in names else b""
    if not (_holds(manifest, "uses-native-library") and _holds(manifest, "libOpenCL.so")):
        yield Trouble(
            where=_MANIFEST,
            wrong='has no <uses-native-library android:name="libOpenCL.so">',
            then="Android 12 and newer hide the GPU's OpenCL from the app: no device is found",
            fix='add <uses-native-library android:name="libOpenCL.so" android:required="false"/> '
            "to <application>",
        )
    folder = "lib" if is_apk else "jni"
    abis = sorted({name.split("/")[1] for name in names if name.startswith(f"{folder}/")})
    ours = [abi for abi in abis if f"{folder}/{abi}/{LIBRARY}" in names]
    if not ours:
        yield Trouble(
            where=f"{folder}/",
            wrong=f"has no {LIBRARY}" + (f" (it has {', '.join(abis)})" if abis else ""),
            then="System.loadLibrary fails",
            fix="adrenoc package BUNDLE --aar -o OUT.aar, and name it as a dependency",
        )
    for abi in sorted(set(abis) - set(ours)) if ours else ():
        yield Trouble(
            where=f"{folder}/{abi}",
            wrong=f"has other libraries, but no {LIBRARY}",
            then=f"phones that take {abi} install the app without the runtime",
            fix=f"abiFilters {', '.join(repr(a) for a in ours)} in build.gradle, "
            f"or adrenoc runtime build --abi {abi}",
        )
    for abi in ours:
        for library in _OUR_LIBRARIES:
            yield from _library_troubles(path, archive, f"{folder}/{abi}/{library}", abi, is_apk)
    yield from _bundle_troubles(archive)


def _library_troubles(
    path: Path, archive: zipfile.ZipFile, name: str, abi: str, is_apk: bool
) -> Iterator[Trouble]:
    if name not in archive.namelist():
        yield Trouble(
            where=name,
            wrong="is missing",
            then=f"a bundle asks the loader for {NAME_LIBRARY} and is not loaded",
            fix="pack both libraries of the runtime, side by side",
        )
        return
    with tempfile.NamedTemporaryFile(suffix=".so") as copy:
        copy.write(archive.read(name))
        copy.flush()
        try:
            facts = read_elf(Path(copy.name))
        except LinkError as error:
            yield Trouble(where=name, wrong=error.message, then="it is not loaded", fix=error.hint)
            return
    for wrong, then, fix in _wrong_facts(facts, abi):
        yield Trouble(where=name, wrong=wrong, then=then, fix=fix)
    entry = archive.getinfo(name)
    if is_apk and entry.compress_type == zipfile.ZIP_STORED:
        start = _data_offset(path, entry)
        if start % ANDROID_PAGE_BYTES:
            yield Trouble(
                where=name,
                wrong=f"lies at byte {start} of the APK, not at a multiple of {ANDROID_PAGE_BYTES}",
                then="devices with 16 KiB pages do not load it",
                fix="zipalign -P 16 -f 4 IN.apk OUT.apk, or Android Gradle plugin 8.5.1 and newer",
            )


def _wrong_facts(facts: ElfFacts, abi: str) -> Iterator[tuple[str, str, str]]:
    rebuild = f"adrenoc runtime build --abi {abi} --ndk PATH"
    if ABIS.get(facts.machine) != abi:
        yield f"is for {facts.machine}", "the loader refuses it", rebuild
    if facts.page_bytes < ANDROID_PAGE_BYTES:
        said = f"has segments aligned to {facts.page_bytes} bytes, expected {ANDROID_PAGE_BYTES}"
        yield said, "devices with 16 KiB pages do not load it", rebuild
    foreign = sorted(set(facts.needed) - ANDROID_NEEDED)
    if foreign:
        yield f"needs {', '.join(foreign)}", "Android has no such library", rebuild
    if facts.text_relocations:
        yield "has text relocations", "Android refuses it", rebuild
    if not facts.is_stripped:
        said = "is not stripped"
        yield said, "the app is larger than it has to be", "llvm-strip --strip-unneeded, or AGP's"


def _bundle_troubles(archive: zipfile.ZipFile) -> Iterator[Trouble]:
    for entry in archive.infolist():
        if not entry.filename.endswith(".adrenoc.tar"):
            continue
        if entry.compress_type != zipfile.ZIP_STORED:
            yield Trouble(
                where=entry.filename,
                wrong="is compressed",
                then="it cannot be mapped from the APK: AAsset_openFileDescriptor fails",
                fix='androidResources { noCompress "tar" } in build.gradle',
            )


def _holds(manifest: bytes, text: str) -> bool:
    """Whether a manifest names something: as XML, or as the binary form of an APK."""
    return text.encode() in manifest or text.encode("utf-16-le") in manifest


def _data_offset(path: Path, entry: zipfile.ZipInfo) -> int:
    with path.open("rb") as stream:
        stream.seek(entry.header_offset)
        header = stream.read(_LOCAL_HEADER_BYTES)
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
    return int(entry.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes)
