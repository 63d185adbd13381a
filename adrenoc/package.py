"""Bundles in the form that app builds take: an Android archive (AAR) or a CMake package."""

from __future__ import annotations

import json
import shlex
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import adrenoc
from adrenoc.bundle import Bundle
from adrenoc.bundle_tar import SUFFIX, write_tar
from adrenoc.elf import read_elf
from adrenoc.errors import BundleError, LinkError
from adrenoc.ndk import MIN_API
from adrenoc.outputs import (
    scratch_folder_for,
    write_atomically,
    write_folder_atomically,
)
from adrenoc.owned_folder import listed_kind, write_list
from adrenoc.runtime_build import HEADERS, LIBRARY, NAME_LIBRARY, Runtime

# Machine of an ELF file -> ABI of Android.
ABIS = {"aarch64": "arm64-v8a", "arm": "armeabi-v7a", "x86_64": "x86_64"}
CONFIG = "adrenocConfig.cmake"
_LIBRARIES = (LIBRARY, NAME_LIBRARY)
_CMAKE_FOLDER = listed_kind("CMake package")
_SAMPLE_FOLDER = listed_kind("sample")
# Times of archives say nothing, and equal input shall give equal bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)

_MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<manifest xmlns:android="http://schemas.android.com/apk/res/android"
    package="org.adrenoc.{name}">
    <uses-sdk android:minSdkVersion="{api}" />
    <application>
        <!-- Without this line Android 12 and newer hide the GPU's OpenCL from an app. -->
        <uses-native-library android:name="libOpenCL.so" android:required="false" />
        <uses-native-library android:name="libOpenCL-pixel.so" android:required="false" />
    </application>
