"""Custom operators that an installed package brings the meaning of."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import DependencyError, ToolError
from adrenoc.cli.main import main
from adrenoc.compile.cache import tool_versions
from adrenoc.importers.tflite import untranslated
from tests.commands import invoke, succeed
from tests.tflite.build import ModelBuilder, T

pytestmark = pytest.mark.usefixtures("device")

SOURCE = """
from tvm import relax

def hard_shrink(node):
    x, limit = node.real(0), float(node.option("limit", 0.5))
    far = node.emit(relax.op.greater(node.emit(relax.op.abs(x)), relax.const(limit)))
    return relax.op.where(far, x, relax.const(0.0))
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with one operator, as pip would lay it."""
    site = tmp_path / "site"
    record = site / "my_operators-1.2.dist-info"
    record.mkdir(parents=True)
    (site / "my_operators.py").write_text(SOURCE)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: my-operators\nVersion: 1.2\n")
    (record / "entry_points.txt").write_text(
        "[adrenoc.tflite_operators]\nHardShrink = my_operators:hard_shrink\n"
        "Absent = my_operators:absent\n"
    )
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    untranslated._found.cache_clear()
    yield site
    untranslated._found.cache_clear()
    sys.modules.pop("my_operators", None)


def write_model(folder: Path, kind: str) -> Path:
    builder = ModelBuilder()
    graph = builder.graph()
    x = graph.add(T(data=np.zeros((2, 5), np.float32)), "x")
    graph.outputs = graph.op(kind, [x], [T(shape=(2, 5))], custom=b"")
    path = folder / "m.tflite"
    path.write_bytes(builder.write())
    return path


def test_a_package_tells_what_an_operator_computes(installed, tmp_path):
    model, bundle, saved = write_model(tmp_path, "HardShrink"), tmp_path / "b", tmp_path / "y.npz"
    x = np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5)
    np.save(tmp_path / "x.npy", x)
    for words in (
        ["compile", str(model), "--device", "host", "-o", str(bundle)],
        ["run", str(bundle), "--input", str(tmp_path / "x.npy"), "--save", str(saved)],
    ):
        succeed(*words)
    with np.load(saved) as held:
        [made] = held.values()
    assert np.allclose(made, np.where(np.abs(x) > 0.5, x, 0), atol=1e-3)
    said = invoke("inspect", bundle, "--json")
    assert json.loads(said.stdout)["versions"]["my_operators"].startswith("1.2+")


def test_a_change_of_it_is_another_compilation(installed):
    before = tool_versions()
    (installed / "my_operators.py").write_text(SOURCE + "# changed\n")
    assert tool_versions() != before


def test_a_package_without_the_function(installed, tmp_path, capfd):
    assert main(["compile", str(write_model(tmp_path, "Absent"))]) == DependencyError.exit_code
    assert "my_operators:absent, which cannot be imported" in capfd.readouterr().err


def test_a_reference_that_lacks_it_is_no_damaged_model(installed, tmp_path, capfd):
    model, bundle = write_model(tmp_path, "HardShrink"), tmp_path / "b.adrenoc"
    assert main(["compile", str(model), "--device", "host", "-o", str(bundle)]) == 0
    assert main(["run", str(bundle), "--check", str(model)]) == ToolError.exit_code
    assert "nothing to compare with" in capfd.readouterr().err
