"""A bundle with code for the CPU computes by it where OpenCL is missing, and says why."""

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.base.errors import CompileError, DeviceError
from adrenoc.device.remote import run_remote
from adrenoc.importers.onnx.session import open_session
from tests.commands import ask, compile_model, refuse, run_program
from tests.mcu import networks
from tests.mcu.judge import judge
from tests.mcu.onnx_models import float_model, write_quantised
from tests.patience import WAIT_S
from tests.runtime.programs import compute, flip_bits
from tests.runtime.servers import address_of, native_server

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
    return compile_model(model, work / "wake.adrenoc", "--fallback", "cpu", preset="").path


@pytest.fixture
def told(model, carrying, runtime, execute, tmp_path) -> Callable[..., dict[str, Any]]:
    """Run on drawn numbers, and compare each byte with LiteRT's reference kernels."""

    def run(*more: object, **environment: str) -> dict[str, Any]:
        inputs, wanted = judge(model.read_bytes(), 1)
        command = partial(execute, runtime.runner, carrying, "--repeat", "2", *more, **environment)
        said, made = compute(command, inputs, wanted, tmp_path)
        for name, array in wanted.items():
            assert (made[name] == array).all()
        return said

    return run


def test_it_is_one_line_and_one_decision(carrying):
    manifest = json.loads((carrying / "manifest.json").read_text())
    assert [entry["path"] for entry in manifest["files"]].count("cpu.so") == 1
    decisions = json.loads((carrying / "decisions.json").read_text())
    found = [d for d in decisions if d["stage"] == "fallback"]
    assert len(found) == 1
    assert "cpu.so" in found[0]["taken"]


@pytest.mark.parametrize("kind", ["registry", "devices"])
def test_it_computes_where_opencl_is_missing(kind, absent, told):
    said = told("--opencl", absent, ADRENOC_TEST_ABSENT=kind)
    assert said["device"] == "CPU"
    assert len([n for n in said["notes"] if n.startswith(WHY + "no OpenCL device")]) == 1


def test_it_computes_where_there_is_no_library(told):
    said = told("--opencl", "/nowhere/libOpenCL.so")
    assert any(WHY in note and "libOpenCL" in note for note in said["notes"])


@pytest.mark.parametrize("refused", ["BUILD", "MEMORY"])
def test_it_computes_where_the_device_refuses(refused, failing, told):
    said = told("--opencl", failing, **{f"ADRENOC_TEST_FAIL_{refused}": "1"})
    assert said["device"] == "CPU"
    assert len([note for note in said["notes"] if note.startswith(WHY)]) == 1


def test_it_computes_when_asked_to(told):
    assert any(note == WHY + "the caller asked for it" for note in told("--device", "cpu")["notes"])


def test_a_device_that_is_there_computes(carrying, runner):
    said = runner(carrying, "--repeat", "1").json()
    assert said["device"] != "CPU"
    assert not [note for note in said["notes"] if WHY in note]


def test_a_device_that_was_named_is_not_replaced(carrying, runner):
    assert "none such" in runner(carrying, "--device", "none such", expect=NO_DEVICE).err


@pytest.mark.parametrize("refused", ["BUILD", "MEMORY"])
def test_nor_is_one_that_was_named_and_refuses(refused, failing, carrying, runner):
    refusal = {f"ADRENOC_TEST_FAIL_{refused}": "1"}
    done = runner(carrying, "--device", "0", library=failing, expect=None, **refusal)
    assert done.code in (DEVICE_FAILED, OUT_OF_MEMORY), done.err