</manifest>
"""
_PROGUARD = "# Methods that native code implements keep their names.\n" + (
    "-keepclasseswithmembernames class * {\n    native <methods>;\n}\n"
)
_AAR_METADATA = (
    "aarFormatVersion=1.0\naarMetadataVersion=1.0\nminCompileSdk=1\nminCompileSdkExtension=0\n"
    "minAndroidGradlePluginVersion=4.1.0\n"
)
_CONFIG = """# find_package(adrenoc): the target adrenoc::runtime, and the bundle in adrenoc_BUNDLE.
get_filename_component(_adrenoc_root "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
set(adrenoc_BUNDLE "${{_adrenoc_root}}/share/adrenoc/{bundle}")
if(NOT TARGET adrenoc::runtime)
  add_library(adrenoc::runtime SHARED IMPORTED)
  set_target_properties(adrenoc::runtime PROPERTIES
    IMPORTED_LOCATION "${{_adrenoc_root}}/lib/{library}"
    IMPORTED_SONAME "{library}"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_INCLUDE_DIRECTORIES "${{_adrenoc_root}}/include")
endif()
unset(_adrenoc_root)
"""
_CONFIG_VERSION = """set(PACKAGE_VERSION "{version}")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
"""


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A package that was written: where, and the paths in it with their bytes."""

    path: Path
    files: tuple[tuple[str, int], ...]


def write_aar(bundle: Bundle, runtimes: Sequence[Runtime], output: Path) -> Packed:
    """Write an archive that an Android build takes as a dependency.

    It holds the bundle as an asset, the libraries for each of `runtimes`' ABIs (also as a prefab
    package, for C and C++), and the manifest lines for OpenCL.  It brings no Java classes.

    Raises:
        BundleError: the bundle is not for Android, or no runtime is for its machine.
        LinkError: a runtime was not built for Android.
        OutputError: `output` cannot be written.
    """
    machine = bundle.manifest.library.machine
    if bundle.manifest.target.host:
        raise BundleError(
            f"{bundle.path} was compiled for this computer, expected one for Android",
            hint=f"adrenoc compile {shlex.quote(bundle.manifest.model.file)} --device adreno",
        )
    found = {_abi(runtime): runtime for runtime in runtimes}
    api = max(MIN_API, *(read_elf(runtime.library).android_api for runtime in runtimes))
    if ABIS[machine] not in found:
        raise BundleError(
            f"{bundle.path} is for {ABIS[machine]}, but the runtimes are for {', '.join(found)}",
            hint=f"adrenoc runtime build --abi {ABIS[machine]} -o DIR, then --runtime DIR",
        )
    name = _identifier(bundle.manifest.name)
    content: dict[str, bytes] = {
        "AndroidManifest.xml": _MANIFEST.format(name=name, api=api).encode(),
        "classes.jar": _empty_jar(),
        "R.txt": b"",
        "proguard.txt": _PROGUARD.encode(),
        "META-INF/com/android/build/gradle/aar-metadata.properties": _AAR_METADATA.encode(),
        f"assets/{bundle.manifest.name}{SUFFIX}.tar": _tar(bundle, output),
    }
    for abi, runtime in found.items():
        for library in _LIBRARIES:
            content[f"jni/{abi}/{library}"] = (runtime.folder / library).read_bytes()
    content.update(_prefab(found, api))
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in sorted(content.items()):
            archive.writestr(_member(path), data)
    write_atomically(output, buffer.getvalue())
    return Packed(path=output, files=tuple((p, len(d)) for p, d in sorted(content.items())))


def write_cmake_package(bundle: Bundle, runtime: Runtime, output: Path) -> Packed:
    """Write a folder that `find_package(adrenoc)` finds: headers, libraries, bundle, a sample.

    Raises:
        BundleError: the runtime is for another machine than the bundle.
        OutputError: `output` cannot be written.
    """
    machine, there = bundle.manifest.library.machine, read_elf(runtime.library).machine
    if machine != there:
        raise BundleError(
            f"{bundle.path} is for {machine}, but the runtime at {runtime.folder} is for {there}",
            hint="adrenoc runtime build --abi ABI -o DIR, then --runtime DIR",
        )
    marker = f"lib/cmake/adrenoc/{CONFIG}"
    name = f"{bundle.manifest.name}{SUFFIX}"
    with write_folder_atomically(output, _CMAKE_FOLDER) as root:
        for folder in ("include", "lib/cmake/adrenoc", "share/adrenoc"):
            (root / folder).mkdir(parents=True)
        for header in HEADERS:
            shutil.copy(runtime.folder / header, root / "include" / header)
        for library in _LIBRARIES:
            shutil.copy(runtime.folder / library, root / "lib" / library)
        config = _CONFIG.format(bundle=name, library=LIBRARY)
        (root / marker).write_text(config, encoding="utf-8")
        version = _CONFIG_VERSION.format(version=adrenoc.__version__)
        (root / marker).with_name("adrenocConfigVersion.cmake").write_text(version, "utf-8")
        shutil.copytree(bundle.root, root / "share/adrenoc" / name)
        shutil.copytree(_sample("cpp"), root / "share/adrenoc/sample")
        write_list(root, _CMAKE_FOLDER)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        listed = tuple((p.relative_to(root).as_posix(), p.stat().st_size) for p in files)
    return Packed(path=output, files=listed)


def copy_sample(kind: str, output: Path) -> None:
    """Copy the sample app `cpp` or `android` to the folder `output`.

    Raises:
        OutputError: it cannot be written, or holds something else than an untouched sample.
    """
    with write_folder_atomically(output, _SAMPLE_FOLDER) as root:
        shutil.copytree(_sample(kind), root, dirs_exist_ok=True)
        write_list(root, _SAMPLE_FOLDER)


def _sample(kind: str) -> Path:
    return Path(adrenoc.__file__).resolve().parent / "native" / "samples" / kind


def _abi(runtime: Runtime) -> str:
    facts = read_elf(runtime.library)
    glibc = sorted(name for name in facts.needed if name.endswith((".so.6", ".so.2", ".so.1")))
    if facts.machine not in ABIS or glibc:
        raise LinkError(
            f"the runtime at {runtime.folder} is not for Android (it is for {facts.machine}"
            + (f" and needs {', '.join(glibc)})" if glibc else ")"),
            hint="adrenoc runtime build --ndk PATH --abi arm64-v8a -o DIR, then --runtime DIR",
        )
    return ABIS[facts.machine]


def _prefab(runtimes: dict[str, Runtime], api: int) -> dict[str, bytes]:
    """The libraries in the form in which Android builds give them to CMake."""
    module = "prefab/modules/adrenoc_runtime"
    package = {"schema_version": 2, "name": "adrenoc", "dependencies": []}
    content = {
        "prefab/prefab.json": _json({**package, "version": adrenoc.__version__}),
        f"{module}/module.json": _json({"export_libraries": [], "library_name": None}),
    }
    for abi, runtime in runtimes.items():
        facts = {"abi": abi, "api": api, "ndk": 23, "stl": "none", "static": False}
        content[f"{module}/libs/android.{abi}/abi.json"] = _json(facts)
        library = runtime.library.read_bytes()
        content[f"{module}/libs/android.{abi}/{LIBRARY}"] = library
        for header in HEADERS:
            content[f"{module}/include/{header}"] = (runtime.folder / header).read_bytes()
    return content


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


def _empty_jar() -> bytes:
    """An archive asks for one; there are no classes to put into it."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as jar:
        jar.writestr(_member("META-INF/MANIFEST.MF"), "Manifest-Version: 1.0\n")
    return buffer.getvalue()


def _member(path: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(path, date_time=_EPOCH)
    member.external_attr = 0o644 << 16
    # The bundle is mapped from the APK as it is.
    stored = path.endswith((".tar", ".jar"))
    member.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    return member


def _tar(bundle: Bundle, output: Path) -> bytes:
    with scratch_folder_for(output) as folder:
        tar = folder / "bundle.tar"
        write_tar(bundle.root, tar, name=bundle.manifest.name)
        return tar.read_bytes()


def _identifier(name: str) -> str:
    """A name that a package of Java may have."""
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    return kept.lower() if kept[:1].isalpha() else f"m_{kept.lower()}"
