"""A fleet of phones by adb: one leaves in the middle and comes back, one was never there."""

import json
from typing import Any

import pytest

from tests.hostile.models import relu
from tests.runtime.fake_adb import fake_adb_process, pull_cable, put_cable, what_happened
from tests.runtime.servers import SOFTWARE_ENVIRONMENT, wait_until
from tests.runtime.test_fleet_of_servers import read_rows, start_fleet

pytest.importorskip("adbutils", reason="pip install '.[adb]'")

STAYS, LEAVES, ABSENT = "R58M1STAYS", "R58M2LEAVES", "R58M3ABSENT"


def _has_begun(port: int, serial: str) -> bool:
    """Whether our server was started on that phone."""
    told = what_happened(port)
    asked = zip(told["phones"], told["commands"], strict=True)
    return any(phone == serial and "adrenoc_rpc" in command for phone, command in asked)


@pytest.mark.nightly
def test_a_phone_leaves_and_comes_back(runtime, opencl, tmp_path, monkeypatch):
    models = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    for model in models:
        model.write_bytes(relu(model.stem))
    phones = {STAYS: "device", LEAVES: "device"}
    with fake_adb_process(phones, SOFTWARE_ENVIRONMENT) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        monkeypatch.setenv("ADRENOC_RUNTIME", str(runtime.folder))
        monkeypatch.setenv("ADRENOC_FLEET_PATIENCE", "40")
        words: list[Any] = [*models]
        words += [word for serial in (STAYS, LEAVES, ABSENT) for word in ("--on", f"adb:{serial}")]
        fleet = start_fleet(*words, "--repeat", "2", folder=tmp_path / "fleet")
        wait_until(lambda: _has_begun(port, LEAVES))
        pull_cable(port, LEAVES)
        # Until it was asked for in vain.
        wait_until(lambda: sum(LEAVES not in seen for seen in what_happened(port)["listed"]) > 1)
        put_cable(port, LEAVES)
        rows = read_rows(fleet)
    by_device = {serial: [r for r in rows if r["device"] == serial] for serial in (STAYS, LEAVES)}
    for serial, own in by_device.items():
        assert [(row["action"], row["status"]) for row in own] == [("run", "right")] * 2, serial
    (absent,) = [row for row in rows if row["device"] == ABSENT]
    assert (absent["status"], absent["action"]) == ("left", "identify")
    assert f"adb has no device {ABSENT}" in str(absent["note"])
    assert {json.dumps(row["target"]) for row in rows if row["action"] == "run"} == {'"host"'}
