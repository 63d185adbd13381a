"""onnxruntime tells nobody of what users compile: its wheels would by themselves."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.models import graph, write

ROOT = Path(__file__).resolve().parents[2]
_ASKS = """
import sys
from pathlib import Path
from adrenoc.base.host.extras import import_onnxruntime, runtime_errors
runtime_errors()
import_onnxruntime().InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
"""


def test_it_leaves_nothing_in_the_folders_of_the_user(tmp_path):
    model = write(graph("y = Relu(x)", {"x": (4,)}, ["y"]), tmp_path)
    places = {name: tmp_path / name for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
    for place in places.values():
        place.mkdir()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ORT_", "XDG_"))}
    subprocess.run(
        [sys.executable, "-c", _ASKS, model],
        env={**inherited, "PYTHONPATH": str(ROOT), **{k: str(v) for k, v in places.items()}},
        check=True,
    )
    assert [path for place in places.values() for path in place.rglob("*")] == []


def test_one_room_imports_it():
    imports = re.compile(r"^\s*(import onnxruntime|from onnxruntime)|\"onnxruntime\"\)", re.M)
    theirs = [path for path in (ROOT / "adrenoc").rglob("*.py") if imports.search(path.read_text())]
    assert [path.name for path in theirs] == ["extras.py"]
