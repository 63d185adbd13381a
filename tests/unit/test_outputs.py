"""All-or-nothing writing, what an output may replace, and what killed processes left."""

import errno
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from adrenoc.errors import DiskFullError, OutputError
from adrenoc.files import aside, kept, outputs, owned_folder

KIND = owned_folder.make_listed_kind("thing")
MARKER = KIND.marker


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def make_bundle(path: Path, content: str) -> None:
    with outputs.write_folder_atomically(path, KIND) as folder:
        (folder / "content").write_text(content)
        (folder / "kernels").mkdir()
        (folder / "kernels" / "conv.cl").write_text("kernel")
        owned_folder.write_list(folder, KIND)


def content_of(path: Path) -> str:
    return (path / "content").read_text()


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


def test_a_really_full_disk(tmp_path):
    # The process's own file size limit stops a write in the middle, as a full disk does.
    script = (
        "import resource, sys, pathlib\n"
        "from adrenoc.files import outputs, owned_folder\n"
        "from adrenoc.errors import DiskFullError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    kind = owned_folder.make_listed_kind('thing')\n"
        "    with outputs.write_folder_atomically(pathlib.Path(sys.argv[1]), kind) as folder:\n"
        "        (folder / 'm').write_bytes(bytes(100000))\n"
        "except DiskFullError as error:\n"
        "    print(error.exit_code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "b")],
        capture_output=True,
        text=True,
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


@pytest.mark.parametrize("error", [ValueError("ours"), KeyboardInterrupt()])
def test_a_failed_block_leaves_the_old_bundle(tmp_path, error):
    path = tmp_path / "net.adrenoc"
    make_bundle(path, "one")
    with (
        pytest.raises(type(error)),
        outputs.write_folder_atomically(path, KIND) as folder,
    ):
        (folder / "content").write_text("half")
        raise error
    assert content_of(path) == "one"
    assert names(tmp_path) == ["net.adrenoc"]


def test_an_error_of_another_file_is_not_blamed_on_the_output(tmp_path):
    with (
        pytest.raises(FileNotFoundError),
        outputs.write_folder_atomically(tmp_path / "b", KIND),
    ):
        Path("/nowhere/model.onnx").read_bytes()
    assert names(tmp_path) == []


@pytest.fixture(params=[True, False], ids=["exchange", "two renames"])
def can_exchange(request, monkeypatch):
    """Both ways: not every file system can exchange two names at once."""
    if not request.param:
        monkeypatch.setattr(outputs, "exchange", lambda *_: False)
        monkeypatch.setattr(outputs, "rename_to_nothing", lambda *_: False)
    return request.param


def test_a_swap_leaves_nothing_beside(tmp_path, can_exchange):
    make_bundle(tmp_path / "b", "one")
    make_bundle(tmp_path / "b", "two")
    assert content_of(tmp_path / "b") == "two"
    assert names(tmp_path) == ["b"]


def test_a_failed_swap_brings_the_old_bundle_back(tmp_path, monkeypatch):
    path = tmp_path / "net.adrenoc"
    make_bundle(path, "one")
    rename = Path.rename

    def fail_for_the_new(self, to):
        if self.name.endswith(".part"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, to)

    monkeypatch.setattr(outputs, "exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises(OutputError, match="Input/output error"):
        make_bundle(path, "two")
    assert content_of(path) == "one"
    assert names(tmp_path) == ["net.adrenoc"]


def test_what_a_user_puts_there_meanwhile_comes_back(tmp_path, monkeypatch, can_exchange):
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


def test_a_racing_writer_is_replaced(tmp_path, monkeypatch, can_exchange):
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


# --- files --------------------------------------------------------------------------------------


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
    assert path.lstat() == before
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
        kept.inputs_kept(lambda: [tmp_path / "missing", model]),
        pytest.raises(OutputError, match="is an input of this command"),
    ):
        outputs.write_atomically(tmp_path / name, "new")
    assert model.read_text() == "weights"
    outputs.write_atomically(model, "new")  # later, as another command


def test_a_folder_that_holds_an_input_is_not_replaced(tmp_path):
    make_bundle(tmp_path / "b", "one")
    with (
        kept.inputs_kept(lambda: [tmp_path / "b" / "content"]),
        pytest.raises(OutputError, match="holds an input of this command"),
    ):
        make_bundle(tmp_path / "b", "two")
    assert content_of(tmp_path / "b") == "one"


# --- what killed processes left -------------------------------------------------------------------


def left(folder, role="part", stem="b"):
    return folder / f".{stem}.adrenoc-0123456789ab.{role}"


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path):
    left(tmp_path, stem="x").write_text("half")
    (left(tmp_path) / "kernels").mkdir(parents=True)
    (tmp_path / ".b.0123456789ab.part").touch()  # the user's
    outputs.write_atomically(tmp_path / "other", "new")
    assert names(tmp_path) == [".b.0123456789ab.part", "other"]


def test_what_others_still_write_stays(tmp_path):
    left(tmp_path).mkdir()
    descriptor = os.open(left(tmp_path), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    link = left(tmp_path, stem="link")
    link.symlink_to("/etc")
    outputs.write_atomically(tmp_path / "other", "new")
    assert left(tmp_path).is_dir()
    assert link.is_symlink()
    os.close(descriptor)
    assert aside.remove_left(tmp_path) == 1


def test_what_another_user_left_stays(tmp_path, monkeypatch):
    left(tmp_path).mkdir()
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert aside.remove_left(tmp_path) == 0


def test_an_output_that_was_put_aside_comes_back(tmp_path):
    """Killed between two renames, where a file system knows no exchange."""
    make_bundle(left(tmp_path, "old"), "one")
    left(tmp_path, "old", stem="c").mkdir()
    (tmp_path / "c").mkdir()
    outputs.write_atomically(tmp_path / "other", "new")
    assert content_of(tmp_path / "b") == "one"
    assert names(tmp_path) == ["b", "c", "other"]
