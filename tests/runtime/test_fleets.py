"""Fleets of phones by adb and of servers on this machine: gone, back, and never there."""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.host.proc import TIMEOUT_CODE, CommandRunner
from adrenoc.cli.main import main
from tests.hostile.models import relu
from tests.patience import WAIT_S
from tests.runtime.fake_adb import fake_adb_process, pull_cable, put_cable, what_happened
from tests.runtime.servers import (
    SOFTWARE_ENVIRONMENT,
    free_port,
    native_server,
    tvm_process,
    wait_until,
)

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


def start_fleet(*words: object, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "adrenoc", "device", "fleet", *map(str, words), "--json"]
    return subprocess.Popen(
        [*command, "-o", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def read_rows(process: subprocess.Popen[str]) -> list[dict[str, object]]:
    said, aside = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, aside + said
    return json.loads(said)["fleet"]


def test_a_command_is_ended_when_it_takes_too_long():
    result = CommandRunner(0.1).run(["doctor", "--json"])
    assert (result.exit_code, result.is_final) == (TIMEOUT_CODE, True)
    assert "it took longer than the limit of 0 s and was stopped" in result.error


def test_a_command_tells_of_its_error_and_its_output():
    runner = CommandRunner(WAIT_S)
    failed = runner.run(["inspect", "nowhere.adrenoc", "--json"])
    assert failed.exit_code > 0
    assert "nowhere.adrenoc" in failed.error
    assert "error" not in failed.output
    runner.close()
    assert not runner.run(["doctor", "--json"]).is_final  # whatever is begun now is ended


def test_a_fleet_that_is_killed_takes_its_commands_along(tmp_path):
    """An orphan would hold the device, and what the next fleet goes on from."""
    text = (
        "from adrenoc.base.host.proc import CommandRunner\n"
        f"CommandRunner(60).run(['runtime', 'serve', '--port', '0', '--key', {str(tmp_path)!r}])"
    )
    process = subprocess.Popen([sys.executable, "-c", text])

    def children() -> list[Path]:
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes()
            except OSError:
                continue
            if str(tmp_path).encode() in words and b"\0serve\0" in words:
                found.append(entry)
        return found

    end = time.monotonic() + WAIT_S
    while not children() and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(1.0)
    assert children()
    process.send_signal(signal.SIGKILL)
    process.wait()
    while children() and time.monotonic() < end:
        time.sleep(0.1)
    assert not children()


@pytest.mark.nightly
def test_a_fleet_that_is_killed_goes_on(runtime, opencl, tmp_path, monkeypatch):
    models = [tmp_path / name for name in ("a.onnx", "b.onnx")]
    for model in models:
        model.write_bytes(relu(model.stem))
    folder, dead = tmp_path / "fleet", f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        ports = [stack.enter_context(native_server(runtime, opencl))[1] for _ in range(2)]
        places = [f"127.0.0.1:{port}" for port in ports]
        words = [*models, *(word for place in (*places, dead) for word in ("--on", place))]
        words += ["--repeat", "2"]
        monkeypatch.setenv("ADRENOC_FLEET_PATIENCE", "20")
        first = start_fleet(*words, folder=folder)
        results = folder / "results"
        wait_until(lambda: results.is_dir() and len(list(results.glob("*.json"))) > 2)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        kept = {path: path.read_bytes() for path in results.glob("*.json")}
        rows = read_rows(start_fleet(*words, folder=folder))
    assert {path: path.read_bytes() for path in kept} == kept
    ran = [(row["device"], Path(str(row["model"])).name) for row in rows if row["action"] == "run"]
    assert sorted(ran) == sorted((place, model.name) for place in places for model in models)
    assert {row["status"] for row in rows if row["action"] == "run"} == {"right"}
    (left,) = [row for row in rows if row["device"] == dead]
    assert (left["status"], left["action"]) == ("left", "identify")


def test_a_fleet_of_a_tracker(runtime, opencl, tmp_path):
    model = tmp_path / "a.onnx"
    model.write_bytes(relu())
    with ExitStack() as stack:
        tracker = f"127.0.0.1:{stack.enter_context(tvm_process('rpc_tracker'))}"
        words = ("--tracker", tracker, "--key", "phone")
        for _ in range(2):
            stack.enter_context(native_server(runtime, opencl, *words))
        rows = read_rows(
            start_fleet(
                *(model, "--on", f"tracker:phone@{tracker}", "--device", "host", "--repeat", "1"),
                folder=tmp_path / "fleet",
            )
        )
    assert [row["status"] for row in rows] == ["right", "right"]
    assert len({str(row["device"]) for row in rows}) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["M"], "name devices: --on adb:SERIAL, --on HOST:PORT"),
        (["--on", "127.0.0.1:1"], "missing argument 'MODEL...'"),
        (["M", "--on", "tracker:127.0.0.1:1"], "needs a kind of device"),
        (["M", "--on", "tracker:k@h:1", "--on", "adb:A"], "a tracker names its devices itself"),
        (["M", "--on", "opencl:0"], "names no device of a fleet"),
        (["M", "--on", "h"], "the address of the server is"),
    ],
)
def test_devices_that_nobody_can_mean(words, said, tmp_path, capsys):
    (tmp_path / "m.onnx").write_bytes(relu())
    told = [str(tmp_path / "m.onnx") if word == "M" else word for word in words]
    assert main(["device", "fleet", *told, "-o", str(tmp_path / "fleet")]) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "fleet").exists()
