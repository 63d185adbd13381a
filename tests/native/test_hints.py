"""Hints to drivers: passed on where there is an extension for it, and always told."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run_program

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `hint_cases` saw."""
    from adrenoc import native

    native.build()
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is not None, "the runtime was built, so there is a compiler"
    library = tmp_path_factory.mktemp("stub") / "libstub_opencl.so"
    sources = map(str, sorted(HERE.glob("stub_*.c")))
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), *sources], check=True)
    command = [sys.executable, str(HERE / "hint_cases.py"), str(library)]
    done = run_program(command)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _told(uses: list[dict[str, str]]) -> list[tuple[str, str, str, str]]:
    return [(use["hint"], use["asked"], use["given_by"], use["reason"]) for use in uses]


def test_nothing_is_asked_unless_somebody_does(seen):
    assert seen["unset"] == {"properties": "context", "uses": []}


def test_qualcomm_has_both(seen):
    assert seen["both"]["properties"] == "context 40c2 40c3 40c9 40cc"
    assert _told(seen["both"]["uses"]) == [
        ("performance", "high", "cl_qcom_perf_hint", ""),
        ("priority", "low", "cl_qcom_priority_hint", ""),
    ]


def test_the_standard_has_priorities_of_queues(seen):
    assert seen["standard"]["properties"] == "context queue 1096 4"
    assert _told(seen["standard"]["uses"]) == [
        ("performance", "normal", "", "stub priorities has no cl_qcom_perf_hint"),
        ("priority", "low", "cl_khr_priority_hints", ""),
    ]
    # The queue that tells times has the same priority.
    assert seen["profiled"].endswith(" queue 1096 4 1093 2")


def test_a_device_without_extensions_says_so(seen):
    assert seen["none"]["properties"] == "context"
    assert _told(seen["none"]["uses"]) == [
        ("performance", "low", "", "stub plain has no cl_qcom_perf_hint"),
        (
            *("priority", "high", ""),
            "stub plain has no cl_qcom_priority_hint and no cl_khr_priority_hints",
        ),
    ]


def test_a_driver_that_refuses_works_without(seen):
    assert seen["deaf"]["properties"] == "context"
    for case in ("deaf", "deaf standard"):
        for _, _, given_by, reason in _told(seen[case]["uses"]):
            assert given_by == ""
            assert reason.endswith("and refused it with CL_OUT_OF_RESOURCES")


def test_what_is_asked_too_late_is_told(seen):
    late = "the device was in use by this process before it was asked for"
    assert _told(seen["late"])[2:] == [("performance", "low", "", late)]
    assert "expected low, normal or high" in seen["wrong"]
