"""`device.json`: what it may hold and what a target becomes by it; reports of the lab's app."""

import datetime
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adrenoc.base.errors import DeviceError, InputError, RemoteError, TargetError
from adrenoc.base.files.resume import Resume
from adrenoc.bundle.buckets import Edition, rank_editions
from adrenoc.cli.main import main
from adrenoc.ir.options import resolve_options
from adrenoc.lab.calibrate.measure import DeviceFacts
from adrenoc.lab.prove.examine import SuiteRuns
from adrenoc.lab.prove.suite import told_limits
from adrenoc.lab.prove.verify_device import KeptBench, empty_report
from adrenoc.pages.lab_report import LabReport, read_lab_report
from adrenoc.target.device_set import (
    FORMAT,
    DeviceReport,
    ReportedDevice,
    ReportedFinding,
    ReportedSuites,
    SetMember,
    add_report,
    apply_report,
    make_device_set,
    read_report,
    report_json,
)
from adrenoc.target.gpu import FEATURES, Quirk
from adrenoc.target.target import Target, list_targets, load_target
from tests.unit import planted_device
from tests.unit.planted_device import DEVICE

QUIRK = Quirk(
    name="verified-1",
    text='Halves are "cut",\n \x07 \U0001f600.',
    source="adrenoc device verify on QUALCOMM Adreno(TM), driver E031.37",
    banned_work_groups=((8, 8, 1),),
    work_group_items_below=65,
    image_extent_below=4097,
    local_bytes_below=8193,
    avoid=("half-storage", "operator:softmax"),
)
REPORT = DeviceReport(
    format=FORMAT,
    device=ReportedDevice(name="QUALCOMM Adreno(TM)", driver="E031.37", gpu="640"),
    date="2026-01-02",
    suites=ReportedSuites(names=("mixed, textures",), cases=3, kernels=4, launches=5),
    is_right=True,
    quirks=(QUIRK,),
    findings=(ReportedFinding(case="softmax: one", suite="mixed", text="wrong"),),
)


def _written(folder: Path, text: str | bytes) -> Path:
    path = folder / "device.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def _changed(**changes) -> dict[str, Any]:
    return {**json.loads(report_json(REPORT)), **changes}


def test_a_report_is_read_as_it_was_written(tmp_path):
    assert read_report(_written(tmp_path, report_json(REPORT))) == REPORT


@pytest.mark.parametrize("name", ["adreno", "adreno:640", "adreno:sm8150", "host", "host:a640"])
def test_what_a_target_becomes(name):
    before = load_target(name)
    after = apply_report(before, REPORT, Path("device.json"))
    assert after.host == before.host
    assert after.limits.max_work_group_size == 64
    assert after.limits.image2d_max_width_texels == 4096
    assert (8, 8, 1) in after.limits.banned_work_groups
    assert set(QUIRK.avoid) <= set(after.avoided)
    assert after.digest() != before.digest()
    assert after.option == f"{name.replace('adreno:6', 'adreno:a6')}+device.json"
    resolved = resolve_options(after, preset="mixed")
    assert resolved.options.storage_dtype == "float32"
    assert "verified-1" in resolved.origin_of("storage_dtype")


def test_without_quirks_a_target_stays_what_it_is():
    target = load_target("adreno:640")
    assert apply_report(target, replace(REPORT, quirks=()), Path("device.json")) is target


def test_a_report_of_another_gpu_is_refused():
    with pytest.raises(TargetError, match="is of Adreno 640, expected one of Adreno 750"):
        apply_report(load_target("adreno:750"), REPORT, Path("device.json"))


