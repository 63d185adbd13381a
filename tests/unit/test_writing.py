"""What commands may write to and replace, and what killed processes left beside an output."""

import fcntl
import json
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import pytest

from adrenoc.base.errors import OutputError
from adrenoc.base.files import aside, outputs, read
from adrenoc.bundle.bundle import open_bundle
from adrenoc.cli.guarded import Command, InputPath, OutputPath
from adrenoc.cli.main import cli, main
from tests.models import graph
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
    outputs.write_list(path, KIND)


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
        outputs.refuse_foreign(Path("/"), KIND)
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


REFUSED = OutputError.exit_code


def all_commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield from all_commands(command) if isinstance(command, click.Group) else (command,)


def test_every_path_of_every_command_is_an_input_or_an_output():
    for command in all_commands(cli):
        assert isinstance(command, Command), command.name
        for param in command.params:
            if isinstance(param.type, click.Path | click.File):
                assert isinstance(param.type, InputPath | OutputPath), (command.name, param.name)


def test_a_project_is_not_a_bundle(tmp_path, model, compiled, monkeypatch):
    """A web app has a `manifest.json`, too."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main")
    (project / "manifest.json").write_text("{}")
    for place, where in ((project, tmp_path), (Path(), project), (Path(".."), project / ".git")):
        monkeypatch.chdir(where)
        assert main(["compile", str(model), "-o", str(place)]) == REFUSED
    assert not compiled
    assert (project / ".git" / "HEAD").read_text() == "ref: refs/heads/main"
    assert sorted(p.name for p in project.iterdir()) == [".git", "manifest.json"]


def test_a_bundle_with_the_users_files_in_it_stays(model, compiled, capsys):
    assert main(["compile", str(model)]) == 0
    Path("net.adrenoc/notes.txt").write_text("mine")
    assert main(["compile", str(model), "--preset", "fp32"]) == REFUSED
    assert "(notes.txt)" in capsys.readouterr().err
    assert Path("net.adrenoc/notes.txt").read_text() == "mine"
    Path("net.adrenoc/notes.txt").unlink()
    assert main(["compile", str(model), "--preset", "fp32"]) == 0
    assert open_bundle(Path("net.adrenoc")).manifest.options.preset == "fp32"


@pytest.mark.parametrize("name", ["net.tflite", "./net.tflite", "hard", "soft"])
@pytest.mark.parametrize(
    "command",
    [
        ["compile", "net.tflite", "-o"],
        ["check", "net.tflite", "--html"],
        ["tune", "run", "net.tflite", "--offline", "-o"],
        ["check-accuracy", "net.tflite", "--device", "host", "--preset", "fp16", "-o"],
        ["package", "net.tflite", "--as", "aar", "-o"],
        ["package", "net.tflite", "--as", "cmake", "-o"],
        ["run", "net.tflite", "--save"],
        ["run", "other", "--check", "net.tflite", "--save"],
        ["run", "other", "--input", "x=net.tflite", "--save"],
        ["compile", "other.onnx", "--precision-policy", "net.tflite", "-o"],
        ["compile", "other.onnx", "--tuning-log", "net.tflite", "-o"],
    ],
    ids=" ".join,
)
def test_no_output_replaces_an_input(model, command, name, capsys):
    os.link(model, "hard")
    Path("soft").symlink_to("net.tflite")
    before = model.read_bytes()
    assert main([*command, name]) == REFUSED
    assert "is an input of this command" in capsys.readouterr().err
    assert model.read_bytes() == before
    assert Path("soft").is_symlink()


def test_weights_beside_a_model_are_inputs(tmp_path, monkeypatch):
    import numpy as np
    import onnx

    monkeypatch.chdir(tmp_path)
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    proto = graph([node], {"x": (4,)}, ["y"], {"w": np.ones(4, "float32")})
    onnx.save(proto, "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    before = Path("w.bin").read_bytes()
    assert main(["compile", "m.onnx", "-o", "w.bin"]) == REFUSED
    assert main(["check", "m.onnx", "--html", "w.bin"]) == REFUSED
    assert Path("w.bin").read_bytes() == before


def test_files_of_a_bundle_are_inputs(bundle_folder, capsys):
    assert main(["run", str(bundle_folder), "--save", str(bundle_folder / "model.so")]) == REFUSED
    assert "is an input of this command" in capsys.readouterr().err


def test_what_another_compile_puts_there_is_not_kept_as_ours(model, compiled, monkeypatch):
    """Two compiles to one place: each keeps its own result under its own key."""
    import adrenoc.compile.make

    swap = adrenoc.compile.make.write_folder_atomically
    from contextlib import contextmanager

    @contextmanager
    def then_another(path: Path, kind) -> Iterator[Path]:
        with swap(path, kind) as folder:
            yield folder
        if path.name == "shared":
            monkeypatch.setattr(adrenoc.compile.make, "write_folder_atomically", swap)
            assert main(["compile", str(model), "-o", "shared", "--preset", "fp16"]) == 0

    monkeypatch.setattr(adrenoc.compile.make, "write_folder_atomically", then_another)
    assert main(["compile", str(model), "-o", "shared", "--preset", "fp32"]) == 0
    assert open_bundle(Path("shared")).manifest.options.preset == "fp16"
    assert main(["compile", str(model), "-o", "again", "--preset", "fp32"]) == 0
    assert open_bundle(Path("again")).manifest.options.preset == "fp32"
    assert len(compiled) == 2


@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--html", ["check", "net.tflite", "--html"]),
        ("--save", ["run", "net.adrenoc", "--save"]),
        ("--output", ["tune", "run", "net.tflite", "--offline", "-o"]),
    ],
)
def test_an_output_is_refused_before_the_work_by_the_option_that_names_it(
    model, compiled, option, command, capsys
):
    Path("file").touch()
    assert main([*command, "file/out"]) == REFUSED
    assert not compiled
    said = capsys.readouterr().err
    assert "cannot write" in said
    assert f"name another place with {option}\n" in said


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
    """Killed between the two renames."""
    make_bundle(left(tmp_path, "old"), "one")
    left(tmp_path, "old", stem="c").mkdir()
    (tmp_path / "c").mkdir()
    outputs.write_atomically(tmp_path / "other", "new")
    assert content_of(tmp_path / "b") == "one"
    assert names(tmp_path) == ["b", "c", "other"]


@contextmanager
def no_more_descriptors():
    """Within, the process may open nothing whose descriptor is not below those that it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_folder_that_no_descriptor_is_left_to_lock_is_not_left(tmp_path):
    with (
        no_more_descriptors(),
        pytest.raises(OSError, match="Too many open files"),
        aside.aside_folder(tmp_path / "x"),
    ):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("full", [False, True])
def test_a_folder_is_removed_where_its_lock_was_the_last_descriptor(tmp_path, full):
    with ExitStack() as limits, aside.aside_folder(tmp_path / "x") as folder:
        if full:
            (folder / "a" / "b").mkdir(parents=True)
            (folder / "a" / "c").touch()
            (folder / "a" / "d").symlink_to(folder)
        limits.enter_context(no_more_descriptors())
    assert names(tmp_path) == []
