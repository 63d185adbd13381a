"""Int8 networks on an application processor: every byte is the reference's, by each way."""

import json
from pathlib import Path

import pytest

from adrenoc.base.errors import BundleError, CompileError, PolicyError, TargetError
from adrenoc.cli.main import main
from adrenoc.firmware.mcu.folder import NOT_FUSED
from tests.commands import ask, refuse, succeed
from tests.cpu import judge
from tests.cpu.judge import needs_arm, needs_compiler, run_and_compare
from tests.mcu import networks
from tests.mcu.drawn import drawn_model
from tests.mcu.judge import compile_firmware, run_firmware_of
from tests.mcu.maker import Maker
from tests.mcu.onnx_models import (
    RESIZED,
    float_model,
    model_of_parts,
    write_quantised,
    write_resized,
)


@pytest.mark.nightly
@needs_arm
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("features", "threads"), [(judge.PLAIN, 1), (judge.DOT, 3), (judge.I8MM, 1)]
)
def test_drawn_operators(features, threads, seed, tmp_path):
    model = drawn_model(100 * features + seed)
    run_and_compare(model, tmp_path / "m", features=features, threads=threads, seed=seed)


@needs_compiler
@pytest.mark.parametrize("seed", range(3))
def test_portable_code_of_drawn_operators(seed, tmp_path):
    run_and_compare(drawn_model(seed), tmp_path / "m", core="cpu:host", threads=3, seed=seed)


@needs_arm
@pytest.mark.parametrize("features", [judge.PLAIN, judge.DOT, judge.I8MM])
def test_weights_of_minus_128(features, tmp_path):
    """Two products of them do not fit into the sixteen bits that SMLAL adds in."""
    make = Maker(seed=5, least_weight=-128)
    x = make.input(1, 6, 6, 32)
    made = [make.conv(x, 24), make.depthwise(x, (3, 3)), make.depthwise(x, (5, 3))]
    run_and_compare(make.finish(*made), tmp_path / "m", features=features, seed=2)


@needs_arm
@pytest.mark.parametrize("features", [judge.PLAIN, judge.DOT])
def test_windows_of_3x3_at_every_border(features, tmp_path):
    make = Maker(seed=9)
    made = []
    for number, (height, width) in enumerate([(1, 3), (2, 5), (5, 4), (7, 7), (8, 6), (3, 11)]):
        for stride in (1, 2):
            for padding in ("SAME", "VALID") if height > 2 else ("SAME",):
                relu = ("NONE", "RELU", "RELU6")[number % 3]
                x = make.input(1, height, width, 8 * (1 + number % 3))
                made.append(
                    make.depthwise(x, (3, 3), strides=(stride, stride), padding=padding, relu=relu)
                )
    folder = tmp_path / "m"
    run_and_compare(make.finish(*made), folder, features=features, threads=2, seed=1)


@needs_arm
def test_a_network_is_counted_layer_by_layer(tmp_path):
    model = networks.wake_words(size=32)
    counted = {}
    for features in (judge.PLAIN, judge.DOT, judge.I8MM):
        folder = tmp_path / str(features)
        firmware, result = run_and_compare(model, folder, features=features)
        counted[features] = result.layer_instructions
        assert len(result.layer_instructions) == (len(firmware.layers) if judge.counts else 0)
    if judge.counts:
        sums = [sum(counted[f]) for f in (judge.I8MM, judge.DOT, judge.PLAIN)]
        assert sums == sorted(sums)


@needs_compiler
@pytest.mark.parametrize(
    ("form", "data", "per_channel"), [("QDQ", "QInt8", True), ("QOperator", "QUInt8", False)]
)
def test_onnx_models_through_the_commands(form, data, per_channel, tmp_path, capsys):
    model = write_quantised(tmp_path, seed=3, form=form, data=data, per_channel=per_channel)
    devices = ["cpu:host"] if judge.needs_arm.args[0] else ["cpu:host", "cpu:arm64"]
    for device in devices:
        out = tmp_path / device.replace(":", "_")
        assert compile_firmware(model, out, core=device) == 0
        capsys.readouterr()
        assert run_firmware_of(model, out, "--json") == 0
        assert json.loads(capsys.readouterr().out)["passed"] is True
        assert run_firmware_of(model, out) == 0
        assert "every byte is what onnxruntime computes" in capsys.readouterr().out
        assert device in succeed("inspect", out).stdout


@needs_arm
def test_no_compiler_fuses_a_product_with_a_sum(tmp_path):
    """A core of 64 bits can, and a resize in float32 rounds both, as onnxruntime does."""
    model, out = write_resized(tmp_path, RESIZED, [1, 3, 14, 20]), tmp_path / "out"
    assert compile_firmware(model, out, core="cpu:arm64") == 0
    assert NOT_FUSED in (out / "CMakeLists.txt").read_text()
    for seed in range(2):
        assert run_firmware_of(model, out, "--seed", str(seed)) == 0


@needs_arm
def test_code_of_parts_of_networks_is_onnxruntimes(tmp_path):
    model = write_quantised(tmp_path, seed=6, form="QDQ", data="QInt8", make=model_of_parts)
    out = tmp_path / "out"
    assert compile_firmware(model, out, core="cpu:arm64") == 0
    assert run_firmware_of(model, out) == 0


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "wake.tflite"
    path.write_bytes(networks.wake_words(size=32))
    return path


def test_check_says_what_it_takes(model, tmp_path):
    checked = ["firmware", "check", str(model), "--device", "cpu:arm64"]
    said = ask(*checked)
    assert sum(layer["multiply_adds"] for layer in said["layers"]) > 100_000
    assert bool(said["instructions"]["layers"]) == judge.counts
    assert main([*checked, "--limit", "ram-kib=1"]) == PolicyError.exit_code
    out = tmp_path / "out"
    compiled = ["firmware", "compile", str(model), "--device", "cpu:arm64", "-o", str(out)]
    assert main([*compiled, "--object"]) == 2
    assert main([*compiled, "--limit", "ram-kib=1"]) == PolicyError.exit_code
    assert not out.exists()
    assert "cpu:arm64" in refuse(TargetError, "firmware", "compile", model, "--device", "cpu:arm65")


def test_a_changed_weight_is_not_run(model, tmp_path):
    out = tmp_path / "out"
    assert compile_firmware(model, out, core="cpu:host") == 0
    weights = out / "model.weights"
    content = bytearray(weights.read_bytes())
    content[0] ^= 1
    weights.write_bytes(content)
    assert "model.weights was changed" in refuse(BundleError, "firmware", "run", out)


def test_a_float_model_says_how_to_quantise(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(float_model(0).SerializeToString())
    assert "quantize_static" in refuse(
        CompileError, "firmware", "compile", path, "--device", "cpu:arm64"
    )
