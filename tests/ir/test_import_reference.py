"""The reference runtimes: intermediate tensors, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from adrenoc.bundle.manifest import TensorSpec
from adrenoc.check import reference
from adrenoc.check.inputs import make_inputs
from adrenoc.check.reference import (
    PLAIN,
    REFERENCE_KERNELS,
    UNSIGNED,
    other_kernels,
    quantised,
    run_reference,
)
from adrenoc.errors import DependencyError, InputError, ModelFormatError
from tests.models import graph, write, write_network
from tests.tflite.build import ModelBuilder, T

SPEC = TensorSpec(name="x", shape=(1, 4), dtype="float32")


def two_steps(folder: Path) -> Path:
    nodes = [helper.make_node("Neg", ["x"], ["mid"]), helper.make_node("Relu", ["mid"], ["y"])]
    return write(graph(nodes, {"x": SPEC.shape}, ["y"]), folder)


def test_onnx_outputs_and_intermediate_tensors(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    feeds = make_inputs([SPEC])
    found = run_reference(two_steps(tmp_path), feeds, tensors=["mid"])
    np.testing.assert_array_equal(found["mid"], -feeds["x"])
    np.testing.assert_array_equal(found["y"], np.maximum(-feeds["x"], 0))


def test_tflite_intermediate_tensors(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = write_network(tmp_path, "mixed_small", size=31, width=1.0)
    feeds = make_inputs([TensorSpec(name="input", shape=(1, 31, 31, 3), dtype="float32")])
    found = run_reference(path, feeds, tensors=["maximum_7"])
    assert list(found) == ["output", "maximum_7"]
    assert found["maximum_7"].std() > 0
    assert found["output"].sum() == pytest.approx(1.0, abs=1e-5)


def test_unknown_tensor_names_the_nearest(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(InputError) as caught:
        run_reference(two_steps(tmp_path), make_inputs([SPEC]), tensors=["midd"])
    assert "'mid'" in caught.value.hint


def test_missing_and_misshapen_inputs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(InputError, match="no array for 'x'"):
        run_reference(two_steps(tmp_path), {})
    with pytest.raises(InputError, match="cannot run"):
        run_reference(two_steps(tmp_path), {"x": np.ones((1, 5), np.float32)})


def test_what_litert_loads_and_cannot_run(tmp_path: Path) -> None:
    """A kernel that looks at the dtype when it is called."""
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    made = ModelBuilder()
    main = made.graph()
    operands = [
        main.add(T(dtype="int16", data=np.ones(4, np.int16), scales=[0.1]), name) for name in "ab"
    ]
    result = T(dtype="int16", shape=(4,), scales=[0.2])
    main.outputs = main.op("SQUARED_DIFFERENCE", operands, [result])
    path = tmp_path / "model.tflite"
    path.write_bytes(made.write())
    feeds = dict.fromkeys("ab", np.ones(4, np.int16))
    with pytest.raises(InputError, match=r"LiteRT cannot run .*only supports"):
        run_reference(path, feeds)


def test_misshapen_tflite_input(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = write_network(tmp_path, "mixed_small", size=31, width=1.0)
    with pytest.raises(InputError, match=r"expected float32 \[1, 31, 31, 3\]"):
        run_reference(path, {"input": np.ones((1, 3), np.float32)})


def test_model_that_the_runtime_refuses(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = graph([helper.make_node("NoSuchOperator", ["x"], ["y"])], {"x": (1,)}, ["y"])
    with pytest.raises(ModelFormatError, match="NoSuchOperator"):
        run_reference(write(model, tmp_path), {"x": np.ones(1, np.float32)})


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(DependencyError) as caught:
        reference.run_reference(two_steps(tmp_path), make_inputs([SPEC]))
    assert caught.value.hint == "pip install 'adrenoc[check]'"


def _with_quanta(folder: Path) -> Path:
    """A float in, quanta in between, a float and whole numbers out."""
    constants = {"s": np.array(0.05, np.float32), "z": np.array(3, np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Transpose", ["d"], ["y"], perm=[1, 0]),
        helper.make_node("Relu", ["d"], ["r"]),
    ]
    model = graph(nodes, {"x": SPEC.shape}, ["y", "r", "q"], constants)
    for value, kind in zip(model.graph.output, (1, 1, 2), strict=True):
        value.type.tensor_type.elem_type = kind
    return write(model, folder)


def test_a_quantised_model_tells_its_quanta(tmp_path: Path) -> None:
    found = quantised(_with_quanta(tmp_path))
    assert found is not None
    assert found.quanta == {"y": pytest.approx(0.05), "q": 1.0}
    assert quantised(two_steps(tmp_path)) is None


def test_other_kernels_compute_it_too(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path, feeds = _with_quanta(tmp_path), make_inputs([SPEC])
    expected, others = run_reference(path, feeds), other_kernels(path, feeds)
    assert set(others) == {PLAIN, UNSIGNED}
    for outputs in others.values():
        np.testing.assert_array_equal(outputs["q"], expected["q"])


def test_quanta_of_a_tflite_file(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    built = ModelBuilder()
    main = built.graph()
    data = np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 12)
    x = main.add(T(data=data), "x")
    quanta = T(dtype="int8", shape=(1, 12), scales=(0.02,), zeros=(5,))
    (q,) = main.op("QUANTIZE", [x], [quanta], "QuantizeOptions")
    (y,) = main.op("DEQUANTIZE", [q], [T(shape=(1, 12))], "DequantizeOptions")
    main.outputs = [q, y]
    path = tmp_path / "quanta.tflite"
    path.write_bytes(built.finish()[0])
    found = quantised(path)
    assert found is not None
    assert sorted(found.quanta.values()) == [pytest.approx(0.02), 1.0]
    assert set(other_kernels(path, {"x": data})) == {PLAIN, REFERENCE_KERNELS}
