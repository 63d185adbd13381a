"""LiteRT's tensors are told apart by their numbers, as files may give several one name."""

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from adrenoc.check.own_rounding import read_quanta
from adrenoc.check.reference import run_reference
from adrenoc.check.runtimes import tensor_names
from tests.tflite.build import ModelBuilder, T

RANDOM = np.random.default_rng(0)
A, B = (RANDOM.standard_normal((2, 3)).astype(np.float32) for _ in range(2))


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
