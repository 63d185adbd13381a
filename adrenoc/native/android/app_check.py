"""Look over an APK or AAR: will the app find OpenCL, load the runtime and map the bundle?
AndroidManifest.xml is read as text, or in the binary form that it has in an APK."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from adrenoc.base.errors import BundleError, LinkError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.files.read import open_plain
from adrenoc.native.android.elf import ElfFacts, read_elf
from adrenoc.native.android.link import ANDROID_PAGE_BYTES
from adrenoc.native.android.package.aar import ABIS
from adrenoc.native.android.runtime_build import ANDROID_NEEDED, LIBRARY, PROVIDER
from adrenoc.native.android.runtime_toolchain import JNI_LIBRARY, MIN_API

_MANIFEST = "AndroidManifest.xml"
_LOCAL_HEADER_BYTES = 30
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
    """Everything that is wrong with the APK or AAR at `path`; nothing when it is fine. Raises
    BundleError where the file is missing, or no archive."""
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
    libraries = sorted(name for name in names if re.fullmatch(r"(jni|lib)/[^/]+/[^/]+\.so", name))
    if not is_apk and libraries and all(name.endswith(f"/{PROVIDER}") for name in libraries):
        # What onnxruntime registers alone: it, too, needs the archive of the runtime.
        for name in libraries:
            yield from _library_troubles(archive, name, name.split("/")[1], _Manifest(b"<none/>"))
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
    abis = sorted({name.split("/")[1] for name in libraries if name.startswith(f"{folder}/")})
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
        # An app of C++ has no use for the native half of the classes, few have onnxruntime.
        for name in (f"{folder}/{abi}/{one}" for one in (LIBRARY, JNI_LIBRARY, PROVIDER)):
            if name not in names:
                continue
            yield from _library_troubles(archive, name, abi, manifest)
            if is_apk:
                yield from _packing_troubles(path, archive.getinfo(name), manifest)
    yield from _bundle_troubles(archive)


def _content(archive: zipfile.ZipFile, name: str, most_bytes: int) -> bytes:
    """Return an entry that is no longer than such files are: few bytes unpack to gigabytes."""
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
    """Yield whether Android can take a library out of an APK, or map it from there."""
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
    with path.open("rb") as stream:
        stream.seek(entry.header_offset)
        header = stream.read(_LOCAL_HEADER_BYTES)
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
    start = int(entry.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes)
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


# Chunks of the binary form, and types of values in it.  Source: ResourceTypes.h of Android's
# open sources.
_STRINGS, _XML, _ELEMENT, _IDS = 0x0001, 0x0003, 0x0102, 0x0180
_UTF8 = 1 << 8
_IS_STRING, _IS_BOOLEAN = 0x03, 0x12
# Names that a shrinker may have emptied, by the number that stays (android.R.attr).
_NAMES = {
    0x01010003: "name",
    0x0101020C: "minSdkVersion",
    0x0101028E: "required",
    0x010104EA: "extractNativeLibs",
}


@dataclass(frozen=True, kw_only=True)
class Element:
    """One element: its name, and its attributes without namespaces, values as in the text form."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)


def read_manifest(content: bytes) -> tuple[Element, ...]:
    """Return all elements of a manifest, in the order in which they begin. Raises ValueError where
    it is neither XML nor its binary form, or it is damaged."""
    if content[:2] != struct.pack("<H", _XML):
        try:
            tree = ElementTree.fromstring(content)
        except ElementTree.ParseError as error:
            raise ValueError(f"no XML: {error}") from error
        return tuple(
            Element(name=node.tag, attributes={_local(k): v for k, v in node.attrib.items()})
            for node in tree.iter()
        )
    try:
        return _binary(content)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"damaged: {error}") from error


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _binary(content: bytes) -> tuple[Element, ...]:
    names: list[str] = []
    elements = []
    _, place, end = struct.unpack_from("<HHI", content)
    if not 8 <= place <= end <= len(content):
        raise ValueError(f"damaged: it promises {end} bytes and has {len(content)}")
    while place < end:
        kind, header_bytes, size = struct.unpack_from("<HHI", content, place)
        chunk = content[place : place + size]
        if size < header_bytes or header_bytes < 8 or len(chunk) < size:
            raise ValueError(f"damaged: a chunk of {size} bytes at {place}")
        if kind == _STRINGS:
            names = _strings(chunk)
        elif kind == _IDS:
            for index in range((size - header_bytes) // 4):
                (number,) = struct.unpack_from("<I", chunk, header_bytes + 4 * index)
                names[index] = _NAMES.get(number, names[index])
        elif kind == _ELEMENT:
            elements.append(_element(chunk, header_bytes, names))
        place += size
    return tuple(elements)


def _strings(chunk: bytes) -> list[str]:
    _, header_bytes, _, count, _, flags, start, _ = struct.unpack_from("<HHIIIIII", chunk)
    found = []
    for index in range(count):
        (offset,) = struct.unpack_from("<I", chunk, header_bytes + 4 * index)
        place = start + offset
        if flags & _UTF8:
            _, place = _length(chunk, place, "B")  # in characters
            length, place = _length(chunk, place, "B")
            found.append(chunk[place : place + length].decode("utf-8"))
        else:
            length, place = _length(chunk, place, "H")
            found.append(chunk[place : place + 2 * length].decode("utf-16-le"))
    return found


def _length(chunk: bytes, place: int, unit: str) -> tuple[int, int]:
    """Return a length of one unit, or two by its highest bit, and where what it counts begins."""
    width = struct.calcsize(unit)
    high = 1 << (8 * width - 1)
    (length,) = struct.unpack_from(f"<{unit}", chunk, place)
    if not length & high:
        return length, place + width
    (more,) = struct.unpack_from(f"<{unit}", chunk, place + width)
    return (length & ~high) << (8 * width) | more, place + 2 * width


def _element(chunk: bytes, header_bytes: int, names: list[str]) -> Element:
    _, name, start, width, count = struct.unpack_from("<iiHHH", chunk, header_bytes)
    attributes = {}
    for index in range(count):
        place = header_bytes + start + width * index
        _, key, raw, _, _, kind, data = struct.unpack_from("<iiiHBBI", chunk, place)
        if kind == _IS_STRING:
            value = names[data]
        elif kind == _IS_BOOLEAN:
            value = "true" if data else "false"
        else:
            value = names[raw] if raw >= 0 else str(data)
        attributes[names[key]] = value
    return Element(name=names[name], attributes=attributes)
