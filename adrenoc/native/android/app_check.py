"""Look over an APK or AAR: will the app find OpenCL, load the runtime and map the bundle?"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.errors import BundleError, LinkError
from adrenoc.base.files.read import open_plain
from adrenoc.base.files.temporary import TemporaryFolder
from adrenoc.native.android.app_manifest import Element, read_manifest
from adrenoc.native.android.elf import ElfFacts, read_elf
from adrenoc.native.android.java.sources import JNI_LIBRARY
from adrenoc.native.android.link import ANDROID_PAGE_BYTES
from adrenoc.native.android.ndk import MIN_API
from adrenoc.native.android.package.packed import ABIS
from adrenoc.native.android.runtime_build import ANDROID_NEEDED, LIBRARY, NAME_LIBRARY

_MANIFEST = "AndroidManifest.xml"
_LOCAL_HEADER_BYTES = 30
_OUR_LIBRARIES = (LIBRARY, NAME_LIBRARY)
_MOST_MANIFEST_BYTES = 16 << 20
_MOST_LIBRARY_BYTES = 256 << 20
# What zipfile makes of damage, of entries that are encrypted (RuntimeError), and of compression
# that it does not know (NotImplementedError is one).
_NO_ARCHIVE = (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, struct.error)


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
        with open_plain(path) as stream, zipfile.ZipFile(stream) as archive:
            return tuple(_troubles(path, archive))
    except _NO_ARCHIVE as error:
        unread = isinstance(error, OSError) and error.strerror
        said = f"cannot be read: {unread}" if unread else f"is no APK or AAR: {error}"
        hint = "adrenoc package BUNDLE --as aar -o OUT.aar"
        raise BundleError(f"{path} {said}", hint=hint) from error


def _troubles(path: Path, archive: zipfile.ZipFile) -> Iterator[Trouble]:
    names = set(archive.namelist())
    is_apk = "classes.jar" not in names
    if not is_apk and not any(name.startswith(("jni/", "prefab/")) for name in names):
        # A model alone: libraries and manifest lines come with the archive of the runtime.
        yield from _bundle_troubles(archive)
        return
    try:
        has = _MANIFEST in names
        manifest = _Manifest(
            _content(archive, _MANIFEST, _MOST_MANIFEST_BYTES) if has else b"<none/>"
        )
    except ValueError as error:
        yield Trouble(
            where=_MANIFEST,
            wrong=f"cannot be read ({error})",
            then="Android does not install the app",
            fix="build the app again",
        )
        return
    if "libOpenCL.so" not in manifest.native_libraries:
        yield Trouble(
            where=_MANIFEST,
            wrong='has no <uses-native-library android:name="libOpenCL.so">',
            then="Android 12 and newer hide the GPU's OpenCL from the app: no device is found",
            fix='add <uses-native-library android:name="libOpenCL.so" android:required="false"/> '
            "to <application>",
        )
    folder = "lib" if is_apk else "jni"
    # Beside libraries there may be entries of folders, and notes of build tools.
    libraries = (re.fullmatch(rf"{folder}/([^/]+)/[^/]+\.so", name) for name in names)
    abis = sorted({found[1] for found in libraries if found})
    ours = [abi for abi in abis if f"{folder}/{abi}/{LIBRARY}" in names]
    if not ours:
        yield Trouble(
            where=f"{folder}/",
            wrong=f"has no {LIBRARY}" + (f" (it has {', '.join(abis)})" if abis else ""),
            then="System.loadLibrary fails",
            fix="adrenoc package BUNDLE --as aar -o OUT.aar, and name it as a dependency",
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
        # An app of C++ has no use for the native half of the classes.
        for_java = (JNI_LIBRARY,) if f"{folder}/{abi}/{JNI_LIBRARY}" in names else ()
        for library in (*_OUR_LIBRARIES, *for_java):
            name = f"{folder}/{abi}/{library}"
            yield from _library_troubles(archive, name, abi, manifest)
            if is_apk and name in names:
                yield from _packing_troubles(path, archive.getinfo(name), manifest)
    yield from _bundle_troubles(archive)


def _content(archive: zipfile.ZipFile, name: str, most_bytes: int) -> bytes:
    """An entry that is not longer than such files are: a few bytes can unpack to gigabytes."""
    size = archive.getinfo(name).file_size
    if size > most_bytes:
        raise zipfile.BadZipFile(f"{name} unpacks to {size} bytes, expected up to {most_bytes}")
    return archive.read(name)


class _Manifest:
    """What the manifest says that matters for libraries."""

    def __init__(self, content: bytes) -> None:
        elements = read_manifest(content)
        named = [e.attributes.get("name", "") for e in elements if e.name == "uses-native-library"]
        self.native_libraries = frozenset(named)
        self.extracts = _attribute(elements, "application", "extractNativeLibs")
        oldest = _attribute(elements, "uses-sdk", "minSdkVersion")
        # The level of the oldest Android that installs the app; 0 where it does not say.
        self.api = int(oldest) if oldest.isdigit() else 0


def _attribute(elements: tuple[Element, ...], name: str, attribute: str) -> str:
    return next((e.attributes.get(attribute, "") for e in elements if e.name == name), "")


def _library_troubles(
    archive: zipfile.ZipFile, name: str, abi: str, manifest: _Manifest
) -> Iterator[Trouble]:
    if name not in archive.namelist():
        yield Trouble(
            where=name,
            wrong="is missing",
            then=f"a bundle asks the loader for {NAME_LIBRARY} and is not loaded",
            fix="pack both libraries of the runtime, side by side",
        )
        return
    content = _content(archive, name, _MOST_LIBRARY_BYTES)
    with TemporaryFolder("app") as folder:
        copy = folder / "library.so"
        copy.write_bytes(content)
        try:
            facts = read_elf(copy)
        except LinkError as error:
            yield Trouble(where=name, wrong=error.message, then="it is not loaded", fix=error.hint)
            return
    for wrong, then, fix in _wrong_facts(facts, abi):
        yield Trouble(where=name, wrong=wrong, then=then, fix=fix)
    if 0 < manifest.api < facts.android_api:
        yield Trouble(
            where=name,
            wrong=f"is for the API level {facts.android_api}, and the app for {manifest.api}",
            then="older phones install the app and do not load the library",
            fix=f"minSdk {facts.android_api} in build.gradle, or adrenoc runtime build "
            f"--api {max(MIN_API, manifest.api)}",
        )


def _packing_troubles(path: Path, entry: zipfile.ZipInfo, manifest: _Manifest) -> Iterator[Trouble]:
    """Whether Android can take a library out of an APK, or map it from there."""
    name = entry.filename
    if entry.compress_type != zipfile.ZIP_STORED:
        if manifest.extracts == "false":
            yield Trouble(
                where=name,
                wrong='is compressed, and the manifest says android:extractNativeLibs="false"',
                then="Android does not install the app (INSTALL_FAILED_INVALID_APK)",
                fix="packaging { jniLibs { useLegacyPackaging = true } } in build.gradle, "
                "or store it: zip -0, then zipalign -P 16",
            )
        return
    start = _data_offset(path, entry)
    # What is taken out at installation may lie anywhere.
    if start % ANDROID_PAGE_BYTES and manifest.extracts != "true":
        yield Trouble(
            where=name,
            wrong=f"lies at byte {start} of the APK, not at a multiple of {ANDROID_PAGE_BYTES}",
            then="devices with 16 KiB pages do not load it",
            fix="zipalign -P 16 -f 4 IN.apk OUT.apk, or Android Gradle plugin 8.5.1 and newer",
        )


def _wrong_facts(facts: ElfFacts, abi: str) -> Iterator[tuple[str, str, str]]:
    rebuild = f"ANDROID_NDK_HOME=PATH adrenoc runtime build --abi {abi}"
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
                then="it cannot be mapped from the APK: AAsset_openFileDescriptor fails, and "
                "Model.fromAsset unpacks it at each load",
                fix='androidResources { noCompress "tar" } in build.gradle',
            )


def _data_offset(path: Path, entry: zipfile.ZipInfo) -> int:
    with path.open("rb") as stream:
        stream.seek(entry.header_offset)
        header = stream.read(_LOCAL_HEADER_BYTES)
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
    return int(entry.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes)
