"""A bundle with code for the CPU computes by it where OpenCL is missing, and says why."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import CompileError, DeviceError
from adrenoc.cli.main import main
from adrenoc.importers.onnx.session import open_session
from adrenoc.native.android.runtime_build import Runtime
from tests.mcu import networks
from tests.mcu.judge import Reference
from tests.mcu.onnx_models import float_model, write_quantised
from tests.runtime.programs import Finished, compile_opencl

NO_DEVICE, DEVICE_FAILED, OUT_OF_MEMORY = 24, 25, 26
WHY = "the model computes on the CPU, by the code that its bundle carries: "


@pytest.fixture(scope="module")
def model(work) -> Path:
    path = work / "wake.tflite"
    path.write_bytes(networks.wake_words(size=32))
    return path


@pytest.fixture(scope="module")
def carrying(model, work) -> Path:
    """A bundle of that model for this machine, with the fallback."""
    out = work / "wake.adrenoc"
    command = ["compile", str(model), "--device", "host", "--fallback", "cpu", "-o", str(out)]
    assert main(command) == 0
    return out


@pytest.fixture(scope="module")
def absent(opencl, tmp_path_factory) -> Path:
    return compile_opencl("absent_opencl.c", tmp_path_factory.mktemp("none"), opencl)


def _run(
    bundle: Path,
    model: Path,
    runtime: Runtime,
    execute: Callable[..., Finished],
    *more: object,
    **environment: str,
) -> dict:
    """Run on drawn numbers, and compare each byte with LiteRT's reference kernels."""
    reference = Reference(model.read_bytes())
    inputs = reference.inputs(1)
    reference.compute(inputs)
    detail, result = reference.run.get_input_details()[0], reference.run.get_output_details()[0]
    given, made = bundle.parent / "given.bin", bundle.parent / "made.bin"
    given.write_bytes(inputs[detail["index"]].tobytes())
    command = [runtime.runner, bundle, "--input", f"{detail['name']}={given}"]
    command += ["--output", f"{result['name']}={made}", "--repeat", "2", *more]
    said = execute(*command, **environment).json()
    got = np.fromfile(made, np.int8).reshape(result["shape"])
    assert (got == reference.tensor(result["index"])).all()
    return said


def test_it_is_one_line_and_one_decision(carrying):
    manifest = json.loads((carrying / "manifest.json").read_text())
    assert [entry["path"] for entry in manifest["files"]].count("cpu.so") == 1
    decisions = json.loads((carrying / "decisions.json").read_text())
    found = [d for d in decisions if d["stage"] == "fallback"]
    assert len(found) == 1
    assert "cpu.so" in found[0]["taken"]


@pytest.mark.parametrize("kind", ["registry", "devices"])
def test_it_computes_where_opencl_is_missing(kind, absent, carrying, model, runtime, execute):
    more = ("--opencl", absent)
    said = _run(carrying, model, runtime, execute, *more, ADRENOC_TEST_ABSENT=kind)
    assert said["device"] == "CPU"
    assert len([n for n in said["notes"] if n.startswith(WHY + "no OpenCL device")]) == 1


def test_it_computes_where_there_is_no_library(carrying, model, runtime, execute):
    said = _run(carrying, model, runtime, execute, "--opencl", "/nowhere/libOpenCL.so")
    assert any(WHY in note and "libOpenCL" in note for note in said["notes"])


@pytest.mark.parametrize("refused", ["BUILD", "MEMORY"])
def test_it_computes_where_the_device_refuses(
    refused, opencl, carrying, model, runtime, execute, work
):
    more = ("--opencl", compile_opencl("failing_opencl.c", work, opencl))
    said = _run(carrying, model, runtime, execute, *more, **{f"ADRENOC_TEST_FAIL_{refused}": "1"})
    assert said["device"] == "CPU"
    assert len([note for note in said["notes"] if note.startswith(WHY)]) == 1


def test_it_computes_when_asked_to(carrying, model, runtime, execute):
    said = _run(carrying, model, runtime, execute, "--device", "cpu")
    assert any(note == WHY + "the caller asked for it" for note in said["notes"])


def test_a_device_that_is_there_computes(carrying, opencl, runtime, execute):
    said = execute(runtime.runner, carrying, "--opencl", opencl, "--repeat", "1").json()
    assert said["device"] != "CPU"
    assert not [note for note in said["notes"] if WHY in note]


