"""What commands may write to: never an input, never what is not an older output of theirs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from adrenoc.base.errors import OutputError
from adrenoc.bundle.bundle import open_bundle
from adrenoc.cli.guarded import Command, InputPath, OutputPath
from adrenoc.cli.main import cli, main
from tests.models import graph

REFUSED = OutputError.exit_code


def all_commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield from all_commands(command) if isinstance(command, click.Group) else (command,)


def test_every_path_of_every_command_is_an_input_or_an_output() -> None:
    for command in all_commands(cli):
        assert isinstance(command, Command), command.name
        for param in command.params:
            if isinstance(param.type, click.Path | click.File):
                assert isinstance(param.type, InputPath | OutputPath), (command.name, param.name)


def test_a_project_is_not_a_bundle(
    tmp_path: Path, model: Path, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_bundle_with_the_users_files_in_it_stays(
    model: Path, compiled: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
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
def test_no_output_replaces_an_input(
    model: Path, command: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.link(model, "hard")
    Path("soft").symlink_to("net.tflite")
    before = model.read_bytes()
    assert main([*command, name]) == REFUSED
    assert "is an input of this command" in capsys.readouterr().err
    assert model.read_bytes() == before
    assert Path("soft").is_symlink()


def test_weights_beside_a_model_are_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_files_of_a_bundle_are_inputs(
    bundle_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(bundle_folder), "--save", str(bundle_folder / "model.so")]) == REFUSED
    assert "is an input of this command" in capsys.readouterr().err


def test_what_another_compile_puts_there_is_not_kept_as_ours(
    model: Path, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two compiles to one place: each keeps its own result under its own key."""
    import adrenoc.compile.make

    swap = adrenoc.compile.make.write_folder_atomically
    from contextlib import contextmanager

    @contextmanager
    def then_another(path: Path, kind: Any) -> Iterator[Path]:
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
    model: Path,
    compiled: list[Any],
    option: str,
    command: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("file").touch()
    assert main([*command, "file/out"]) == REFUSED
    assert not compiled
    said = capsys.readouterr().err
    assert "cannot write" in said
    assert f"name another place with {option}\n" in said
