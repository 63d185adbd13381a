"""References as users have them, and as CPUs without VNNI compute them."""

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from adrenoc.base.errors import InputError
from adrenoc.check import reference_process
from adrenoc.check.doctor import _references
from adrenoc.check.reference_process import explain_installed
from adrenoc.check.runtimes import run_reference
from adrenoc.importers.onnx import session
from adrenoc.importers.onnx.session import mixes_signs, open_as_installed, open_session, saturates
from tests.commands import run_program
from tests.models import parse_nodes
from tests.qoperator import QNet, with_conversions
from tests.sources import PACKAGE


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
def test_fused_and_plain_kernels_agree(tmp_path, form):
    net = network("uint8")
    path, feeds = write(tmp_path, net, form), {"x": net.image()}
    (fused,) = run_reference(path, feeds).values()
    (plain,) = run_reference(path, feeds, optimise=False).values()
    assert np.ptp(fused.astype(int)) > 40
    # Plain kernels of the second form add floats.
    assert np.abs(fused.astype(int) - plain).max() <= (form == "qdq")


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
def test_a_difference_is_told_where_there_is_one(tmp_path, form):
    net = network("uint8")
    path, feeds = write(tmp_path, net, form), {"x": net.image()}
    told = explain_installed(path, feeds, run_reference(path, feeds))
    assert ("is off the exact arithmetic by" in told) == saturates()


def test_what_saturates_is_told_with_its_size(tmp_path, monkeypatch):
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

    monkeypatch.setattr(reference_process, "saturates", lambda: True)
    monkeypatch.setattr(reference_process, "open_as_installed", Saturating)
    told = explain_installed(path, feeds, expected)
    share = 8 / np.ptp(expected[name].astype(int))
    assert f"by {share:.1e} of the range of `{name}`" in told


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
def test_what_has_one_sign_stays_as_it_is(form):
    assert mixes_signs(network("uint8").model())
    model = network("int8").model()
    model = with_conversions(model) if form == "qdq" else model
    assert not mixes_signs(model)
    before = model.SerializeToString(deterministic=True)
    open_session(model)
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("wrong", [True, False])
def test_what_is_too_large_to_change_is_refused_where_it_has_to_be(tmp_path, monkeypatch, wrong):
    path = write(tmp_path, network("uint8"), "qoperator")
    monkeypatch.setattr(session, "_PROTOBUF_MAX_BYTES", 1000)
    monkeypatch.setattr(session, "saturates", lambda: wrong)
    if wrong:
        with pytest.raises(InputError, match="bytes are multiplied exactly, can be up to 1000"):
            open_session(path)
    else:
        assert open_session(path).get_inputs()


def test_sessions_are_made_in_one_place():
    """But for one that computes nothing: it writes a file of onnxruntime's format as ONNX."""
    made = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "runtime.InferenceSession(" in path.read_text()
    }
    assert made == {"importers/onnx/session.py", "importers/onnx/load.py"}


def test_files_that_go_in_circles_end():
    nodes = parse_nodes("a = Reshape(b) b = Reshape(a) c = MatMul(a, b) d = MatMulInteger(a, b)")
    assert not mixes_signs(onnx.ModelProto(graph=onnx.helper.make_graph(nodes, "g", [], [])))


def test_doctor_names_it():
    found = _references()[0]
    assert found.state == "ok"
    assert ("saturate" in found.seen) == saturates()


HERE = Path(__file__).parent
MODULES = ("test_exact_integers.py", "test_as_installed.py")
SATURATES = "from adrenoc.importers.onnx.session import saturates; print(saturates())"


def run_on_haswell(*words: str) -> str:
    qemu = shutil.which("qemu-x86_64")
    if qemu is None:
        pytest.skip(
            "no qemu-x86_64, which stands for a CPU without VNNI: apt-get install qemu-user"
        )
    command = (qemu, "-cpu", "Haswell", sys.executable, *words)
    ended = run_program(command, cwd=HERE.parents[1])
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    return ended.stdout


def test_its_own_products_saturate():
    """Else the next test would say nothing."""
    assert run_on_haswell("-c", SATURATES).split() == ["True"]


@pytest.mark.nightly
def test_references_are_exact():
    told = run_on_haswell(
        *("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q"),
        *(str(HERE / module) for module in MODULES),
    )
    assert " passed" in told
    assert "skipped" not in told
