"""Wheels, and manifests for Android."""

import json
import os
import random
import sys
import zipfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.errors import LinkError
from adrenoc.base.host import extras
from adrenoc.native.android.app_check import Element, read_manifest
from adrenoc.native.android.runtime_build import (
    Component,
    components,
    find_used,
    license_text,
    notice_text,
)
from tests.binary_manifest import binary_manifest
from tests.commands import run_program

ROOT = Path(__file__).resolve().parents[2]
DATA = {"targets": "adrenoc/_data/targets", "presets": "adrenoc/_data/presets"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    builders = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    (made,) = builders.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return Path(made)


def test_holds_modules_sources_and_data(wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    needed = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "adrenoc").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    for name, place in DATA.items():
        found = sorted((ROOT / name).rglob("*.toml"))
        assert found
        needed |= {f"{place}/{path.relative_to(ROOT / name).as_posix()}" for path in found}
    assert needed <= inside
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in inside)


def test_holds_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        strays = [n for n in archive.namelist() if n.endswith((".pyc", ".so", ".o"))]
    assert {top for top in tops if not top.endswith(".dist-info")} == {"adrenoc"}
    assert strays == []


def test_works_outside_of_the_source_tree(wheel, tmp_path):
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    script = (
        "import adrenoc, sys\n"
        f"assert adrenoc.__file__.startswith({str(installed)!r}), adrenoc.__file__\n"
        "from adrenoc.cli.main import main\n"
        "sys.exit(main([sys.argv[1], '--json']))\n"
    )
    for command in ("targets", "presets"):
        done = run_program(
            [sys.executable, "-c", script, command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
        )
        assert done.returncode == 0, done.stderr
        assert '"mixed"' in done.stdout or '"adreno:a750"' in done.stdout


ASF = "/*\n * Licensed to the Apache Software Foundation (ASF) under one\n */\n"


@pytest.fixture
def known(tmp_path) -> tuple[Component, ...]:
    terms = "Apache License\nVersion 2.0\nEND OF TERMS AND CONDITIONS\nadvice"
    (tmp_path / "LICENSE").write_text(terms)
    (tmp_path / "NOTICE").write_text("One\nCopyright of One\n")
    for name in ("one/a.h", "one/b.h", "two/c.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(ASF if "b.h" not in name else "/* of somebody */")
    license_file = tmp_path / "LICENSE"
    return (
        Component(
            name="One",
            folders=(tmp_path / "one",),
            license_file=license_file,
            notice_file=tmp_path / "NOTICE",
        ),
        Component(
            name="Two",
            folders=(tmp_path / "two",),
            license_file=license_file,
            copyright="Copyright of Two",
        ),
    )


def test_only_what_was_read_is_named(known, tmp_path):
    read = [tmp_path / "one" / "a.h", Path("/usr/include/stdio.h")]
    used = find_used(read, known, packages=(tmp_path,))
    assert [component.name for component in used] == ["One"]
    said = notice_text(used, version="1.2", cxx_library="")
    assert "    Copyright of One\n" in said and "Two" not in said
    both = find_used([*read, tmp_path / "two" / "c.h"], known, packages=(tmp_path,))
    assert "    Copyright of Two\n" in notice_text(both, version="1.2", cxx_library="libc++")
    assert license_text(both).endswith("END OF TERMS AND CONDITIONS\n")


@pytest.mark.parametrize("name", ["one/b.h", "three/d.h"])
def test_code_of_unknown_terms_ends_the_build(known, tmp_path, name):
    """Other terms within a known folder, and a folder that nobody knows."""
    with pytest.raises(LinkError, match=f"would hold .*{name}, and nobody has looked"):
        find_used([tmp_path / name], known, packages=(tmp_path,))


def test_other_terms_of_a_component_are_refused(known, tmp_path):
    (tmp_path / "LICENSE").write_text("MIT License\nEND OF TERMS AND CONDITIONS")
    with pytest.raises(LinkError, match="One and Two are not all under the Apache"):
        license_text(known)


def test_the_packages_of_tvm_have_their_texts():
    ffi = Path(pytest.importorskip("tvm_ffi").__file__).parent
    known = components(ffi.parent / "tvm", ffi)
    header = ffi / "include" / "dlpack" / "dlpack.h"
    used = find_used([header], known, packages=(ffi,))
    assert [component.name for component in used] == ["DLPack"]
    assert used[0].copyright.removeprefix("Copyright (c) 2017 ") in header.read_text("utf-8")
    assert "Version 2.0, January 2004" in license_text(known)
    assert "Copyright 2024-present The Apache Software Foundation" in notice_text(
        known, version="1", cxx_library=""
    )


class _Installed:
    def __init__(self, said: dict[str, Any] | None) -> None:
        self.said = said

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.said is None else json.dumps(self.said)


@pytest.mark.parametrize(
    ("said", "command"),
    [
        (
            {"url": "file:///home/me/my%20adrenoc", "dir_info": {}},
            "pip install '/home/me/my adrenoc[link]'",
        ),
        (
            {"url": "file:///src/adrenoc", "dir_info": {"editable": True}},
            "pip install -e '/src/adrenoc[link]'",
        ),
        (
            {"url": "https://example.org/adrenoc-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'adrenoc[link] @ https://example.org/adrenoc-0.1.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'adrenoc[link] @ git+https://example.org/a.git'",
        ),
        (None, "pip install 'adrenoc[link]'"),
    ],
)
def test_command_is_of_what_was_installed(said, command, monkeypatch):
    monkeypatch.setattr(extras, "distribution", lambda _: _Installed(said))
    assert extras.pip_install("link") == command


def test_tree_that_is_not_installed(monkeypatch):
    def fail(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr(extras, "distribution", fail)
    assert extras.pip_install("link") == "pip install '.[link]'"


_TEXT = b"""<?xml version="1.0" encoding="utf-8"?>
<manifest xmlns:android="http://schemas.android.com/apk/res/android" package="org.x">
    <uses-sdk android:minSdkVersion="26" />
    <application android:extractNativeLibs="false">
        <!-- <uses-native-library android:name="commented.so" /> -->
        <uses-native-library android:name="libOpenCL.so" android:required="false" />
    </application>
</manifest>
"""
_EXPECTED = (
    Element(name="manifest", attributes={"package": "org.x"}),
    Element(name="uses-sdk", attributes={"minSdkVersion": "26"}),
    Element(name="application", attributes={"extractNativeLibs": "false"}),
    Element(name="uses-native-library", attributes={"name": "libOpenCL.so", "required": "false"}),
)
_BINARY = [
    ("manifest", {"package": "org.x"}),
    ("uses-sdk", {"minSdkVersion": 26}),
    ("application", {"extractNativeLibs": False}),
    ("uses-native-library", {"name": "libOpenCL.so", "required": False}),
]
# android.R.attr
_NUMBERS = {"name": 0x01010003, "minSdkVersion": 0x0101020C, "required": 0x0101028E}


def test_text():
    assert read_manifest(_TEXT) == _EXPECTED


@pytest.mark.parametrize("utf8", [False, True])
@pytest.mark.parametrize("hidden", [{}, _NUMBERS], ids=["names", "numbers"])
def test_the_form_in_an_apk(utf8, hidden):
    assert read_manifest(binary_manifest(_BINARY, utf8=utf8, hidden=hidden)) == _EXPECTED


@pytest.mark.parametrize("utf8", [False, True])
def test_long_strings(utf8):
    name = "é" * (200 if utf8 else 40000)
    (element,) = read_manifest(binary_manifest([("x", {"name": name})], utf8=utf8))
    assert element.attributes == {"name": name}


def test_what_is_no_manifest():
    whole = binary_manifest(_BINARY)
    for content in (b"", b"text", b"<manifest>", whole[:40], whole[:-4]):
        with pytest.raises(ValueError, match=r"no XML|damaged"):
            read_manifest(content)


def test_damage_is_an_error_or_another_manifest():
    whole = binary_manifest(_BINARY)
    rng = random.Random(1)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(whole))] = rng.randrange(256)
        try:
            read_manifest(bytes(damaged))
        except ValueError:
            refused += 1
    assert refused > 500
