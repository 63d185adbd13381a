"""Models that change while they are compiled, and compiles that meet each other."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from adrenoc.cli.main import main
from adrenoc.errors import ModelFormatError
from adrenoc.importers.formats import ModelFiles
from tests.models import graph, write


def test_a_model_that_changes_is_not_taken_for_the_one_that_was_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
