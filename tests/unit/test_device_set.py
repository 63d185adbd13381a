"""Several devices for one bundle, and which of its editions a driver gets."""

from pathlib import Path

import pytest

from adrenoc.base.errors import TargetError
from adrenoc.bundle.editions import Edition, rank_editions
from adrenoc.target.device_report import (
    FORMAT,
    DeviceReport,
    ReportedDevice,
    ReportedSuites,
    report_json,
)
from adrenoc.target.device_set import add_report, is_device_set, load_device_set, read_device_set
from adrenoc.target.target import list_targets

DRIVER = "OpenCL 3.0 QUALCOMM build: here, Compiler E031.41.03"


def test_devices_between_commas():
    devices = load_device_set("adreno:660, adreno:8gen3,adreno:a642L")
    assert devices.common.name == "adreno"
    assert [(m.gpu, m.folder) for m in devices.members] == [
        ("660", "a660"),
        ("750", "sm8650"),
        ("642l", "a642l"),
    ]


def test_all_are_all_that_are_listed():
    listed = {t.gpu.name for t in list_targets() if t.name.startswith("adreno:a")}
    assert {m.gpu for m in load_device_set("all").members} == listed
    here = load_device_set("host:all")
    assert here.common.name == "host"
    assert {m.gpu for m in here.members} == listed
    assert all(m.target.host for m in here.members)


@pytest.mark.parametrize(("text", "is_set"), [("all", True), ("a,b", True), ("adreno:750", False)])
def test_what_is_a_set(text, is_set):
    assert is_device_set(text) is is_set


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("adreno:660,adreno:sm8350", "names Adreno 660 twice"),
        ("adreno:660,host:750", "of this computer (host) and of phones"),
        ("adreno:660,adreno", "adreno in a set of devices is no single Adreno"),
        ("host:h100,host:660", "host:h100 in a set of devices is no single Adreno"),
        ("adreno:660,adreno:751", 'unknown device "adreno:751"'),
        (",", "has 0 devices"),
        ("mali:all", "unknown device"),
    ],
)
def test_what_is_no_set(text, said):
    with pytest.raises(TargetError) as refused:
        load_device_set(text)
    assert said in refused.value.message
    assert refused.value.hint


def test_a_file_names_devices_beside_it(tmp_path):
    (tmp_path / "own.toml").write_text('title = "Mine"\nbase = "adreno:750"\n')
    _report(tmp_path / "device.json", "660")
    file = tmp_path / "set.toml"
    file.write_text(
        '[[device]]\ntarget = "adreno:660"\nreport = "device.json"\n'
        '[[device]]\ntarget = "own.toml"\n[[device]]\ntarget = "adreno:660"\n'
    )
    members = read_device_set(file).members
    assert [(m.gpu, m.driver) for m in members] == [("660", DRIVER), ("750", ""), ("660", "")]
    assert len({m.folder for m in members}) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("device", "is not TOML"),
        ("[[device]]\n", "lacks the key `target`"),
        ('[[device]]\ntarget = "adreno:660"\ngpu = 1\n', "unknown key `gpu`"),
        ('[[device]]\ntarget = "none.toml"\n', "cannot read the target file"),
        ('[[device]]\ntarget = "adreno:660"\nreport = "no.json"\n', "cannot read the device rep"),
    ],
)
def test_a_file_that_is_wrong(tmp_path, text, said):
    file = tmp_path / "set.toml"
    file.write_text(text)
    with pytest.raises(TargetError) as refused:
        read_device_set(file)
    assert said in refused.value.message
    with pytest.raises(TargetError, match="cannot be read"):
        read_device_set(tmp_path / "absent.toml")


def _report(path: Path, gpu: str) -> DeviceReport:
    report = DeviceReport(
        format=FORMAT,
        device=ReportedDevice(name="QUALCOMM Adreno(TM)", driver=DRIVER, gpu=gpu),
        date="2026-01-01",
        suites=ReportedSuites(names=("conv",), cases=1, kernels=1, launches=1),
        is_right=True,
    )
    path.write_text(report_json(report))
    return report


def test_a_report_is_for_its_driver_beside_the_others(tmp_path):
    devices = load_device_set("adreno:660,adreno:750")
    path = tmp_path / "device.json"
    both = add_report(devices, _report(path, "750"), path)
    assert [(m.gpu, m.driver) for m in both.members] == [("660", ""), ("750", ""), ("750", DRIVER)]
    with pytest.raises(TargetError, match="is of 830, expected one of 660, 750"):
        add_report(devices, _report(path, "830"), path)


COMMON = Edition(folder=".", target="adreno", gpu="")
OF_660 = Edition(folder="devices/a660", target="adreno:a660", gpu="660")
OF_750 = Edition(folder="devices/a750", target="adreno:a750", gpu="750")
OF_DRIVER = Edition(folder="devices/a750-d", target="x.toml", gpu="750", driver=DRIVER)


@pytest.mark.parametrize(
    ("gpu", "driver", "ranked", "why"),
    [
        ("660", "any", (OF_660, COMMON), "the driver says Adreno 660"),
        ("750", "any", (OF_750, COMMON), "the driver says Adreno 750"),
        ("750", DRIVER, (OF_DRIVER, OF_750, COMMON), "is the one that it was made for"),
        ("735", "any", (COMMON,), "says Adreno 735, and the bundle has kernels for 660, 750"),
        ("", "any", (COMMON,), "names no Adreno"),
    ],
)
def test_which_editions_a_driver_gets(gpu, driver, ranked, why):
    found, said = rank_editions((OF_660, OF_750, OF_DRIVER, COMMON), gpu=gpu, driver=driver)
    assert found == ranked
    assert why in said


def test_an_edition_of_another_driver_alone_is_not_taken():
    found, said = rank_editions((OF_DRIVER, COMMON), gpu="750", driver="another")
    assert found == (COMMON,)
    assert "are for other drivers than another" in said
