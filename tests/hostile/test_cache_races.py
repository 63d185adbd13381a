"""Models that change while they are compiled, and compiles that meet each other."""

import json
import shutil
from pathlib import Path

import onnx

from adrenoc.base.errors import ModelFormatError
from adrenoc.cli.main import main
from adrenoc.importers.formats import ModelFiles
from tests.models import graph, write


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
