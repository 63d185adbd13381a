"""A runtime that crashes on a model takes its own process along, and no more."""

import os
import pickle
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import InputError, ToolError
from adrenoc.base.host.proc import own_module
from adrenoc.check import reference
from adrenoc.check.reference import APART, other_kernels, run_reference
from tests.models import graph, write

_CRASHES = """
import os, signal
class SessionOptions:
    def add_session_config_entry(self, *_): pass
class GraphOptimizationLevel:
    ORT_DISABLE_ALL = 0
class InferenceSession:
    def __init__(self, *_, **__): os.kill(os.getpid(), signal.SIGSEGV)
class capi:
    class onnxruntime_pybind11_state:
        class Fail(RuntimeError): pass
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Each test has a process of its own."""
    APART.end()
    yield
    APART.end()


@pytest.fixture
def model(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    nodes = "y = Neg(x)"
    return write(graph(nodes, {"x": (1, 4)}, ["y"]), tmp_path, "m.onnx")


def test_a_crash_is_an_error_in_a_sentence(model, tmp_path, monkeypatch):
    package = tmp_path / "packages" / "onnxruntime"
    (package / "capi").mkdir(parents=True)
    (package / "__init__.py").write_text(_CRASHES)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(package.parent))
        for _ in range(2):  # the next call has a process again
            with pytest.raises(ToolError, match=r"crashed \(SIGSEGV\) as it computed .*m\.onnx"):
                run_reference(model, {"x": np.ones((1, 4), np.float32)})
    found = run_reference(model, {"x": np.ones((1, 4), np.float32)})
    assert found["y"].tolist() == [[-1.0] * 4]


def test_one_process_serves_all_calls_and_knows_the_folder(model, tmp_path, monkeypatch):
    x = {"x": np.ones((1, 4), np.float32)}
    run_reference(Path("m.onnx"), x)
    first = APART._process
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    model.rename(elsewhere / "other.onnx")
    monkeypatch.chdir(elsewhere)
    assert run_reference(Path("other.onnx"), x)["y"].tolist() == [[-1.0] * 4]
    with pytest.raises(InputError, match="there is no array for 'x'"):
        run_reference(Path("other.onnx"), {})
    assert other_kernels(Path("other.onnx"), x)
    assert APART._process is first and first is not None
    assert os.getsid(first.pid) == first.pid  # which Ctrl-C at a terminal does not reach


def test_a_forked_process_has_one_of_its_own(model):
    x = {"x": np.ones((1, 4), np.float32)}
    run_reference(model, x)
    child = os.fork()
    if child == 0:
        found = run_reference(model, x)["y"].tolist()
        os._exit(0 if found == [[-1.0] * 4] else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert run_reference(model, x)["y"].tolist() == [[-1.0] * 4]


def test_an_interruption_leaves_no_answer_for_the_next_question(model, monkeypatch):
    x = {"x": np.ones((1, 4), np.float32)}
    run_reference(model, x)

    def interrupted(_stream: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reference.pickle, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_reference(model, x)
    two = {"x": np.full((1, 4), 2, np.float32)}
    assert run_reference(model, two)["y"].tolist() == [[-2.0] * 4]


def test_a_process_that_was_killed_is_started_again(model):
    x = {"x": np.ones((1, 4), np.float32)}
    run_reference(model, x)
    os.kill(APART._process.pid, signal.SIGKILL)
    APART._process.wait()
    assert run_reference(model, x)["y"].tolist() == [[-1.0] * 4]


@pytest.mark.parametrize("cut", [False, True])
def test_nobody_who_waits_for_the_answer_is_no_failure(cut, tmp_path):
    """As when the command is killed while it asks, or while the reference computes."""
    question = pickle.dumps((str(tmp_path), "run_reference", Path("m.onnx"), {}, {}))
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        own_module("adrenoc.check.reference_process"),
        input=question[: len(question) // 2] if cut else question,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
