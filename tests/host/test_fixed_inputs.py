"""Inputs that are settings (`--fix`): constants of the bundle, which comparisons feed as well."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from adrenoc.base.errors import OptionError, ShapeError
from adrenoc.base.files.spill import LEAST_BYTES
from adrenoc.bundle.bundle import open_bundle
from adrenoc.cli.main import main
from tests.commands import compile_here, succeed
from tests.models import graph, write

pytestmark = pytest.mark.usefixtures("device")

DRAW = np.random.default_rng(8)


def write_rates(path: Path, *, fast: int = 16000) -> Path:
    """A filter of five taps for one rate, of three for others: the branches differ in shape."""

    def branch(taps: int, name: str) -> onnx.GraphProto:
        weights = DRAW.standard_normal((2, 1, taps)).astype(np.float32)
        nodes = [helper.make_node("Conv", ["x", f"w{name}"], [f"y{name}"])]
        made = [helper.make_tensor_value_info(f"y{name}", TensorProto.FLOAT, None)]
        return helper.make_graph(
            nodes, name, [], made, [numpy_helper.from_array(weights, f"w{name}")]
        )

    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["is_fast"]),
        helper.make_node(
            "If", ["is_fast"], ["t"], then_branch=branch(5, "fast"), else_branch=branch(3, "slow")
        ),
        helper.make_node("Mul", ["t", "gain"], ["y"]),
    ]
    inputs = {"x": ("batch", 1, 12), "sr": (), "gain": (1,)}
    whole = {"sr": TensorProto.INT64}
    made = graph(nodes, inputs, ["y"], {"rate": np.array(fast, np.int64)}, dtypes=whole)
    onnx.save(made, path)
    return path


def compile_and_run(model: Path, bundle: Path, *words: str, run: tuple[str, ...] = ()) -> Any:
    compiled = ["compile", str(model), "--device", "host", "-o", str(bundle), *words]
    succeed(*compiled)
    ran = succeed("run", bundle, "--check", model, "--json", *run)
    return json.loads(ran.stdout)


@pytest.mark.parametrize(("rate", "length"), [(16000, 8), (8000, 10)])
def test_a_setting_decides_a_branch(tmp_path, rate, length):
    model, bundle = write_rates(tmp_path / "m.onnx"), tmp_path / "m.adrenoc"
    said = compile_and_run(model, bundle, "--fix", f"sr={rate}")
    assert said["check"]["passed"]
    manifest = open_bundle(bundle).manifest
    assert [(spec.name, spec.shape) for spec in manifest.inputs] == [
        ("x", (1, 1, 12)),
        ("gain", (1,)),
    ]
    assert manifest.outputs[0].shape == (1, 2, length)
    assert manifest.options.values["fixed"] == [["sr", str(rate)]]
    decided = [d for d in open_bundle(bundle).decisions() if d["subject"] == "sr"]
    assert decided[0]["taken"] == f"a constant of {rate}"


def test_the_numbers_are_those_of_the_value(tmp_path):
    """A comparison feeds the reference the same value, and another value is another result."""
    model = write_rates(tmp_path / "m.onnx")
    words = "--fix", "sr=16000", "--fix", "gain=0.25"
    said = compile_and_run(model, tmp_path / "m.adrenoc", *words, "--preset", "fp32")
    assert said["check"]["passed"]
    succeed("run", tmp_path / "m.adrenoc", "--check-layers", model)


def test_an_if_on_an_input_names_the_option(tmp_path, capfd):
    model = write_rates(tmp_path / "m.onnx")
    assert main(["compile", str(model)]) != 0
    assert "--fix sr=16000 decides it" in capfd.readouterr().err


def test_an_if_on_what_weights_make_is_no_setting(tmp_path, capfd):
    """Large weights lie apart from the file that is read; what many numbers decide is no option."""

    def branch(operator: str) -> onnx.GraphProto:
        made = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
        return helper.make_graph([helper.make_node(operator, ["y"], ["z"])], operator, [], made)

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ReduceMax", ["y"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "zero"], ["is_large"]),
        helper.make_node(
            "If", ["is_large"], ["t"], then_branch=branch("Sin"), else_branch=branch("NonZero")
        ),
    ]
    weights = DRAW.standard_normal((256, 256)).astype(np.float32)
    assert weights.nbytes > LEAST_BYTES
    held = {"w": weights, "zero": np.float32(0)}
    write(graph(nodes, {"x": ("batch", 256)}, ["t"], held), tmp_path, "m.onnx")
    assert main(["compile", str(tmp_path / "m.onnx")]) == ShapeError.exit_code
    said = capfd.readouterr().err
    assert "--fix" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fix", "rate=1"), "did you mean"),
        (("--fix", "sr=fast"), "input 'sr' is int64; expected a whole number"),
        (("--fix", "sr=1.5"), "input 'sr' is int64; expected a whole number"),
        (("--fix", "sr=99999999999999999999"), "input 'sr' is int64; expected a whole number"),
        (("--fix", "gain=1,2"), "has 2 values"),
        (("--fix", "sr=1", "--fix", "sr=2"), "twice"),
        (("--fix", "sr"), "expected NAME=VALUE"),
    ],
)
def test_what_is_no_setting(tmp_path, capfd, words, said):
    model = write_rates(tmp_path / "m.onnx")
    if said == "did you mean":
        said = "--fix names the input 'rate'"
    assert main(["compile", str(model), *words]) == OptionError.exit_code
    assert said in capfd.readouterr().err


def test_a_build_fixes_inputs(tmp_path, monkeypatch):
    compile_here(monkeypatch)
    write_rates(tmp_path / "m.onnx")
    (tmp_path / "adrenoc.toml").write_text(
        '[[model]]\nfile = "m.onnx"\ndevices = ["host"]\nfix = ["sr=8000"]\n'
    )
    succeed("build", tmp_path / "adrenoc.toml")
    manifest = open_bundle(tmp_path / "build" / "m.adrenoc").manifest
    assert manifest.outputs[0].shape == (1, 2, 10)