@pytest.mark.parametrize("word", FEATURES)
def test_every_feature_is_a_word_of_a_quirk(word):
    quirk = Quirk(name="q", text="t", source="s", avoid=(word,))
    report = replace(REPORT, quirks=(quirk,))
    target: Target = apply_report(load_target("adreno"), report, Path("device.json"))
    assert word in target.avoided


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (b"\xff", "not UTF-8"),
        (b"{", "is not JSON"),
        (b"[" * 5000, "nested too deeply"),
        (b"[]", r"is \[\], expected an object"),
        (b"{}", "lacks the key `format`"),
        (_changed(format=2), "has the format 2, expected 1"),
        (_changed(format="1"), "has the format '1', expected 1"),
        (_changed(more=1), "unknown key `more`"),
        (_changed(is_right="yes"), "expected true or false"),
        (_changed(quirks={}), "expected a list"),
        (_changed(quirks=[{"name": "a"}]), r"quirks\[0\] lacks the key"),
        (_changed(quirks=[json.loads(report_json(REPORT))["quirks"][0]] * 65), "64 at most"),
        (_changed(device=7), "device is 7, expected an object"),
    ],
)
def test_damaged_reports_are_one_sentence(tmp_path, plain, said):
    text = plain if isinstance(plain, bytes) else json.dumps(plain)
    with pytest.raises(TargetError, match=said) as raised:
        read_report(_written(tmp_path, text))
    assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    ("quirk", "said"),
    [
        ({"avoid": ("softmax",)}, "quirks.*avoid"),
        ({"avoid": ("operator:",)}, "quirks.*avoid"),
        ({"banned_work_groups": ((0, 1, 1),)}, "banned_work_groups"),
        ({"work_item_sizes": (1024, 1024)}, "work_item_sizes"),
        ({"work_item_sizes": (1024, 2, 64)}, "max_work_item_sizes"),
        ({"work_group_items_below": 1}, "work_group_items_below"),
        ({"work_group_items_below": 3}, "max_work_group_size"),
        ({"image_extent_below": 64}, "image2d_max_width_texels"),
        ({"local_bytes_below": 0}, "local_bytes_below"),
        ({"local_bytes_below": 64}, "local_mem_bytes"),
        ({"text": ""}, "text"),
    ],
)
def test_quirks_that_none_can_have_are_refused(quirk, said):
    report = replace(REPORT, quirks=(replace(QUIRK, **quirk),))
    with pytest.raises(TargetError, match=said):
        apply_report(load_target("adreno:640"), report, Path("device.json"))


def test_sides_of_work_groups_are_told_and_kept():
    """As a device says them to `device verify`."""
    target = load_target("adreno:640")
    told = told_limits(planted_device.DEVICE, target)
    assert [quirk.work_item_sizes for quirk in told] == [(1024, 1024, 64)]
    named = tuple(replace(quirk, name="told-1", source="the driver") for quirk in told)
    after = apply_report(target, replace(REPORT, quirks=named), Path("device.json"))
    assert after.limits.group_sides == (1024, 1024, 64)
    assert told_limits(planted_device.DEVICE, after) == []


def test_a_driver_may_have_to_do_without_local_memory():
    report = replace(REPORT, quirks=(replace(QUIRK, local_bytes_below=1),))
    target = apply_report(load_target("adreno:640"), report, Path("device.json"))
    assert target.limits.local_mem_bytes == 0


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TargetError, match="cannot read the device report"):
        read_report(tmp_path / "none.json")


def test_words_of_the_quirks_that_ship():
    """None does yet that names an operator; one that does is to name one that there is."""
    from adrenoc.kernels.families.operators import OPERATORS

    words = {word for target in list_targets() for word in target.avoided}
    assert {word.partition(":")[2] for word in words if word.startswith("operator:")} <= set(
        OPERATORS
    )


@pytest.mark.parametrize("command", ["compile", "check", "tune run"])
def test_commands_read_it_before_the_model(command, tmp_path, capsys):
    path = _written(tmp_path, report_json(REPORT))
    model = str(tmp_path / "model.onnx")
    words = [*command.split(), model, "--device", f"adreno:750+{path}"]
    assert main(words) == TargetError.exit_code
    said = "is of Adreno 640, expected one of Adreno 750"
    assert said in capsys.readouterr().err.replace("\n", " ")


