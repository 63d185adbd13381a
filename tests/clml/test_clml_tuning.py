"""Tuning results are kept in TVM's file, or in the cache folder under a strict key."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import tvm_ffi

from tests.clml.regions import Emulate, Loaded, load, make


@pytest.fixture(scope="module")
def region(device) -> Loaded:
    return load(make, device)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch) -> None:
    for name in ("CLML_IS_TUN{}ING_RUN", "CLML_TUN{}ING_CACHE"):
        for more in ("", "N"):
            monkeypatch.delenv(name.format(more), raising=False)


@pytest.fixture
def folder(tmp_path) -> Iterator[Path]:
    """The cache folder of the process."""
    set_folder = tvm_ffi.get_global_func("adrenoc.clml.set_cache_folder")
    set_folder(str(tmp_path / "cache"))
    yield tmp_path / "cache"
    set_folder("")


def _note(region: Loaded, emulate: Emulate, **settings) -> str:
    """Prepare and run anew; what became of the tuning."""
    emulate(**settings)
    region.run()
    return str(region.facts()["tuning"])


@pytest.mark.parametrize("run", ["CLML_IS_TUNING_RUN", "CLML_IS_TUNNING_RUN"])
@pytest.mark.parametrize("cache", ["CLML_TUNING_CACHE", "CLML_TUNNING_CACHE"])
def test_file(region, emulate, monkeypatch, tmp_path, run, cache):
    """By TVM's names, and by those of its RFC."""
    file = tmp_path / "tuning.bin"
    monkeypatch.setenv(cache, str(file))
    monkeypatch.setenv(run, "1")
    assert _note(region, emulate) == f"tuned, kept in {file}"
    once = file.read_bytes()
    assert once.startswith(bytes(reversed(b"CLMLTUNE")))
    assert region.region.symbol.encode() in once
    # Again: the record is replaced, where TVM's runtime appends a second.
    assert _note(region, emulate) == f"tuned, kept in {file}"
    assert file.read_bytes() == once
    monkeypatch.setenv(run, "0")
    assert _note(region, emulate) == f"tuned by {file}"


def test_file_without_this_region(region, emulate, monkeypatch, tmp_path):
    file = tmp_path / "none.bin"
    monkeypatch.setenv("CLML_TUNING_CACHE", str(file))
    assert "has no tuning of this region" in _note(region, emulate)  # nor is there a file
    for content in (b"", b"nonsense that is no record", bytes(reversed(b"CLMLTUNE")) * 3):
        file.write_bytes(content)
        assert "has no tuning of this region" in _note(region, emulate)


def test_file_that_cannot_be_written(region, emulate, monkeypatch, tmp_path):
    file = tmp_path / "missing" / "tuning.bin"
    monkeypatch.setenv("CLML_TUNING_CACHE", str(file))
    monkeypatch.setenv("CLML_IS_TUNING_RUN", "1")
    said = f"tuned, but not kept: cannot write {file}: No such file or directory"
    assert _note(region, emulate) == said


def test_cache_folder(region, emulate, monkeypatch, folder):
    monkeypatch.setenv("CLML_IS_TUNING_RUN", "1")
    assert "tuned, kept in" in _note(region, emulate)
    (file,) = folder.iterdir()
    monkeypatch.delenv("CLML_IS_TUNING_RUN")
    assert _note(region, emulate) == f"tuned by {file}"
    assert _note(region, emulate, versions=[1, 2, 3]) == ""  # another library: another key
    file.write_bytes(file.read_bytes()[:40])
    assert _note(region, emulate) == ""


@pytest.mark.parametrize("call", ["clTuneMLOpQCOM", "clSaveMLTuningCacheQCOM"])
def test_a_failing_tuning_run_keeps_nothing(region, emulate, monkeypatch, tmp_path, call):
    monkeypatch.setenv("CLML_TUNING_CACHE", str(tmp_path / "tuning.bin"))
    monkeypatch.setenv("CLML_IS_TUNING_RUN", "1")
    emulate(failing_call=call, failing_code="CL_OUT_OF_HOST_MEMORY")
    region.usable()
    facts = region.facts()
    # Untuned operators are no reason to do without them; operators half tuned may be.
    assert facts["used"] == (call == "clSaveMLTuningCacheQCOM")
    assert call in facts["reason"] + facts["tuning"]
    assert not (tmp_path / "tuning.bin").exists()


def test_a_result_that_the_library_refuses(region, emulate, monkeypatch, tmp_path):
    """The region runs untuned, and says so."""
    file = tmp_path / "tuning.bin"
    monkeypatch.setenv("CLML_TUNING_CACHE", str(file))
    monkeypatch.setenv("CLML_IS_TUNING_RUN", "1")
    _note(region, emulate)
    monkeypatch.delenv("CLML_IS_TUNING_RUN")
    failing = {"failing_call": "clLoadMLTuningCacheQCOM", "failing_code": "CL_INVALID_VALUE"}
    said = "clLoadMLTuningCacheQCOM failed with CL_INVALID_VALUE"
    assert _note(region, emulate, **failing) == f"not tuned by {file}: {said}"
