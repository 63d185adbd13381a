"""What an output may replace: not what adrenoc did not write, nor what a command reads."""

import json
import os
import socket
from pathlib import Path

import pytest

from adrenoc.base.errors import OutputError
from adrenoc.base.files import outputs, owned_folder, read
from tests.unit.thing_folders import KIND, MARKER, content_of, make_bundle, names


def add_file(path):
    make_bundle(path, "one")
    (path / "thesis.tex").touch()


def add_empty_folder(path):
    make_bundle(path, "one")
    (path / "mine").mkdir()


def add_link(path):
    make_bundle(path, "one")
    (path / "content").unlink()
    (path / "content").symlink_to("/etc/passwd")


def change(path):
    make_bundle(path, "one")
    (path / "kernels" / "conv.cl").write_text("mine now")


def list_a_repository(path):
    """Whoever wrote the list: a repository is nobody's output."""
    make_bundle(path, "one")
    (path / ".git").mkdir()
    (path / ".git" / "HEAD").write_text("ref")
    owned_folder.write_list(path, KIND)


def web_app(path):
    path.mkdir()
    (path / MARKER).write_text(json.dumps({"name": "app", "files": {}}))
    (path / "index.html").touch()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.touch(), "is not a thing: found a file"),
        (os.mkfifo, "is not a thing: found a pipe"),
        (lambda path: (path / "a").mkdir(parents=True), f"found a folder without {MARKER}"),
        (web_app, f"its {MARKER} is not one that adrenoc wrote"),
        (add_file, r"holds more than adrenoc put there \(thesis.tex\)"),
        (add_empty_folder, r"more than adrenoc put there \(mine\)"),
        (add_link, r"more than adrenoc put there \(content\)"),
        (change, r"more than adrenoc put there \(kernels/conv.cl, changed since\)"),
        (list_a_repository, r"more than adrenoc put there \(.git\)"),
    ],
)
def test_what_is_not_ours_is_not_deleted(tmp_path, make, said):
    path = tmp_path / "precious"
    make(path)
    before = sorted(path.rglob("*"))
    with pytest.raises(OutputError, match=said):
        make_bundle(path, "two")
    assert names(tmp_path) == ["precious"]
    assert sorted(path.rglob("*")) == before


def test_the_users_own_places_are_not_replaced(tmp_path, monkeypatch):
    home = tmp_path / "users" / "ada"
    home.mkdir(parents=True)
    here = tmp_path / "here" / "inner"
    make_bundle(tmp_path / "here", "one")
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    for path, said in (
        (home, "your home folder"),
        (home.parent, "a folder that holds your home folder"),
        (here, "the working folder"),
        (here.parent, "a folder that holds the working folder"),
        (Path(), "the working folder"),
        (Path("/proc"), "the root of a file system"),
    ):
        with pytest.raises(OutputError, match=said):
            make_bundle(path, "two")
    with pytest.raises(OutputError, match="root of the file system"):
        owned_folder.refuse_foreign(Path("/"), KIND)
    assert content_of(tmp_path / "here") == "one"


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "is a pipe, and will not be replaced"),
        (make_socket, "is a socket, and will not be replaced"),
        (lambda path: path.symlink_to("/dev/null"), "is a device, and will not be replaced"),
        (lambda path: path.symlink_to(path), "links lead in a circle"),
        (lambda path: path.symlink_to("nothing"), "where nothing is"),
        (Path.mkdir, "a folder of that name is in the way"),
    ],
)
def test_only_files_are_replaced(tmp_path, make, said):
    path = tmp_path / "x"
    make(path)
    before = path.lstat()
    with pytest.raises(OutputError, match=said):
        outputs.write_atomically(path, "new")
    after = path.lstat()  # to have followed a link is no change, and tells its time
    assert [after.st_ino, after.st_mode, after.st_mtime_ns] == [
        *(before.st_ino, before.st_mode, before.st_mtime_ns)
    ]
    assert names(tmp_path) == ["x"]


def test_devices_stay_devices():
    for device in (Path("/dev/null"), Path("/dev/full")):
        with pytest.raises(OutputError, match="is a device"):
            outputs.write_atomically(device, "new")
        assert device.is_char_device()


def test_a_link_of_another_user_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "real").write_text("theirs")
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    monkeypatch.setattr(
        Path, "lstat", lambda self: os.stat_result((0o120777, 0, 0, 1, 777, 0, 0, 0, 0, 0))
    )
    with pytest.raises(OutputError, match="another user made"):
        outputs.output_place(tmp_path / "link")


@pytest.mark.parametrize("name", ["same", "hard", "soft", "sub/../same"])
def test_an_input_is_not_replaced(tmp_path, name):
    (tmp_path / "sub").mkdir()
    model = tmp_path / "same"
    model.write_text("weights")
    os.link(model, tmp_path / "hard")
    (tmp_path / "soft").symlink_to("same")
    with (
        read.inputs_kept(lambda: [tmp_path / "missing", model]),
        pytest.raises(OutputError, match="is an input of this command"),
    ):
        outputs.write_atomically(tmp_path / name, "new")
    assert model.read_text() == "weights"
    outputs.write_atomically(model, "new")  # later, as another command


def test_a_folder_that_holds_an_input_is_not_replaced(tmp_path):
    make_bundle(tmp_path / "b", "one")
    with (
        read.inputs_kept(lambda: [tmp_path / "b" / "content"]),
        pytest.raises(OutputError, match="holds an input of this command"),
    ):
        make_bundle(tmp_path / "b", "two")
    assert content_of(tmp_path / "b") == "one"
