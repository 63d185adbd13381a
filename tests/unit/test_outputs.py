"""All-or-nothing writing: what is there afterwards is the old or the new, and nothing beside."""

import errno
import os
import shutil
import sys
from pathlib import Path

import pytest

from adrenoc.base.errors import DiskFullError, OutputError
from adrenoc.base.files import outputs
from adrenoc.cli.main import main
from tests.commands import run_program
from tests.unit.thing_folders import KIND, MARKER, content_of, make_bundle, names


def test_write_replaces_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "model.tar"
    outputs.write_atomically(path, "old")
    outputs.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["model.tar"]


def test_a_written_file_has_the_users_usual_permissions(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    outputs.write_atomically(tmp_path / "ours", b"")
    assert (tmp_path / "ours").stat().st_mode == plain.stat().st_mode


def test_a_link_keeps_pointing_to_the_written_file(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    outputs.write_atomically(tmp_path / "link", "new")
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

    monkeypatch.setattr(outputs.os, "fsync", fail)
    with pytest.raises(OutputError, match=sentence) as caught:
        outputs.write_atomically(path, "new")
    assert type(caught.value) is kind
    assert str(path) in caught.value.message
    assert path.read_text() == "old"
    assert names(tmp_path) == ["out.json"]


def test_missing_folder_and_a_file_in_the_path(tmp_path):
    with pytest.raises(OutputError, match="does not exist") as caught:
        outputs.write_atomically(tmp_path / "no" / "x", "")
    assert caught.value.hint == f"mkdir -p {tmp_path / 'no'}"
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="a part of the path is a file"):
        outputs.write_atomically(tmp_path / "file" / "x", "")
    with pytest.raises(OutputError, match="a part of the path is a file"):
        outputs.check_folder_can_be_replaced(tmp_path / "file" / "x", KIND)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="a folder of that name is in the way"):
        outputs.write_atomically(tmp_path / "folder", "")


CHECKS = {
    "file": outputs.check_file_can_be_written,
    "folder of a kind": lambda path: outputs.check_folder_can_be_replaced(path, KIND),
    "any folder": outputs.check_folder_can_be_made,
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("n" * 256, "the name is too long"),
        ("/proc/out", "nothing can be made in /proc|you have no permission to write there"),
        ("/dev/null/x", "a part of the path is a file"),
        ("file/x", "a part of the path is a file"),
    ],
)
def test_what_cannot_be_made_is_refused_before_work_is_lost(tmp_path, check, name, sentence):
    """Of /proc an administrator has all rights, and can make nothing in it."""
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=sentence) as caught:
        CHECKS[check](tmp_path / name)
    assert "mkdir" not in caught.value.hint
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("check", ["file", "folder of a kind"])
def test_the_root_is_refused(check):
    with pytest.raises(OutputError):
        CHECKS[check](Path("/"))


def test_a_folder_of_packages_may_hold_others_and_be_deep(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").touch()
    outputs.check_folder_can_be_made(tmp_path / "kept")
    outputs.check_folder_can_be_made(tmp_path / "no" / "such" / "folder")
    assert names(tmp_path) == ["kept"] and names(tmp_path / "kept") == ["mine"]
    with pytest.raises(OutputError, match="a file of that name is in the way"):
        outputs.check_folder_can_be_made(tmp_path / "kept" / "mine")


def test_a_really_full_disk(tmp_path):
    # The process's own file size limit stops a write in the middle, as a full disk does.
    script = (
        "import resource, sys, pathlib\n"
        "from adrenoc.base.files import outputs\n"
        "from adrenoc.base.errors import DiskFullError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    kind = outputs.make_listed_kind('thing')\n"
        "    with outputs.write_folder_atomically(pathlib.Path(sys.argv[1]), kind) as folder:\n"
        "        (folder / 'm').write_bytes(bytes(100000))\n"
        "except DiskFullError as error:\n"
        "    print(error.exit_code)\n"
    )
    done = run_program(
        [sys.executable, "-c", script, str(tmp_path / "b")],
        check=True,
        cwd=Path(outputs.__file__).parent.parent,
    )
    assert done.stdout.strip() == str(DiskFullError.exit_code)
    assert names(tmp_path) == []


def test_a_folder_appears_whole_and_replaces_an_older_one(tmp_path):
    path = tmp_path / "net.adrenoc"
    make_bundle(path, "one")
    (path / "kernels" / "conv.cl").unlink()  # one that is not whole is ours all the same
    make_bundle(path, "two")
    assert content_of(path) == "two"
    assert names(path) == sorted(["kernels", "content", MARKER])
    assert names(tmp_path) == ["net.adrenoc"]


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "b").mkdir()
    make_bundle(tmp_path / "b", "one")
    assert content_of(tmp_path / "b") == "one"
    assert names(tmp_path) == ["b"]


