"""What builds take as it is: a Maven repository of models for Gradle, a folder for CMake.

FOLDER/org/adrenoc/adrenoc-runtime/VERSION/         the runtime, once
FOLDER/org/adrenoc/adrenoc-onnxruntime/VERSION/     its provider for onnxruntime, where it was built
FOLDER/org/adrenoc/model/NAME/VERSION/              a model, which depends on the runtime

Beside each file lies its digest, which Maven's -C asks for, and beside the folders of versions a
list of them (maven-metadata.xml), which ranges of versions are looked up in.
A folder that holds such packages already takes more: the runtime is replaced by an equal one, and
so is a model of the same name.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from xml.sax.saxutils import escape

import adrenoc
from adrenoc.base.errors import BundleError
from adrenoc.base.files.outputs import (
    make_listed_kind,
    output_error,
    write_atomically,
    write_folder_atomically,
    write_list,
)
from adrenoc.bundle.bundle import Bundle, copy_files
from adrenoc.bundle.tar import SUFFIX
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.package.aar import (
    Packed,
    Runtimes,
    archive,
    copy_sample,
    find_runtimes,
    model_content,
    name_models,
    provider_content,
    runtime_content,
)
from adrenoc.native.android.runtime_build import HEADERS, LIBRARY, LICENSE, NOTICE, Runtime

_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0"
    xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
    xsi:schemaLocation="http://maven.apache.org/POM/4.0.0 http://maven.apache.org/xsd/maven-4.0.0.xsd">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{version}</version>
  <packaging>aar</packaging>
{rest}</project>
"""
_LICENSES = """  <licenses>
    <license>
      <name>Apache-2.0</name>
      <url>https://www.apache.org/licenses/LICENSE-2.0.txt</url>
    </license>
  </licenses>
"""
_DEPENDENCIES = """  <dependencies>
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
      <type>aar</type>
      <scope>compile</scope>
    </dependency>
  </dependencies>
"""
_METADATA = """<?xml version="1.0" encoding="UTF-8"?>
<metadata>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <versioning>
    <versions>
{versions}    </versions>
  </versioning>
</metadata>
"""


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """What a package is called in a repository."""

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    def path(self, suffix: str) -> str:
        """Return where its file of this kind lies."""
        folder = f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}"
        return f"{folder}/{self.artifact}-{self.version}.{suffix}"


RUNTIME = Coordinates(group="org.adrenoc", artifact="adrenoc-runtime", version=adrenoc.__version__)
PROVIDER = replace(RUNTIME, artifact="adrenoc-onnxruntime")


@dataclass(frozen=True, kw_only=True)
class Repository:
    """What was written, and the coordinates of the models, in the order of the bundles. `provider`
    tells whether the provider for onnxruntime was."""

    packed: Packed
    models: tuple[Coordinates, ...]
    provider: bool


def write_repository(
    bundles: Sequence[Bundle], runtimes: Sequence[Runtime], output: Path
) -> Repository:
    """Write the runtime and each model as packages of their own into the folder `output`. Raises
    BundleError where a bundle is not for Android, or no runtime is for its machine; LinkError where
    a runtime was not built for Android; OutputError where `output` cannot be written."""
    found = find_runtimes(bundles, runtimes)
    models = name_models(bundles)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(output, error) from error
    written, provider = _write_runtime(found, output)
    all_coordinates = []
    for model in models:
        coordinates = Coordinates(
            group="org.adrenoc.model", artifact=model.identifier, version=adrenoc.__version__
        )
        content = archive(model_content(model, found.api, output / model.identifier))
        written += _write(output, coordinates, content, _DEPENDENCIES.format(**_escape(RUNTIME)))
        all_coordinates.append(coordinates)
    return Repository(
        packed=Packed(path=output, files=tuple(written)),
        models=tuple(all_coordinates),
        provider=provider,
    )


def write_runtime(
    bundles: Sequence[Bundle], runtimes: Sequence[Runtime], output: Path
) -> list[tuple[str, int]]:
    """Write the runtime that these bundles need into the folder `output`, and none of them. Raises
    BundleError where a bundle is not for Android, or no runtime is for its machine; LinkError where
    a runtime was not built for Android; OutputError where `output` cannot be written."""
    return _write_runtime(find_runtimes(bundles, runtimes), output)[0]


def _write_runtime(found: Runtimes, output: Path) -> tuple[list[tuple[str, int]], bool]:
    """Write the runtime and its provider for onnxruntime; returns whether there is one, too."""
    written = _write(output, RUNTIME, archive(runtime_content(found)), _LICENSES)
    provider = provider_content(found)
    if provider:
        rest = _LICENSES + _DEPENDENCIES.format(**_escape(RUNTIME))
        written += _write(output, PROVIDER, archive(provider), rest)
    return written, bool(provider)


def _write(
    output: Path, coordinates: Coordinates, content: bytes, rest: str
) -> list[tuple[str, int]]:
    pom = _POM.format(**_escape(coordinates), rest=rest).encode()
    place = output / coordinates.path("aar")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(place, error) from error
    # The archive last: who finds it finds what it depends on.
    _write_with_digest(output / coordinates.path("pom"), pom)
    _write_with_digest(place, content)
    _write_metadata(place.parents[1], coordinates)
    return [(coordinates.path("aar"), len(content)), (coordinates.path("pom"), len(pom))]


def _write_with_digest(place: Path, content: bytes) -> None:
    """Write a file after its SHA-1, which Maven looks for."""
    digest = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    write_atomically(place.with_name(f"{place.name}.sha1"), digest)
    write_atomically(place, content)


def _write_metadata(folder: Path, coordinates: Coordinates) -> None:
    """List the versions of a package that lie in its folder."""
    versions = sorted(pom.parent.name for pom in folder.glob("*/*.pom"))
    listed = "".join(f"      <version>{escape(version)}</version>\n" for version in versions)
    text = _METADATA.format(**_escape(coordinates), versions=listed)
    _write_with_digest(folder / "maven-metadata.xml", text.encode())


def _escape(coordinates: Coordinates) -> dict[str, str]:
    return {name: escape(value) for name, value in asdict(coordinates).items()}


PACKAGES = "packages"
SAMPLE_FOLDER = make_listed_kind("sample")
_BUILD = "app/build.gradle.kts"


def write_sample(bundles: Sequence[Bundle], runtimes: Sequence[Runtime], output: Path) -> None:
    """Write the app with `bundles` to the folder `output`, all or nothing.

    Raises BundleError where a bundle is not for Android, or no runtime is for its machine;
    LinkError where a runtime was not built for Android; OutputError where `output` holds more than
    this wrote, or cannot be written.
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
    Raises BundleError where the runtime is for another machine than the bundle, OutputError where
    `output` cannot be written."""
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
