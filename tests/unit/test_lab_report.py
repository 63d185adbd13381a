"""What `adrenoc device import` makes of a report of adrenoc-lab.apk."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.errors import InputError
from adrenoc.pages.lab_report import LabReport, read_lab_report
from adrenoc.target.device_report import apply_report
from adrenoc.target.target import load_target

FACTS = {"name": 'QUALCOMM Adreno(TM)" \\', "driver": "E031.47", "gpu": "830"}
SUITE = {"suite": "mixed, textures", "status": "right", "cases": 2, "kernels": 3, "launches": 4}
DATE = datetime.date(2026, 1, 2)


def _report(folder: Path, **changes: Any) -> LabReport:
    plain: dict[str, Any] = {
        "adrenoc_lab": 1,
        "runtime": "0.1.0",
        "system": "Android 36",
        "device": {"facts": FACTS},
        "suites": [SUITE],
        "probes": [
            {"probe": "launch", "status": "right", "us": [4.0, 4.25, 4.5], "bytes": 1024},
            {"probe": "memory", "status": "right", "us": [500.0, 510.0, 520.0], "bytes": 33554432},
        ],
        "networks": [],
        "is_whole": True,
    }
    path = folder / "lab.json"
    path.write_text(json.dumps({**plain, **changes}))
    return read_lab_report(path)


def test_probes_become_a_target_file(tmp_path):
    path = tmp_path / "phone.toml"
    path.write_text(_report(tmp_path).target_toml(DATE))
    target, listed = load_target(str(path)), load_target("adreno:830")
    assert target.performance.launch_us == 4.25
    assert target.performance.dram_gb_per_s == pytest.approx(33554432 / 510 / 1e3, rel=1e-3)
    assert target.performance.texels_per_clock == listed.performance.texels_per_clock


@pytest.mark.parametrize("us", [[4.0, -1.0, 4.0], [4.0, 7.0, 4.0], []])
def test_rounds_that_say_too_different_things_give_no_figure(us, tmp_path):
    probes = [{"probe": "launch", "status": "right", "us": us, "bytes": 1}]
    assert not _report(tmp_path, probes=probes).target_toml(DATE)


def test_a_report_that_is_cut_is_not_right(tmp_path):
    assert _report(tmp_path).verified(DATE).is_right
    assert not _report(tmp_path, is_whole=False).verified(DATE).is_right
    assert not _report(tmp_path, suites=[]).verified(DATE).is_right


FOUND = {"case": "softmax", "suite": "", "text": "softmax is wrong", "helps": []}
SUITES = [f"{p}, {m}" for p in ("mixed", "fp32", "fp16") for m in ("textures", "buffers")]


@pytest.mark.parametrize(
    ("wrong", "failed", "words"),
    [
        (["fp16, textures", "fp16, buffers"], [], ["half-arithmetic"]),
        (["mixed, textures", "fp32, textures", "fp16, textures"], [], ["textures"]),
        (["mixed, textures"], ["fp16, textures"], ["textures"]),
        ([], ["fp16, buffers"], ["half-arithmetic"]),
        (["mixed, buffers", "fp16, buffers", "mixed, textures"], [], ["half-storage"]),
        (["fp32, buffers"], [], []),
        (["mixed, textures"], ["mixed, buffers", "fp32, textures"], []),
        (["mixed, textures", "fp32, textures", "fp16, buffers"], [], []),
    ],
)
def test_what_is_right_in_another_suite_helps(wrong, failed, words, tmp_path):
    suites = [
        {**SUITE, "suite": name, "status": "wrong", "findings": [{**FOUND, "suite": name}]}
        if name in wrong
        else {**SUITE, "suite": name, "status": "failed" if name in failed else "right"}
        for name in SUITES
    ]
    found = _report(tmp_path, suites=suites).verified(DATE)
    assert [quirk.avoid for quirk in found.quirks] == [(word,) for word in words]
    assert found.is_right == bool(words)
    assert all(len(finding.helps) == len(words) for finding in found.findings)
    target = apply_report(load_target("adreno:830"), found, tmp_path / "device.json")
    assert target.avoided.keys() >= set(words)


def test_a_form_that_is_not_known(tmp_path):
    with pytest.raises(InputError, match="has the form 2, expected 1"):
        _report(tmp_path, adrenoc_lab=2)


def test_the_page_shows_any_text_as_a_text(tmp_path):
    page = _report(tmp_path, system="</script><b>").page("Read.")
    assert "</script><b>" not in page and "\\u003c/script>" in page
