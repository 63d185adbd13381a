"""Several models for one app: a Maven repository in a folder, which Gradle takes as it is.

FOLDER/org/adrenoc/adrenoc-runtime/VERSION/         the runtime, once
FOLDER/org/adrenoc/model/NAME/VERSION/              a model, which depends on the runtime

A folder that holds such packages already takes more: the runtime is replaced by an equal one, and
so is a model of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import adrenoc
from adrenoc.base.files.outputs import output_error, write_atomically
from adrenoc.bundle.bundle import Bundle
from adrenoc.native.android.package.aar import (
    archive,
    find_runtimes,
    model_content,
    name_models,
    runtime_content,
)
from adrenoc.native.android.package.packed import Packed
from adrenoc.native.android.runtime_build import Runtime

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


@dataclass(frozen=True, kw_only=True)
class Repository:
    """What was written, and the coordinates of the models, in the order of the bundles."""

    packed: Packed
    models: tuple[Coordinates, ...]


def write_repository(
    bundles: Sequence[Bundle], runtimes: Sequence[Runtime], output: Path
) -> Repository:
    """Write the runtime and each model as packages of their own into the folder `output`.

    Raises:
        BundleError: a bundle is not for Android, or no runtime is for its machine.
        LinkError: a runtime was not built for Android.
        OutputError: `output` cannot be written.
    """
    found = find_runtimes(bundles, runtimes)
    models = name_models(bundles)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(output, error) from error
    written = _write(output, RUNTIME, archive(runtime_content(found)), _LICENSES)
    all_coordinates = []
    for model in models:
        coordinates = Coordinates(
            group="org.adrenoc.model", artifact=model.identifier, version=adrenoc.__version__
        )
        content = archive(model_content(model, found.api, output / model.identifier))
        depends = _DEPENDENCIES.format(**_escape(RUNTIME))
        written += _write(output, coordinates, content, depends)
        all_coordinates.append(coordinates)
    return Repository(
        packed=Packed(path=output, files=tuple(written)), models=tuple(all_coordinates)
    )


def write_runtime(
    bundles: Sequence[Bundle], runtimes: Sequence[Runtime], output: Path
) -> list[tuple[str, int]]:
    """Write the runtime that these bundles need into the folder `output`, and none of them.

    Raises:
        BundleError: a bundle is not for Android, or no runtime is for its machine.
        LinkError: a runtime was not built for Android.
        OutputError: `output` cannot be written.
    """
    found = find_runtimes(bundles, runtimes)
    return _write(output, RUNTIME, archive(runtime_content(found)), _LICENSES)


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
    write_atomically(output / coordinates.path("pom"), pom)
    write_atomically(place, content)
    return [(coordinates.path("aar"), len(content)), (coordinates.path("pom"), len(pom))]


def _escape(coordinates: Coordinates) -> dict[str, str]:
    return {
        "group": escape(coordinates.group),
        "artifact": escape(coordinates.artifact),
        "version": escape(coordinates.version),
    }