def test_a_damaged_library_is_refused(carrying, absent, runner, tmp_path):
    copy = Path(shutil.copytree(carrying, tmp_path / "b.adrenoc"))
    flip_bits(copy / "cpu.so", (copy / "cpu.so").stat().st_size // 2)
    done = runner(copy, library=absent, expect=None, ADRENOC_TEST_ABSENT="lost")
    assert done.code != 0
    assert "cpu.so is not what was compiled" in done.err


def test_float_models_are_refused_before_the_work(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(float_model(0).SerializeToString())
    out = tmp_path / "o"
    command = ["compile", str(path), "--device", "host", "--fallback", "cpu", "-o", str(out)]
    err = refuse(CompileError, *command)
    assert "quantize_static" in err and "its own CPU code computes" in err
    assert not out.exists()


def test_numbers_of_float_inputs_are_the_models_own(absent, tmp_path, runner):
    """A QDQ model takes and gives floats: so does the CPU in its place."""
    model = write_quantised(tmp_path, seed=4, form="QDQ", data="QInt8")
    bundle = compile_model(model, tmp_path / "q.adrenoc", "--fallback", "cpu", preset="")
    session = open_session(model)
    x = np.random.default_rng(3).normal(size=(1, 3, 12, 10)).astype(np.float32)
    given = {session.get_inputs()[0].name: x}
    names = [output.name for output in session.get_outputs()]
    want = dict(zip(names, session.run(names, given), strict=True))
    run = partial(runner, bundle.path, library=absent, ADRENOC_TEST_ABSENT="lost")
    _, made = compute(run, given, want, tmp_path)
    for name, expected in want.items():
        scale = np.unique(np.abs(np.diff(np.unique(expected)))).min()
        # onnxruntime's own kernels may be a quantum off its reference where halves meet.
        assert np.abs(made[name] - expected).max() <= 1.01 * scale


@pytest.mark.parametrize("threads", [1, 3])
def test_adrenoc_run_falls_back_and_says_why(threads, carrying, model, tmp_path, monkeypatch):
    def refused(_device: str) -> None:
        raise DeviceError("there is no OpenCL device here", hint="none")

    monkeypatch.setattr("adrenoc.device.run.pick_device", refused)
    inputs, wanted = judge(model.read_bytes(), 1)
    given, saved = tmp_path / "x.npz", tmp_path / "y.npz"
    np.savez(given, **inputs)
    command = ["run", str(carrying), "--input", str(given), "--save", str(saved), "--repeat", "2"]
    monkeypatch.setenv("ADRENOC_THREADS", str(threads))
    said = ask(*command)
    assert said["device"] == "CPU"
    (note,) = said["notes"]
    assert f"on {threads} thread" in note
    assert "there is no OpenCL device here" in note
    assert said["times"]["runs"] == 2
    for name, array in wanted.items():
        assert (np.load(saved)[name] == array).all()
    assert "there is no OpenCL device here" in refuse(DeviceError, *command, "--on", "opencl:0")


KINDS = {
    "registry": "libabsent_opencl.so lists no platform: it found no driver",
    "platforms": "libabsent_opencl.so lists no platform: it found no driver",
    "devices": "Intel(R) OpenCL lists no device",
    "lost": "lists no devices: clGetDeviceIDs failed with CL_DEVICE_NOT_AVAILABLE",
    "facts": "is left out: clGetDeviceInfo failed with CL_INVALID_VALUE",
    "images": "there is 0 = ",
}
_IN_PYTHON = """
import sys
from adrenoc import native
from adrenoc.device.place import choose_device
from adrenoc.base.errors import DeviceError
from adrenoc.native import opencl
import tvm_ffi
native.use_software_device()
native.load()
tvm_ffi.get_global_func("adrenoc.opencl.set_library")(sys.argv[1])
try:
    print(choose_device(opencl.devices(), "", absent=opencl.absent_devices())[1]["name"])
except DeviceError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_the_runner_tells_why(kind, absent, bundle, runner):
    said = runner(bundle.path, library=absent, expect=NO_DEVICE, ADRENOC_TEST_ABSENT=kind).err
    assert said.startswith("adrenoc_run: no device: no OpenCL device with images; ")
    assert KINDS[kind] in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("kind", ["registry", "devices", "facts"])
def test_python_tells_why(kind, absent, monkeypatch):
    monkeypatch.setenv("ADRENOC_TEST_ABSENT", kind)
    command = [sys.executable, "-c", _IN_PYTHON, str(absent)]
    said = run_program(command, timeout=WAIT_S, check=True).stdout
    assert said.startswith("there is no OpenCL device on this machine; ")
    assert KINDS[kind] in said


def test_one_broken_driver_hides_no_other(absent, bundle, runner):
    run = partial(runner, bundle.path, "--repeat", 1, library=absent, ADRENOC_TEST_ABSENT="broken")
    assert run().json()["device"]
    said = run("--device", "none", expect=NO_DEVICE).err
    assert "there is 0 = " in said
    assert f"a platform without a name {KINDS['lost']}" in said


def test_a_client_is_told_why_its_server_has_none(absent, bundle, case, runtime, monkeypatch):
    monkeypatch.setenv("ADRENOC_TEST_ABSENT", "registry")
    with (
        native_server(runtime, str(absent)) as (_, port),
        pytest.raises(DeviceError, match=r"on the server at .*lists no platform"),
    ):
        run_remote(bundle, address_of(port), inputs=case.arrays)
