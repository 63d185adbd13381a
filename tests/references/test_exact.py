"""Whose error it is where we and the reference disagree: float64 says so, and a user's own runtime
is told apart from exact arithmetic."""

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import helper

from adrenoc.base.errors import InputError, ToolError
from adrenoc.check import runtimes
from adrenoc.check.own_rounding import Reference, read_quanta
from adrenoc.check.reference import _explain_end, run_reference
from adrenoc.check.reference_process import explain_installed, run_exact
from adrenoc.check.runtimes import tensor_names
from tests.models import graph, write
from tests.tflite.build import ModelBuilder, T

RANDOM = np.random.default_rng(0)


def group_norm(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Of a mean that is far from zero: onnxruntime takes the difference of two squares."""
    norm = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)
    constants = {"s": np.ones(8, np.float32), "b": np.zeros(8, np.float32)}
    model = graph([norm], {"x": [1, 8, 6, 6]}, ["y"], constants, opset=21)
    model.ir_version = 10
    x = RANDOM.standard_normal((1, 8, 6, 6)) + 4000
    return write(model, folder), {"x": x.astype(np.float32)}


def log_sigmoid(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Whose sigmoid has become 0."""
    nodes = "s = Sigmoid(x) y = Log(s)"
    x = np.linspace(-200, 200, 64, dtype=np.float32)[None]
    return write(graph(nodes, {"x": [1, 64]}, ["y"]), folder), {"x": x}


@pytest.mark.parametrize("make", [group_norm, log_sigmoid])
def test_who_agrees_with_float64_is_right(tmp_path, make):
    assert callable(make)
    path, inputs = make(tmp_path)
    found, right = run_reference(path, inputs), run_exact(path, inputs)
    assert right["y"].dtype == np.float64 and np.isfinite(right["y"]).all()
    reference = Reference(path, inputs, found)
    ours = reference.judge({"y": right["y"].astype(np.float32)}, tolerance=1e-4)
    assert ours.passed
    assert "float64 says that the reference is wrong" in ours.accepted[0].accepted_as
    wrong = reference.judge({"y": (0.9 * right["y"]).astype(np.float32)}, tolerance=1e-4)
    assert not wrong.passed
    assert "float64 says that the reference is wrong" in wrong.tensors[0].reason


def test_the_side_of_what_is_no_number_is_named(tmp_path):
    path, inputs = log_sigmoid(tmp_path)
    right = run_exact(path, inputs)["y"].astype(np.float32)
    seen = {"y": np.full_like(right, np.nan)}
    (first,) = Reference(path, inputs, {"y": right}).judge(seen, tolerance=1.0).tensors
    assert "are NaN or infinite in ours alone" in first.reason


def test_what_the_evaluator_lacks_is_not_settled(tmp_path):
    node = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft")
    path = write(graph([node], {"x": [4]}, ["y"], domains=["com.microsoft"]), tmp_path)
    assert run_exact(path, {"x": np.ones(4, np.float32)}) == {}


def few_bits(folder: Path, *, beside: bool) -> tuple[Path, dict[str, np.ndarray], np.ndarray]:
    """A product of weights of 4 bits that may round its data to bytes, and what it is exactly."""
    quanta = RANDOM.integers(0, 16, (16, 2, 32))
    scales = RANDOM.random((16, 2)).astype(np.float32)
    packed = (quanta[..., ::2] | quanta[..., 1::2] << 4).astype(np.uint8)
    node = helper.make_node(
        "MatMulNBits",
        ["x", "w", "s"],
        ["y"],
        domain="com.microsoft",
        K=64,
        N=16,
        bits=4,
        block_size=32,
        accuracy_level=4,
    )
    constants = {"w": packed, "s": scales.reshape(-1)}
    model = graph([node], {"x": [3, 64]}, ["y"], constants, domains=["com.microsoft"])
    path = folder / "m.onnx"
    onnx.save(model, path, save_as_external_data=beside, location="m.data", size_threshold=16)
    x = RANDOM.standard_normal((3, 64)).astype(np.float32)
    return path, {"x": x}, x @ ((quanta - 8) * scales[..., None]).reshape(16, 64).T


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("optimise", [False, True])
def test_the_reference_rounds_no_data_of_products_of_few_bits(tmp_path, beside, optimise):
    path, inputs, exact = few_bits(tmp_path, beside=beside)
    found = run_reference(path, inputs, optimise=optimise)["y"]
    np.testing.assert_allclose(found, exact, atol=1e-4 * float(np.ptp(exact)))
    told = explain_installed(path, inputs, {"y": exact.astype(np.float32)})
    assert "its accuracy_level lets it round data to bytes" in told


def test_recurrent_layers_of_bytes_tell_what_users_see(tmp_path):
    weights = {
        "w": RANDOM.integers(-128, 128, (1, 5, 24)).astype(np.int8),
        "r": RANDOM.integers(-128, 128, (1, 6, 24)).astype(np.int8),
        "ws": np.array([0.01], np.float32),
        "wz": np.zeros(1, np.int8),
        "rs": np.array([0.01], np.float32),
        "rz": np.zeros(1, np.int8),
    }
    operands = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", operands, ["y"], domain="com.microsoft", hidden_size=6
    )
    model = graph([node], {"x": [7, 2, 5]}, ["y"], weights, domains=["com.microsoft"])
    path = write(model, tmp_path)
    inputs = {"x": RANDOM.standard_normal((7, 2, 5)).astype(np.float32)}
    told = explain_installed(path, inputs, run_reference(path, inputs))
    assert "rounds data and states of recurrent layers to bytes" in told


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


A, B = np.random.default_rng(1).standard_normal((2, 2, 3)).astype(np.float32)


def difference() -> ModelBuilder:
    """exp(x - x__1), whose tensors have one name each way."""
    model = ModelBuilder()
    main = model.graph()
    given = [main.add(T(data=np.zeros((2, 3), np.float32)), "x") for _ in range(2)]
    (between,) = main.op("SUB", given, [T(shape=(2, 3))], "SubOptions")
    main.outputs = main.op("EXP", [between], [T(shape=(2, 3))], "ExpOptions")
    for index in (between, *main.outputs):
        main.tensors[index].name = "y"
    return model


def test_inputs_tensors_and_outputs_of_one_name(tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(difference().write())
    assert {"x", "x__1", "y", "y__1"} <= tensor_names(path)
    found = run_reference(path, {"x": A, "x__1": B}, tensors=["y"])
    np.testing.assert_allclose(found["y"], A - B, rtol=1e-6)
    np.testing.assert_allclose(found["y__1"], np.exp(A - B), rtol=1e-5)
    assert read_quanta(path) is None


def test_a_buffer_that_also_names_bytes_behind_the_file(tmp_path):
    model: Any = schema.ModelT.InitFromPackedBuf(difference().write(), 0)
    model.buffers.append(schema.BufferT())
    model.buffers[-1].data = [1, 2, 3, 4]
    model.buffers[-1].offset, model.buffers[-1].size = 1 << 32, 1 << 63
    writer = flatbuffers.Builder(1024)
    writer.Finish(model.Pack(writer), b"TFL3")
    path = tmp_path / "m.tflite"
    path.write_bytes(bytes(writer.Output()))
    found = run_reference(path, {"x": A, "x__1": B})
    np.testing.assert_allclose(found["y__1"], np.exp(A - B), rtol=1e-5)
