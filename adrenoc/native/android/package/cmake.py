"""A bundle and a runtime as a folder that `find_package(adrenoc)` finds."""

from __future__ import annotations

import shutil
from pathlib import Path

import adrenoc
from adrenoc.base.errors import BundleError
from adrenoc.base.files.outputs import write_folder_atomically
from adrenoc.base.files.owned_folder import make_listed_kind, write_list
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.tar import SUFFIX
from adrenoc.bundle.write_bundle import copy_files
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.licenses import LICENSE, NOTICE
from adrenoc.native.android.package.packed import Packed, copy_sample
from adrenoc.native.android.runtime_build import HEADERS, LIBRARY, Runtime

CONFIG = "adrenocConfig.cmake"
CMAKE_FOLDER = make_listed_kind("CMake package")
_DOCUMENTS = "share/doc/adrenoc"
_CONFIG = """# find_package(adrenoc): the target adrenoc::runtime, and the bundle in adrenoc_BUNDLE.
get_filename_component(_adrenoc_root "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
string(CONCAT adrenoc_BUNDLE "${{_adrenoc_root}}/share/adrenoc/" {bundle})
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
    with write_folder_atomically(output, CMAKE_FOLDER) as root:
        for folder in ("include", "lib/cmake/adrenoc", "share/adrenoc", _DOCUMENTS):
            (root / folder).mkdir(parents=True)
        for header in HEADERS:
            shutil.copy(runtime.folder / header, root / "include" / header)
        shutil.copy(runtime.library, root / "lib" / LIBRARY)
        for text in (LICENSE, NOTICE):
            shutil.copy(runtime.folder / text, root / _DOCUMENTS / text)
        config = _CONFIG.format(bundle=cmake_quoted(name), library=LIBRARY)
        (root / marker).write_text(config, encoding="utf-8")
        version = _CONFIG_VERSION.format(version=adrenoc.__version__)
        (root / marker).with_name("adrenocConfigVersion.cmake").write_text(version, "utf-8")
        (root / "share/adrenoc" / name).mkdir()
        copy_files(bundle.root, root / "share/adrenoc" / name)
        copy_sample("cpp", root / "share/adrenoc/sample")
        write_list(root, CMAKE_FOLDER)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        listed = tuple((p.relative_to(root).as_posix(), p.stat().st_size) for p in files)
    return Packed(path=output, files=listed)


def cmake_quoted(text: str) -> str:
    """Return a bracket argument, in which CMake reads nothing but the text itself."""
    equals = ""
    while f"]{equals}]" in f"{text}]":
        equals += "="
    return f"[{equals}[{text}]{equals}]"
