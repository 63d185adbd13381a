"""Data folders, plain files, digests, and the environment."""

import subprocess
from pathlib import Path

import pytest

import adrenoc
from adrenoc.base.errors import DependencyError, OutputError
from adrenoc.base.files import read
from adrenoc.base.host.proc import own_module


def test_data_folder_of_the_source_tree():
    assert (read.data_folder("targets") / "gpu").is_dir()
    assert (read.data_folder("presets") / "mixed.toml").is_file()


def test_data_folder_of_a_wheel_wins_over_a_neighbour(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "adrenoc"
    (package / "_data" / "targets").mkdir(parents=True)
    (package.parent / "targets").mkdir()  # another distribution's package of that name
    monkeypatch.setattr(adrenoc, "__file__", str(package / "__init__.py"))
    assert read.data_folder("targets") == package / "_data" / "targets"


def test_a_neighbour_package_is_not_taken_for_data(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "adrenoc"
    package.mkdir(parents=True)
    (package.parent / "targets").mkdir()
    monkeypatch.setattr(adrenoc, "__file__", str(package / "__init__.py"))
    with pytest.raises(DependencyError, match='"targets" of adrenoc is missing') as caught:
        read.data_folder("targets")
    assert "pip install" in caught.value.hint


def test_digests(tmp_path):
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert read.sha256_bytes(b"") == empty
    big = tmp_path / "big"
    big.write_bytes(b"ab" * (1 << 20))
    assert read.sha256_file(big) == read.sha256_bytes(b"ab" * (1 << 20))
    assert read.sha256_json({"b": (1, 2), "a": None}) == read.sha256_json({"a": None, "b": [1, 2]})
    assert read.sha256_json({"a": 1}) != read.sha256_json({"a": 1.5})


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("ADRENOC_CACHE_DIR", raising=False)
    assert read.cache_folder() == tmp_path / ".cache" / "adrenoc"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert read.cache_folder() == tmp_path / ".cache" / "adrenoc"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/tmp/x")
    assert read.cache_folder() == Path("/var/tmp/x/adrenoc")
    monkeypatch.setenv("ADRENOC_CACHE_DIR", "~/mine")
    assert read.cache_folder() == tmp_path / "mine"


def test_no_home_folder_is_said(monkeypatch):
    for name in ("XDG_CACHE_HOME", "ADRENOC_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(read.Path, "home", no_home)
    with pytest.raises(OutputError, match="has no home folder") as caught:
        read.cache_folder()
    assert "ADRENOC_CACHE_DIR" in caught.value.hint


def test_environment_switches(monkeypatch):
    monkeypatch.setenv("ANDROID_NDK_HOME", "")
    monkeypatch.setenv("NO_COLOR", "")
    assert read.android_ndk_folders() == ()
    assert not read.no_color()
    monkeypatch.setenv("ANDROID_NDK_HOME", "/ndk")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("ANDROID_NDK", "/other")
    assert read.android_ndk_folders() == (
        ("ANDROID_NDK_HOME", Path("/ndk")),
        ("ANDROID_NDK", Path("/other")),
    )
    assert read.no_color()


def test_a_module_of_ours_is_not_looked_for_in_the_working_folder(tmp_path):
    """`python -m` looks there first: whose folder that is, would be run."""
    for name in ("json", "adrenoc", "runpy", "click"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(77)")
    done = subprocess.run(
        own_module("adrenoc", "--version"), cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"adrenoc" in done.stdout
