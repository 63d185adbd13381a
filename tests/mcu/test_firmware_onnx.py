"""Quantised ONNX models for microcontrollers: under QEMU every byte is onnxruntime's."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from adrenoc.base.errors import CompileError, UnsupportedOperatorError
from adrenoc.check.reference import expected_outputs
from adrenoc.cli.main import main
from adrenoc.firmware.mcu.core import load_core
from adrenoc.firmware.mcu.evaluate import evaluate
from adrenoc.firmware.mcu.folder import firmware_of
from adrenoc.firmware.mcu.onnx.context import FUNCTIONS
from adrenoc.firmware.mcu.onnx.importer import network_of_onnx
from adrenoc.firmware.mcu.program import make_program
from adrenoc.importers.formats import find_model_files
from tests.mcu.judge import compile_firmware, needs_emulator, run_firmware_of
from tests.mcu.onnx_models import (
    RESIZED,
    float_model,
    model_of_parts,
    write_quantised,
    write_resized,
)
from tests.models import graph, write


@needs_emulator
@pytest.mark.parametrize(
    ("form", "data", "core", "per_channel"),
    [
        ("QDQ", "QInt8", "cortex-m4", True),
        ("QOperator", "QUInt8", "cortex-m4", False),
        ("QDQ", "QUInt8", "cortex-m55", True),
        ("QOperator", "QInt8", "cortex-m0plus", True),
    ],
)
def test_every_byte_is_onnxruntimes(form, data, core, per_channel, tmp_path, capsys):
    seed = len(form + data + core)
    model = write_quantised(tmp_path, seed=seed, form=form, data=data, per_channel=per_channel)
    out = tmp_path / "fw"
    assert compile_firmware(model, out, "--json", core=core) == 0
    said = json.loads(capsys.readouterr().out)
    assert [border["dtype"] for border in said["borders"]] == ["float32"] * 3
    assert [spec["shape"] for spec in said["inputs"]] == [[1, 3, 12, 10]]
    assert run_firmware_of(model, out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True


def check_outputs(path: Path, inputs: dict[str, np.ndarray], core: str = "cortex-m4") -> None:
    """Every byte of our evaluation is onnxruntime's."""
    network, digest = network_of_onnx(find_model_files(path))
    firmware = firmware_of(make_program(network, load_core(core)), digest)
    want = expected_outputs(firmware, path, inputs)
    got = evaluate(network, dict(zip(network.inputs, inputs.values(), strict=True)))
    for index in network.outputs:
        wrong = want[network.tensors[index].name] != got[index]
        assert not wrong.any(), f"{wrong.sum()} of {wrong.size} differ"


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("data", ["QInt8", "QUInt8"])
def test_parts_of_networks_are_onnxruntimes(data, per_channel, tmp_path):
    """Where a tensor stays in floats between conversions, onnxruntime's sums are in floats too."""
    path = write_quantised(
        tmp_path, seed=5, form="QDQ", data=data, per_channel=per_channel, make=model_of_parts
    )
    for seed in range(4):
        given = np.random.default_rng(seed).integers(-128, 128, (1, 3, 12, 10)).astype(np.int8)
        check_outputs(path, {"x": given}, "cpu:arm64")


def test_a_float_model_says_how_to_quantise(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(float_model(0).SerializeToString())
    assert main(["firmware", "check", str(path), "--device", "cortex-m4"]) == CompileError.exit_code
    said = capsys.readouterr().err
    assert "not quantised" in said
    assert "quantize_static" in said


def test_what_stays_in_floats_is_named(tmp_path, capsys):
    model = onnx.load(write_quantised(tmp_path, seed=1, form="QDQ", data="QInt8"))
    for node in model.graph.node:
        if node.op_type == "Sigmoid":
            node.op_type = "Erf"
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    code = main(["firmware", "check", str(path), "--device", "cortex-m4"])
    assert code == UnsupportedOperatorError.exit_code
    assert "Erf 'gated'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "mode", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
)
def test_linear_resizes_are_onnxruntimes(mode, tmp_path):
    random = np.random.default_rng(0)
    for number, size in enumerate(([9, 13], [4, 3], [14, 20], [1, 10], [21, 1])):
        dtype = (np.int8, np.uint8)[number % 2]
        scales = "scales" if number == 2 else ""
        how = {"mode": mode, "dtype": dtype, "alike": number % 3 == 0, "scales": scales}
        path = write_resized(tmp_path, how, [1, 3, *size])
        check_outputs(path, {"x": random.integers(-128, 128, (1, 3, 7, 10)).astype(np.int8)})


@needs_emulator
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m0plus"])
def test_code_of_linear_resizes_is_onnxruntimes(core, tmp_path):
    path = write_resized(tmp_path, RESIZED, [1, 3, 12, 17])
    out = tmp_path / "fw"
    assert compile_firmware(path, out, core=core) == 0
    assert run_firmware_of(path, out) == 0


def test_a_linear_resize_of_bytes_is_refused(tmp_path, capsys):
    """What onnxruntime computes depends on whether convolutions about it take channels last."""
    path = write_resized(tmp_path, RESIZED, [1, 3, 12, 17], between=False)
    assert (
        main(["firmware", "check", str(path), "--device", "cortex-m4"])
        == UnsupportedOperatorError.exit_code
    )
    assert "a linear resize of bytes" in capsys.readouterr().err


def test_sums_of_all_pairs_of_bytes_are_onnxruntimes(tmp_path):
    """A pair in 65,536 may tell a fused product from one that is rounded alone."""
    make = helper.make_node
    every = np.arange(-128, 128)
    pairs = [g.reshape(1, 1, 256, 256).astype(np.int8) for g in np.meshgrid(every, every)]
    random = np.random.default_rng(1)
    for _ in range(24):
        names = ["a", "a0", "b", "b0", "c", "c0"]
        scales, zeros = random.uniform(0.01, 0.09, 3), random.integers(-128, 128, 3)
        values = [
            f(v)
            for p in zip(scales, zeros, strict=True)
            for f, v in zip((np.float32, np.int8), p, strict=True)
        ]
        read = ["p", "a", "a0", "q", "b", "b0", "c", "c0"]
        nodes = [make("QLinearAdd", read, ["r"], domain="com.microsoft")]
        stored = dict(zip(names, values, strict=True))
        inputs, whole = dict.fromkeys("pq", (1, 1, 256, 256)), TensorProto.INT8
        made = graph(nodes, inputs, ["r"], stored, domains=["com.microsoft"], dtype=whole)
        path = write(made, tmp_path)
        check_outputs(path, dict(zip("pq", pairs, strict=True)), "cpu:arm64")


@pytest.mark.parametrize("kind", sorted(FUNCTIONS))
def test_functions_between_conversions_are_tables(kind, tmp_path):
    make = helper.make_node
    quanta = {"a": 0.031, "b": 0.027}
    nodes = [
        make("QuantizeLinear", ["x", "a", "a0"], ["q"]),
        make("DequantizeLinear", ["q", "a", "a0"], ["f"]),
        make(kind, ["f"], ["g"]),
        make("QuantizeLinear", ["g", "b", "b0"], ["r"]),
        make("DequantizeLinear", ["r", "b", "b0"], ["y"]),
    ]
    constants = {n: np.float32(v) for n, v in quanta.items()} | {
        "a0": np.int8(-9),
        "b0": np.int8(5),
    }
    path = write(graph(nodes, {"x": (1, 256)}, ["y"], constants), tmp_path)
    check_outputs(path, {"x": np.arange(-128, 128).astype(np.int8).reshape(1, 256)})
