"""A reference that ends half-way is told in a sentence that names the runtime."""

import numpy as np
import pytest
from onnx import helper

from adrenoc.base.errors import InputError, ToolError
from adrenoc.check import runtimes
from adrenoc.check.reference import _explain_end
from tests.models import graph, write


@pytest.mark.parametrize(
    ("code", "said"), [(1, "ended its process with code 1"), (-11, r"crashed \(SIGSEGV\)")]
)
def test_a_process_that_ends_is_the_runtimes(tmp_path, code, said):
    model = write(graph([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"]), tmp_path)
    error = _explain_end(model, code)
    assert isinstance(error, ToolError) and error.exit_code == 19
    with pytest.raises(ToolError, match=f"onnxruntime {said} as it computed"):
        raise error


def test_steps_that_litert_refuses_are_told_as_one_run_is(tmp_path, monkeypatch):
    def fail(*_) -> None:
        raise RuntimeError("gather index out of bounds")

    model = tmp_path / "m.tflite"
    model.write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(64))
    monkeypatch.setattr(runtimes, "open_interpreter", lambda *_, **__: None)
    monkeypatch.setattr(runtimes, "call_graph", fail)
    with pytest.raises(InputError, match=r"LiteRT cannot run .*gather index out of bounds"):
        runtimes.run_steps(model, [{"x": np.zeros(2)}], kept=())
