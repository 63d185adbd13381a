"""TFLite files with several signatures, and with open axes: what is compiled is told of, and LiteRT
is called in the same way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from click.testing import CliRunner

from adrenoc.base.errors import OptionError, ShapeError
from adrenoc.bundle.bundle import open_bundle
from adrenoc.check.reference import run_reference
from adrenoc.cli.main import cli, main
from tests.tflite.build import ModelBuilder, T


def write_scales(path: Path, scales: dict[str, float], shape: Sequence[int] = (2, 3)) -> Path:
    """A graph for each of the scales, which is also its signature, over a tensor of this shape, in
    which an extent of -1 is open."""
    builder = ModelBuilder()
    for name, scale in scales.items():
        graph = builder.graph(name)
        given = graph.add(T(data=np.ones([max(d, 1) for d in shape], np.float32)), f"{name}_x:0")
        factor = graph.add(T(is_constant=True, data=np.array([scale], np.float32)))
        graph.outputs = graph.op("MUL", [given, factor], [T(shape=tuple(shape))], "MulOptions")
    model = schema.ModelT.InitFromPackedBuf(builder.write(), 0)
    model.signatureDefs = []
    for number, (name, graph) in enumerate(zip(scales, model.subgraphs, strict=True)):
        for tensor in (graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]):
            tensor.shapeSignature = list(shape)
            tensor.shape = [max(d, 1) for d in shape]
        graph.tensors[graph.outputs[0]].name = b"y"
        made = schema.SignatureDefT()
        made.signatureKey, made.subgraphIndex = name.encode(), number
        made.inputs, made.outputs = _map("x", graph.inputs[0]), _map("y", graph.outputs[0])
        model.signatureDefs.append(made)
    writer = flatbuffers.Builder(1024)
    writer.Finish(model.Pack(writer), b"TFL3")
    path.write_bytes(bytes(writer.Output()))
    return path


def _map(name: str, index: int) -> list[Any]:
    made = schema.TensorMapT()
    made.name, made.tensorIndex = name.encode(), index
    return [made]


def call(*words: str) -> Any:
    result = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


TWO = {"double": 2.0, "triple": 3.0}


@pytest.mark.parametrize("key", TWO)
def test_a_signature_is_compiled(tmp_path: Path, key: str) -> None:
    model, bundle = write_scales(tmp_path / "m.tflite", TWO), tmp_path / "m.adrenoc"
    call("compile", str(model), "--device", "host", "--set", f"signature={key}", "-o", str(bundle))
    manifest = open_bundle(bundle).manifest
    assert [spec.name for spec in manifest.inputs] == [f"{key}_x:0"]
    assert manifest.options.values["signature"] == key
    said = json.loads(call("run", str(bundle), "--check", str(model), "--json").stdout)
    assert said["check"]["passed"]
    call("run", str(bundle), "--check-layers", str(model))
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(run_reference(model, {f"{key}_x:0": given})["y"], TWO[key] * given)


def test_the_first_is_told(tmp_path: Path) -> None:
    model, bundle = write_scales(tmp_path / "m.tflite", TWO), tmp_path / "m.adrenoc"
    line = (
        "assumed the first graph's signature, double: the file has others: 'triple'; "
        "--set signature=triple"
    )
    for words in (
        ("compile", str(model), "--device", "host", "-o", str(bundle)),
        ("inspect", str(bundle)),
        ("check", str(model)),
    ):
        assert line in " ".join(call(*words).stdout.split())


def test_of_one_signature_nothing_is_told(tmp_path: Path) -> None:
    model = write_scales(tmp_path / "m.tflite", {"double": 2.0})
    made = call("compile", str(model), "--device", "host", "-o", str(tmp_path / "m.adrenoc"))
    assert "assumed" not in made.stdout


def test_an_unknown_signature(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = write_scales(tmp_path / "m.tflite", TWO)
    assert main(["compile", str(model), "--set", "signature=tripel"]) == OptionError.exit_code
    said = capfd.readouterr().err
    assert "did you mean" in said
    assert "its signatures are 'double', 'triple'" in said


def test_an_open_batch_is_one_and_another_is_computed(tmp_path: Path) -> None:
    model, bundle = write_scales(tmp_path / "m.tflite", {"f": 2.0}, (-1, 3)), tmp_path / "m.adrenoc"
    made = call("compile", str(model), "--device", "host", "-o", str(bundle))
    assert "a batch of 1, f_x:0: the file leaves it open; --shape f_x:0:N,3" in made.stdout
    call("compile", str(model), "--device", "host", "-o", str(bundle), "--shape", "f_x:0:5,3")
    said = json.loads(call("run", str(bundle), "--check", str(model), "--json").stdout)
    assert said["check"]["passed"]
    assert open_bundle(bundle).manifest.outputs[0].shape == (5, 3)


def test_the_reference_is_resized_before_it_is_laid_out(tmp_path: Path) -> None:
    """Of the extents in the file, ones, no window fits."""
    builder = ModelBuilder()
    graph = builder.graph()
    weights = np.random.default_rng(0).standard_normal((2, 3, 3, 1)).astype(np.float32)
    x = graph.add(T(data=np.ones((1, 1, 1, 1), np.float32)), "x")
    held = [graph.add(T(is_constant=True, data=w)) for w in (weights, np.ones(2, np.float32))]
    options = {"padding": 1, "strideH": 1, "strideW": 1}
    graph.outputs = graph.op(
        "CONV_2D", [x, *held], [T(shape=(1, 1, 1, 2))], "Conv2DOptions", options
    )
    model = schema.ModelT.InitFromPackedBuf(builder.write(), 0)
    for index in (x, graph.outputs[0]):
        model.subgraphs[0].tensors[index].shapeSignature = [1, -1, -1, 1 if index == x else 2]
    writer = flatbuffers.Builder(1024)
    writer.Finish(model.Pack(writer), b"TFL3")
    path, bundle = tmp_path / "m.tflite", tmp_path / "m.adrenoc"
    path.write_bytes(bytes(writer.Output()))
    words = ["compile", str(path), "--device", "host", "-o", str(bundle), "--shape", "x:1,8,9,1"]
    call(*words)
    said = json.loads(call("run", str(bundle), "--check", str(path), "--json").stdout)
    assert said["check"]["passed"]
    assert open_bundle(bundle).manifest.outputs[0].shape == (1, 6, 7, 2)


@pytest.mark.parametrize(
    ("shape", "option"),
    [((-1, -1, -1, 3), "--shape f_x:0:1,224,224,3"), ((-1,), "--shape f_x:0:128")],
)
def test_other_open_axes_are_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], shape: tuple[int, ...], option: str
) -> None:
    """A converter writes 1 for each, which no image and no sound has."""
    model = write_scales(tmp_path / "m.tflite", {"f": 2.0}, shape)
    assert main(["compile", str(model)]) == ShapeError.exit_code
    assert f"add {option} (" in capfd.readouterr().err
