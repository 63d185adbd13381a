"""`adrenoc build` by processes of its own: two devices side by side, and the same again."""

import json

import numpy as np
import onnx

from adrenoc.cli.main import main
from tests.models import graph, write

PROJECT = '[defaults]\ndevices = ["host:a660", "host:a750"]\n[[model]]\nfile = "net.onnx"\n'


def test_builds_side_by_side_and_the_same_again(tmp_path):
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = {"w": np.ones((8, 8), np.float32)}
    write(graph([node], {"x": [1, 8]}, ["y"], weights), tmp_path, "net.onnx")
    (tmp_path / "adrenoc.toml").write_text(PROJECT)
    command = ["build", str(tmp_path / "adrenoc.toml")]
    assert main(command) == 0
    lock = json.loads((tmp_path / "adrenoc.lock").read_text())
    targets = {one["name"]: one["target"] for one in lock["bundles"]}
    assert list(targets) == ["net-host-a660", "net-host-a750"]
    assert len(set(targets.values())) == 2
    assert main([*command, "--locked"]) == 0
    assert json.loads((tmp_path / "adrenoc.lock").read_text()) == lock