def test_a_device_that_was_named_is_not_replaced(carrying, opencl, runtime, execute):
    command = (runtime.runner, carrying, "--opencl", opencl, "--device", "none such")
    assert "none such" in execute(*command, expect=NO_DEVICE).err


@pytest.mark.parametrize("refused", ["BUILD", "MEMORY"])
def test_nor_is_one_that_was_named_and_refuses(refused, opencl, carrying, runtime, execute, work):
    library = compile_opencl("failing_opencl.c", work, opencl)
    command = (runtime.runner, carrying, "--opencl", library, "--device", "0")
    done = execute(*command, expect=None, **{f"ADRENOC_TEST_FAIL_{refused}": "1"})
    assert done.code in (DEVICE_FAILED, OUT_OF_MEMORY), done.err


def test_a_damaged_library_is_refused(carrying, absent, runtime, execute, tmp_path):
    copy = tmp_path / "b.adrenoc"
    shutil.copytree(carrying, copy)
    content = bytearray((copy / "cpu.so").read_bytes())
    content[len(content) // 2] ^= 1
    (copy / "cpu.so").write_bytes(content)
    done = execute(
        runtime.runner, copy, "--opencl", absent, expect=None, ADRENOC_TEST_ABSENT="lost"
    )
    assert done.code != 0
    assert "cpu.so is not what was compiled" in done.err


def test_float_models_are_refused_before_the_work(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(float_model(0).SerializeToString())
    out = tmp_path / "o"
    command = ["compile", str(path), "--device", "host", "--fallback", "cpu", "-o", str(out)]
    assert main(command) == CompileError.exit_code
    err = " ".join(capsys.readouterr().err.split())
    assert "quantize_static" in err and "its own CPU code computes" in err
    assert not out.exists()


def test_numbers_of_float_inputs_are_the_models_own(absent, tmp_path, runtime, execute):
    """A QDQ model takes and gives floats: so does the CPU in its place."""
    model = write_quantised(tmp_path, seed=4, form="QDQ", data="QInt8")
    out = tmp_path / "q.adrenoc"
    command = ["compile", str(model), "--device", "host", "--fallback", "cpu", "-o", str(out)]
    assert main(command) == 0
    session = open_session(model)
    given = np.random.default_rng(3).normal(size=(1, 3, 12, 10)).astype(np.float32)
    (tmp_path / "x.bin").write_bytes(given.tobytes())
    names = [output.name for output in session.get_outputs()]
    want = session.run(names, {session.get_inputs()[0].name: given})
    run = [runtime.runner, out, "--input", f"{session.get_inputs()[0].name}={tmp_path / 'x.bin'}"]
    for name in names:
        run += ["--output", f"{name}={tmp_path / name}.bin"]
    execute(*run, "--opencl", absent, ADRENOC_TEST_ABSENT="lost")
    for name, expected in zip(names, want, strict=True):
        got = np.fromfile(tmp_path / f"{name}.bin", np.float32).reshape(expected.shape)
        scale = np.unique(np.abs(np.diff(np.unique(expected)))).min()
        # onnxruntime's own kernels may be a quantum off its reference where halves meet.
        assert np.abs(got - expected).max() <= 1.01 * scale


@pytest.mark.parametrize("threads", [1, 3])
def test_adrenoc_run_falls_back_and_says_why(
    threads, carrying, model, tmp_path, monkeypatch, capsys
):
    def refused(_device: str) -> None:
        raise DeviceError("there is no OpenCL device here", hint="none")

    monkeypatch.setattr("adrenoc.device.run.pick_device", refused)
    reference = Reference(model.read_bytes())
    inputs = reference.inputs(1)
    reference.compute(inputs)
    detail, result = reference.run.get_input_details()[0], reference.run.get_output_details()[0]
    given, saved = tmp_path / "x.npz", tmp_path / "y.npz"
    np.savez(given, **{detail["name"]: inputs[detail["index"]]})
    command = ["run", str(carrying), "--input", str(given), "--save", str(saved), "--repeat", "2"]
    monkeypatch.setenv("ADRENOC_THREADS", str(threads))
    assert main([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["device"] == "CPU"
    (note,) = said["notes"]
    assert f"on {threads} thread" in note
    assert "there is no OpenCL device here" in note
    assert said["times"]["runs"] == 2
    assert (np.load(saved)[result["name"]] == reference.tensor(result["index"])).all()
    assert main([*command, "--on", "opencl:0"]) == DeviceError.exit_code
    assert "there is no OpenCL device here" in capsys.readouterr().err
