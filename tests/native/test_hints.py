"""Hints to drivers, the state of a GPU, and functions that Python calls by name."""

import re
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi

import adrenoc
from adrenoc import native
from adrenoc.base.errors import DeviceError
from adrenoc.device.result import GpuState, parse_gpu_state
from adrenoc.native import opencl
from tests.commands import run_program
from tests.compilers import compile_once
from tests.native.opencl_source import load_kernels

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def seen(counted) -> dict[str, Any]:
    return counted("hint_cases.py")


# What is set, and of each hint: what was asked, by what it is given, why it is not.
TOLD = {
    "unset": ("context", []),
    "both": (
        "context 40c2 40c3 40c9 40cc",
        [
            ("performance", "high", "cl_qcom_perf_hint", ""),
            ("priority", "low", "cl_qcom_priority_hint", ""),
        ],
    ),
    "standard": (
        "context queue 1096 4",
        [
            ("performance", "normal", "", "stub priorities has no cl_qcom_perf_hint"),
            ("priority", "low", "cl_khr_priority_hints", ""),
        ],
    ),
    "none": (
        "context",
        [
            ("performance", "low", "", "stub plain has no cl_qcom_perf_hint"),
            (
                *("priority", "high", ""),
                "stub plain has no cl_qcom_priority_hint and no cl_khr_priority_hints",
            ),
        ],
    ),
}


def _told(uses: list[dict[str, str]]) -> list[tuple[str, str, str, str]]:
    return [(use["hint"], use["asked"], use["given_by"], use["reason"]) for use in uses]


@pytest.mark.parametrize("case", TOLD)
def test_each_device_has_what_it_knows(seen, case):
    assert (seen[case]["properties"], _told(seen[case]["uses"])) == TOLD[case]


def test_what_is_asked_for_holds_or_is_told(seen):
    # The queue that tells times has the same priority.
    assert seen["profiled"].endswith(" queue 1096 4 1093 2")
    # A driver that refuses works without.
    assert seen["deaf"]["properties"] == "context"
    for case in ("deaf", "deaf standard"):
        for _, _, given_by, reason in _told(seen[case]["uses"]):
            assert given_by == ""
            assert reason.endswith("and refused it with CL_OUT_OF_RESOURCES")
    late = "the device was in use by this process before it was asked for"
    assert _told(seen["late"])[2:] == [("performance", "low", "", late)]
    assert "expected low, normal or high" in seen["wrong"]


def _state(root: Path) -> GpuState:
    native.load()
    return parse_gpu_state(tvm_ffi.get_global_func("adrenoc.runtime.gpu_state")(str(root)))


def test_what_a_phone_shows(tmp_path):
    folder = tmp_path / "class/kgsl/kgsl-3d0"
    (folder / "devfreq").mkdir(parents=True)
    for name, content in (
        ("gpu_model", "Adreno750v2\n"),
        ("gpuclk", "903000000\n"),
        ("max_gpuclk", "1000000000\n"),
        ("temp", "41500\n"),
        ("devfreq/governor", "msm-adreno-tz\n"),
    ):
        (folder / name).write_text(content)
    assert _state(tmp_path) == GpuState(
        model="Adreno750v2",
        clock_mhz=903.0,
        max_clock_mhz=1000.0,
        governor="msm-adreno-tz",
        temperature_c=41.5,
    )


def test_what_cannot_be_read_is_left_out(tmp_path):
    assert not _state(tmp_path).is_known
    folder = tmp_path / "class/kgsl/kgsl-3d0"
    folder.mkdir(parents=True)
    (folder / "gpuclk").write_text("no number")
    (folder / "gpu_model").write_text("")
    assert not _state(tmp_path).is_known
    (folder / "temp").write_text("39000")
    assert _state(tmp_path) == GpuState(temperature_c=39.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("high",), 'The function "adrenoc.opencl.set_hints" was given 1 arguments, expected 2'),
        (
            ("high", 3),
            'Argument 1 of the function "adrenoc.opencl.set_hints" is of the type int, '
            "expected str",
        ),
    ],
)
def test_wrong_arguments(arguments, said):
    native.load()
    with pytest.raises(TypeError, match=re.escape(said)):
        tvm_ffi.get_global_func("adrenoc.opencl.set_hints")(*arguments)


SOURCES = Path(adrenoc.__file__).parent / "native" / "src"


def test_what_side_by_side_promises(tmp_path):
    program = tmp_path / "side_by_side"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SOURCES}"]
    compile_once(["c++", *flags, HERE / "side_by_side.cc"], program)
    done = run_program([str(program)])
    assert (done.returncode, done.stdout) == (0, "")


def test_the_first_broken_kernel_is_told(device):
    good = "__kernel void {0}(__global float* a, __global float* b) {{ b[0] = a[0]; }}"
    bad = "__kernel void {0}(__global float* a, __global float* b) {{ b[0] = missing; }}"
    names = [f"k{i:02}" for i in range(16)]
    texts = {name: (bad if name >= "k05" else good).format(name) for name in names}
    for _ in range(3):
        module = load_kernels(texts)
        with pytest.raises(DeviceError, match=r"Cannot build kernel k05 "):
            opencl.build_all(module)