def _of_compiler(version: str) -> str:
    """What a phone's driver says of itself: 170 letters, the compiler's version last."""
    build = (
        "OpenCL 3.0 QUALCOMM build: commit # commit_a1b2c3 changeid # I0123456789 Date: 03/23/26 "
    )
    return f"{build}Mon Local Branch:  Remote Branch: refs/tags/AU_LINUX_ANDROID Compiler {version}"


def test_drivers_are_told_apart_by_all_that_they_say():
    drivers = [_of_compiler(version) for version in ("E031.41.03.36", "E031.41.03.37")]
    facts = {"name": "QUALCOMM Adreno(TM)", "version": "OpenCL 3.0 Adreno(TM) 750"}
    devices = [DeviceFacts.from_facts({**facts, "driver": driver}) for driver in drivers]
    assert len({device.identity for device in devices}) == 2
    report = empty_report(devices[0], (replace(QUIRK, banned_work_groups=((4, 4, 4),)),))
    member = SetMember(gpu="750", target=load_target("adreno:750"))
    devices_set = add_report(make_device_set([member]), report, Path("device.json"))
    editions = tuple(
        Edition(folder=m.folder, target=m.target.name, gpu=m.gpu, driver=m.driver)
        for m in devices_set.members
    )
    taken = [rank_editions(editions, gpu="750", driver=driver)[0][0].driver for driver in drivers]
    assert taken == [drivers[0], ""]


FACTS = {"name": 'QUALCOMM Adreno(TM)" \\', "driver": "E031.47", "gpu": "830"}
SUITE = {"suite": "mixed, textures", "status": "right", "cases": 2, "kernels": 3, "launches": 4}
DATE = datetime.date(2026, 1, 2)


def _report(folder: Path, **changes) -> LabReport:
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


X, Y = np.array([1.0, -0.0, np.nan], np.float32), np.zeros((0, 4), np.uint8)
RUNS = SuiteRuns(
    first={"x": X, "y": Y},
    last={"x": X.copy(), "y": Y},
    among=({"x": -X, "y": Y}, {"x": X.astype(np.float16), "y": Y}),
    others=({"x": X + 1, "y": Y}, {"x": X + 1, "y": np.ones((1, 4), np.uint8)}),
)


class _Counting:
    """Says what it was given, in turn."""

    def __init__(self, *answers: SuiteRuns | Exception) -> None:
        self.answers, self.asked = list(answers), 0

    def run(self, _made) -> SuiteRuns:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _made(name: str):
    return SimpleNamespace(bundle=SimpleNamespace(path=Path("/anywhere") / name))


def _plain(runs: SuiteRuns) -> list[list[tuple[str, str, tuple[int, ...], bytes]]]:
    every = (runs.first, runs.last, *runs.among, *runs.others)
    return [
        [(name, str(v.dtype), v.shape, v.tobytes()) for name, v in outputs.items()]
        for outputs in every
    ]


def test_what_ran_does_not_run_again(tmp_path):
    lost = RemoteError("the server left", hint="h")
    live = _Counting(RUNS, lost, DeviceError("no such device", hint="h"))
    bench = KeptBench(live, Resume(tmp_path / "kept"), DEVICE)
    bench.run(_made("a"))
    with pytest.raises(RemoteError):
        bench.run(_made("a"))
    with pytest.raises(DeviceError):
        bench.run(_made("b"))
    (tmp_path / "left").write_bytes((tmp_path / "kept").read_bytes())
    later = _Counting(RUNS)
    bench = KeptBench(later, Resume(tmp_path / "left"), DEVICE)
    assert _plain(bench.run(_made("a"))) == _plain(RUNS)
    with pytest.raises(RemoteError, match="the server left"):
        bench.run(_made("a"))
    with pytest.raises(DeviceError, match="no such device"):
        bench.run(_made("b"))
    assert later.asked == 0
    bench.run(_made("c"))
    assert later.asked == 1
