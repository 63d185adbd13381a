"""What users have of onnxruntime on a computer is told apart from the exact arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from adrenoc.check import installed
from adrenoc.check.doctor import examine
from adrenoc.check.installed import explain_installed
from adrenoc.check.runtimes import run_reference
from adrenoc.importers.onnx.session import open_as_installed, open_session, saturates
from adrenoc.importers.onnx.unsigned_products import mixes_signs
from tests.qoperator import QNet, with_conversions


def network(dtype: str) -> QNet:
    net = QNet((1, 16, 9, 9), dtype=dtype)
    net.conv(32, kernel=3, per_channel=True)
    net.conv(16)
    net.gemm(10)
    return net


def write(folder: Path, net: QNet, form: str) -> Path:
    model = net.model()
    onnx.save(with_conversions(model) if form == "qdq" else model, folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
def test_fused_and_plain_kernels_agree(tmp_path: Path, form: str) -> None:
    net = network("uint8")
    path, feeds = write(tmp_path, net, form), {"x": net.image()}
    (fused,) = run_reference(path, feeds).values()
    (plain,) = run_reference(path, feeds, optimise=False).values()
    assert np.ptp(fused.astype(int)) > 40
    # Plain kernels of the second form add floats.
    assert np.abs(fused.astype(int) - plain).max() <= (form == "qdq")


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
def test_a_difference_is_told_where_there_is_one(tmp_path: Path, form: str) -> None:
    net = network("uint8")
    path, feeds = write(tmp_path, net, form), {"x": net.image()}
    told = explain_installed(path, feeds, run_reference(path, feeds))
    assert ("is off the exact arithmetic by" in told) == saturates()


def test_what_saturates_is_told_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every CPU: products that saturate are put in the place of those that do not."""
    net = network("uint8")
    path, feeds = write(tmp_path, net, "qoperator"), {"x": net.image()}
    expected = run_reference(path, feeds)
    (name,) = expected

    class Saturating:
        def __init__(self, model: Path) -> None:
            self._session = open_as_installed(model)
            self.get_inputs, self.get_outputs = self._session.get_inputs, self._session.get_outputs

        def run(self, names: list[str], feeds: dict[str, Any]) -> list[np.ndarray]:
            wrong = expected[name].copy()
            wrong[0, 0] ^= 8
            return [wrong]

    monkeypatch.setattr(installed, "saturates", lambda: True)
    monkeypatch.setattr(installed, "open_as_installed", Saturating)
    told = explain_installed(path, feeds, expected)
    share = 8 / np.ptp(expected[name].astype(int))
    assert f"by {share:.1e} of the range of `{name}`" in told


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
def test_what_has_one_sign_stays_as_it_is(form: str) -> None:
    assert mixes_signs(network("uint8").model())
    model = network("int8").model()
    model = with_conversions(model) if form == "qdq" else model
    assert not mixes_signs(model)
    before = model.SerializeToString(deterministic=True)
    open_session(model)
    assert model.SerializeToString(deterministic=True) == before


def test_files_that_go_in_circles_end() -> None:
    nodes = [
        onnx.helper.make_node("Reshape", ["b"], ["a"]),
        onnx.helper.make_node("Reshape", ["a"], ["b"]),
        onnx.helper.make_node("MatMul", ["a", "b"], ["c"]),
        onnx.helper.make_node("MatMulInteger", ["a", "b"], ["d"]),
    ]
    assert not mixes_signs(onnx.ModelProto(graph=onnx.helper.make_graph(nodes, "g", [], [])))


def test_doctor_names_it() -> None:
    (found,) = (finding for finding in examine() if finding.subject == "onnxruntime")
    assert found.state == "ok"
    assert ("saturate" in found.seen) == saturates()