@pytest.mark.parametrize("error", [ValueError("ours"), KeyboardInterrupt()])
def test_a_failed_block_leaves_the_old_bundle(tmp_path, error):
    path = tmp_path / "net.adrenoc"
    make_bundle(path, "one")
    with pytest.raises(type(error)), outputs.write_folder_atomically(path, KIND) as folder:
        (folder / "content").write_text("half")
        raise error
    assert content_of(path) == "one"
    assert names(tmp_path) == ["net.adrenoc"]


def test_an_error_of_another_file_is_not_blamed_on_the_output(tmp_path):
    with pytest.raises(FileNotFoundError), outputs.write_folder_atomically(tmp_path / "b", KIND):
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
    assert content_of(path) == "one"
    assert names(tmp_path) == ["net.adrenoc"]


def test_what_a_user_puts_there_meanwhile_comes_back(tmp_path, monkeypatch):
    """Between the look at the output and the swap, somebody may have put a folder there."""
    path = tmp_path / "b"
    swap = outputs._swap_in

    def late(new, place, kind):
        path.mkdir()
        (path / "thesis.tex").touch()
        swap(new, place, kind)

    monkeypatch.setattr(outputs, "_swap_in", late)
    with pytest.raises(OutputError, match=f"without {MARKER}"):
        make_bundle(path, "one")
    assert names(path) == ["thesis.tex"]
    assert names(tmp_path) == ["b"]


def test_a_racing_writer_is_replaced(tmp_path, monkeypatch):
    path = tmp_path / "net.adrenoc"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    make_bundle(elsewhere / "b", "theirs")
    swap = outputs._swap_in

    def race(new, place, kind):
        shutil.copytree(elsewhere / "b", place)  # another process is first
        swap(new, place, kind)

    monkeypatch.setattr(outputs, "_swap_in", race)
    make_bundle(path, "ours")
    assert content_of(path) == "ours"
    assert names(tmp_path) == ["elsewhere", "net.adrenoc"]


def test_a_writer_between_the_two_renames_is_replaced(tmp_path, monkeypatch):
    """What came to the place while the older output was aside is an older output, too."""
    path = tmp_path / "net.adrenoc"
    make_bundle(path, "one")
    look, seen = outputs.refuse_foreign, []

    def race(old, kind):
        look(old, kind)
        if old.name.endswith(".old") and not seen:
            seen.append(shutil.copytree(old, path))

    monkeypatch.setattr(outputs, "refuse_foreign", race)
    make_bundle(path, "two")
    assert seen == [path]
    assert content_of(path) == "two"
    make_bundle(tmp_path / "b", "another")  # what was left is removed by the next one
    assert names(tmp_path) == ["b", "net.adrenoc"]


@pytest.mark.parametrize("command", [["view", "BUNDLE"], ["run", "BUNDLE"]])
def test_a_cache_folder_that_cannot_be_used_is_told_with_the_way_to_another(
    bundle_folder, monkeypatch, capsys, command
):
    monkeypatch.setenv("ADRENOC_CACHE_DIR", "/dev/null")
    assert main([str(bundle_folder) if word == "BUNDLE" else word for word in command]) == 18
    said = capsys.readouterr().err
    assert "cannot write to the cache folder /dev/null" in said
    assert "try: export ADRENOC_CACHE_DIR=" in said
