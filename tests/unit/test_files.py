"""Data folders, digests, all-or-nothing writing, and the environment."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adrenoc import files
from adrenoc.errors import DependencyError, DiskFullError, OutputError

MARKER = "manifest.json"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def make_bundle(path: Path, content: str) -> None:
    with files.write_folder_atomically(path, marker=MARKER) as folder:
        (folder / MARKER).write_text(content)
        (folder / "kernels").mkdir()
        (folder / "kernels" / "conv.cl").write_text("kernel")


def test_data_folder_of_the_source_tree():
    assert (files.data_folder("targets") / "gpu").is_dir()
    assert (files.data_folder("presets") / "mixed.toml").is_file()


def test_data_folder_of_a_wheel_wins_over_a_neighbour(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "adrenoc"
    (package / "_data" / "targets").mkdir(parents=True)
    (package.parent / "targets").mkdir()  # another distribution's package of that name
    monkeypatch.setattr(files, "__file__", str(package / "files.py"))
    assert files.data_folder("targets") == package / "_data" / "targets"


def test_a_neighbour_package_is_not_taken_for_data(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "adrenoc"
    package.mkdir(parents=True)
    (package.parent / "targets").mkdir()
    monkeypatch.setattr(files, "__file__", str(package / "files.py"))
    with pytest.raises(DependencyError, match='"targets" of adrenoc is missing') as caught:
        files.data_folder("targets")
    assert "pip install" in caught.value.hint


def test_digests(tmp_path):
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert files.sha256_bytes(b"") == empty
    big = tmp_path / "big"
    big.write_bytes(b"ab" * (1 << 20))
    assert files.sha256_file(big) == files.sha256_bytes(b"ab" * (1 << 20))
    assert files.sha256_json({"b": (1, 2), "a": None}) == files.sha256_json(
        {"a": None, "b": [1, 2]}
    )
    assert files.sha256_json({"a": 1}) != files.sha256_json({"a": 1.5})


def test_write_replaces_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "model.tar"
    files.write_atomically(path, "old")
    files.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["model.tar"]


def test_a_written_file_has_the_users_usual_permissions(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    files.write_atomically(tmp_path / "ours", b"")
    assert (tmp_path / "ours").stat().st_mode == plain.stat().st_mode


def test_a_link_keeps_pointing_to_the_written_file(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files.write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize(
    ("code", "kind", "sentence"),
    [
        (errno.ENOSPC, DiskFullError, "no space is left on the disk; nothing was left behind"),
        (errno.EDQUOT, DiskFullError, "your disk quota is used up"),
        (errno.EROFS, OutputError, "the file system is read-only"),
        (errno.EACCES, OutputError, "you have no permission to write there"),
        (errno.EIO, OutputError, "Input/output error"),
    ],
)
def test_a_failed_write_names_its_cause_and_keeps_the_old(
    tmp_path, monkeypatch, code, kind, sentence
):
    path = tmp_path / "out.json"
    path.write_text("old")

    def fail(_descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OutputError, match=sentence) as caught:
        files.write_atomically(path, "new")
    assert type(caught.value) is kind
    assert str(path) in caught.value.message
    assert path.read_text() == "old"
    assert names(tmp_path) == ["out.json"]


def test_missing_folder_and_a_file_in_the_path(tmp_path):
    with pytest.raises(OutputError, match="does not exist") as caught:
        files.write_atomically(tmp_path / "no" / "x", "")
    assert caught.value.hint == f"mkdir -p {tmp_path / 'no'}"
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="a part of the path is a file"):
        files.write_atomically(tmp_path / "file" / "x", "")
    with pytest.raises(OutputError, match="a part of the path is a file"):
        files.check_folder_can_be_replaced(tmp_path / "file" / "x", MARKER)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="a folder of that name is in the way"):
        files.write_atomically(tmp_path / "folder", "")


def test_a_really_full_disk(tmp_path):
    # The process's own file size limit stops a write in the middle, as a full disk does.
    script = (
        "import resource, sys, pathlib\n"
        "from adrenoc import files\n"
        "from adrenoc.errors import DiskFullError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    with files.write_folder_atomically(pathlib.Path(sys.argv[1]), marker='m') as folder:\n"
        "        (folder / 'm').write_bytes(bytes(100000))\n"
        "except DiskFullError as error:\n"
        "    print(error.exit_code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "b")],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(files.__file__).parent.parent,
    )
    assert done.stdout.strip() == str(DiskFullError.exit_code)
    assert names(tmp_path) == []


def test_a_folder_appears_whole_and_replaces_an_older_bundle(tmp_path):
    path = tmp_path / "net.adrenoc"
    make_bundle(path, "one")
    (path / "left_over").touch()
    make_bundle(path, "two")
    assert (path / MARKER).read_text() == "two"
    assert names(path) == ["kernels", MARKER]
    assert names(tmp_path) == ["net.adrenoc"]


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "b").mkdir()
    make_bundle(tmp_path / "b", "one")
    assert (tmp_path / "b" / MARKER).is_file()


@pytest.mark.parametrize("kind", ["a file", "a folder without manifest.json"])
def test_what_is_not_ours_is_not_deleted(tmp_path, kind):
    path = tmp_path / "precious"
    if kind == "a file":
        path.touch()
    else:
        path.mkdir()
        (path / "photo.jpg").touch()
    with pytest.raises(OutputError, match=f"is not a bundle: found {kind}"):
        make_bundle(path, "one")
    assert names(tmp_path) == ["precious"]


@pytest.mark.parametrize("error", [ValueError("ours"), KeyboardInterrupt()])
def test_a_failed_block_leaves_the_old_bundle(tmp_path, error):
    path = tmp_path / "net.adrenoc"
    make_bundle(path, "one")
    with (
        pytest.raises(type(error)),
        files.write_folder_atomically(path, marker=MARKER) as folder,
    ):
        (folder / MARKER).write_text("half")
        raise error
    assert (path / MARKER).read_text() == "one"
    assert names(tmp_path) == ["net.adrenoc"]


def test_an_error_of_another_file_is_not_blamed_on_the_output(tmp_path):
    with (
        pytest.raises(FileNotFoundError),
        files.write_folder_atomically(tmp_path / "b", marker=MARKER),
    ):
        Path("/nowhere/model.onnx").read_bytes()
    assert names(tmp_path) == []


def test_a_failed_swap_brings_the_old_bundle_back(tmp_path, monkeypatch):
    path = tmp_path / "net.adrenoc"
    make_bundle(path, "one")
    rename = Path.rename

    def fail_for_the_new(self, to):
        if self.name.endswith(".part"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises(OutputError, match="Input/output error"):
        make_bundle(path, "two")
    assert (path / MARKER).read_text() == "one"
    assert names(tmp_path) == ["net.adrenoc"]


def test_a_racing_writer_is_replaced(tmp_path, monkeypatch):
    path = tmp_path / "net.adrenoc"
    make_bundle(path, "one")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    make_bundle(elsewhere / "b", "theirs")
    rename, raced = Path.rename, []

    def race(self, to):
        if self.name.endswith(".part") and not raced:
            raced.append(True)
            shutil.copytree(elsewhere / "b", to)  # another process is first
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", race)
    make_bundle(path, "ours")
    assert raced
    assert (path / MARKER).read_text() == "ours"
    assert names(tmp_path) == ["elsewhere", "net.adrenoc"]


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("ADRENOC_CACHE_DIR", raising=False)
    assert files.cache_folder() == tmp_path / ".cache" / "adrenoc"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert files.cache_folder() == tmp_path / ".cache" / "adrenoc"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/tmp/x")
    assert files.cache_folder() == Path("/var/tmp/x/adrenoc")
    monkeypatch.setenv("ADRENOC_CACHE_DIR", "~/mine")
    assert files.cache_folder() == tmp_path / "mine"


def test_no_home_folder_is_said(monkeypatch):
    for name in ("XDG_CACHE_HOME", "ADRENOC_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(files.Path, "home", no_home)
    with pytest.raises(OutputError, match="has no home folder") as caught:
        files.cache_folder()
    assert "ADRENOC_CACHE_DIR" in caught.value.hint


def test_environment_switches(monkeypatch):
    monkeypatch.setenv("ANDROID_NDK_HOME", "")
    monkeypatch.setenv("NO_COLOR", "")
    assert files.android_ndk_folders() == ()
    assert not files.no_color()
    monkeypatch.setenv("ANDROID_NDK_HOME", "/ndk")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("ANDROID_NDK", "/other")
    assert files.android_ndk_folders() == (
        ("ANDROID_NDK_HOME", Path("/ndk")),
        ("ANDROID_NDK", Path("/other")),
    )
    assert files.no_color()
