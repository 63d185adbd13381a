"""Unit tests start no outside tools, load no TVM, and keep to their own cache."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import adrenoc.compile.make
from adrenoc.bundle.manifest import LibraryInfo
from adrenoc.native.android.link import Linker
from tests.unit.fake_compiled import FakeCompiled, make_bundle_folder

TFLITE = b"\x1c\x00\x00\x00TFL3" + bytes(64)


@pytest.fixture(autouse=True)
def no_outside_tools(monkeypatch) -> None:
    start = subprocess.Popen.__init__

    def guarded(self, args, *rest, **named) -> None:
        if args[0] != sys.executable or "-m" in args:
            pytest.fail(f"a unit test started an outside tool: {args}")
        start(self, args, *rest, **named)

    monkeypatch.setattr(subprocess.Popen, "__init__", guarded)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ADRENOC_CACHE_DIR", str(folder))
    monkeypatch.delenv("ANDROID_NDK_HOME", raising=False)
    return folder


@pytest.fixture
def bundle_folder(tmp_path) -> Path:
    folder = tmp_path / "tiny.adrenoc"
    make_bundle_folder(folder)
    return folder


@pytest.fixture
def model(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.tflite"
    path.write_bytes(TFLITE)
    return path


@pytest.fixture
def compiled(monkeypatch) -> list[dict[str, Any]]:
    """Put a compiler in place that records its calls; linking writes a few bytes."""
    calls: list[dict[str, Any]] = []

    def compile_model(model: Path, **options) -> FakeCompiled:
        calls.append({"model": model, **options})
        options["reporter"].stage("import", 12.5, "3 nodes")
        return FakeCompiled()

    def link_library(library: object, output: Path, **_) -> LibraryInfo:
        output.write_bytes(b"linked")
        return LibraryInfo(
            machine="aarch64", soname="model.so", needed=("libm.so",), page_bytes=16384
        )

    module = ModuleType("adrenoc.compile.compiler")
    vars(module)["compile_model"] = compile_model
    monkeypatch.setitem(sys.modules, "adrenoc.compile.compiler", module)
    monkeypatch.setattr(adrenoc.compile.make, "link_library", link_library)
    linker = Linker(command=("ld.lld",), origin="path", version="LLD 22")
    monkeypatch.setattr(adrenoc.compile.make, "find_linker", lambda **_: linker)
    return calls
