"""Outside tools and the cache in trouble: what was started ends, what is damaged is made again."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest

from adrenoc.base.errors import DiskFullError, ModelFormatError, ToolError
from adrenoc.base.host.proc import run_tool
from adrenoc.cli.main import main
from adrenoc.importers.formats import ModelFiles
from tests.models import graph, write
from tests.patience import WAIT_S, is_running


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_helpers_of_a_tool_that_takes_too_long_end_too(trap, tmp_path):
    told = tmp_path / "helper"
    script = f"{trap}sleep 1000 & echo $! > {told}.part; mv {told}.part {told}; wait"
    with pytest.raises(ToolError, match="was stopped after"):
        run_tool(["sh", "-c", script], deed="wait", timeout_s=5.0)
    helper = int(told.read_text())
    until = time.monotonic() + WAIT_S
    while is_running(helper) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(helper)


@pytest.mark.parametrize("words", [["targets"], ["--help"], ["presets", "--json"]])
def test_a_reader_that_has_left_is_no_defect(words):
    """As of `adrenoc targets | head -1`: there is nobody to tell, and 1 is for defects."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "adrenoc", *words]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_long_report_without_room_for_it(tmp_path, monkeypatch):
    """The last lines have to do where the rest cannot be kept."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ToolError, match="100") as caught:
        run_tool(["sh", "-c", "seq 100; exit 1"], deed="count")
    assert "all 100 lines" not in caught.value.message
    assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.parametrize(
    "said", ["No space left on device", "Disk quota exceeded", "File too large"]
)
def test_a_tool_without_room_on_the_disk(said, tmp_path, monkeypatch):
    """Assemblers say so first, then hundreds of lines that follow from it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = f"echo \"a.s: can't write unit0.o: '{said}'\"; seq 100; exit 1"
    with pytest.raises(DiskFullError) as caught:
        run_tool(["sh", "-c", script, "-o", "/usr/.made.part/unit0.o"], deed="build the library")
    assert caught.value.message == (f"cannot build the library: `sh` exited with 1: {said.lower()}")
    assert caught.value.hint == (
        f"free some space (df -h {tmp_path} /usr), or set TMPDIR and ADRENOC_CACHE_DIR to other "
        "folders"
    )
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_a_model_that_changes_is_not_taken_for_the_one_that_was_hashed(
    tmp_path, monkeypatch, capsys
):
    """Hashed first, read later: what lies between must not poison the cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADRENOC_CACHE_DIR", str(tmp_path / "cache"))
    models = [
        graph([onnx.helper.make_node(op, ["x"], ["y"])], {"x": (4,)}, ["y"])
        for op in ("Relu", "Abs")
    ]
    write(models[0], tmp_path)
    hashed = ModelFiles.sha256

    def replaced_then(self: ModelFiles) -> str:
        digest = hashed(self)
        write(models[1], tmp_path)
        return digest

    monkeypatch.setattr(ModelFiles, "sha256", replaced_then)
    code = main(["compile", "model.onnx", "--device", "host", "--json"])
    said = json.loads(capsys.readouterr().out)["error"]
    assert code == ModelFormatError.exit_code
    assert "changed while it was compiled" in said["message"]
    assert not list((tmp_path / "cache").rglob("manifest.json"))
    assert not Path("model.adrenoc").exists()


DAMAGE = {"deep": "[" * 100_000, "digits": '{"a": ' + "9" * 5000 + "}", "a list": "[]"}


def test_an_entry_that_was_damaged_is_made_again(tmp_path, monkeypatch, capsys):
    """Whatever is in a text of the cache, the next command ends well, and the one after hits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADRENOC_CACHE_DIR", str(tmp_path / "cache"))
    write(graph([onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": (4,)}, ["y"]), tmp_path)
    command = ["compile", "model.onnx", "--device", "host", "-o", "out"]
    assert main(command) == 0
    whole = {path.name: path.read_bytes() for path in Path("out").glob("*.json")}
    assert len(whole) > 2
    for number, name in enumerate(whole):
        kind = list(DAMAGE)[number % len(DAMAGE)]
        (entry,) = (tmp_path / "cache" / "bundles").glob(f"*/*/{name}")
        entry.write_text(DAMAGE[kind])
        shutil.rmtree("out")
        assert main(command) == 0, f"{name}: {kind}"
        assert "damaged cache entry" in capsys.readouterr().err
        assert entry.read_bytes() == whole[name]
        assert {path.name: path.read_bytes() for path in Path("out").glob("*.json")} == whole

    place = entry.parent
    shutil.rmtree(place)
    place.write_text("a file where a folder belongs")
    shutil.rmtree("out")
    assert main(command) == 0
    assert "damaged cache entry" in capsys.readouterr().err
    assert place.is_dir()
