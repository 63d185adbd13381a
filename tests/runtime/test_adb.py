"""Phones by adb: a server that speaks adb's protocol, whose phone is this machine."""

import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import AdbError, DependencyError, RemoteError
from adrenoc.check import doctor
from adrenoc.check.doctor import CheckedItem
from adrenoc.cli.main import main
from adrenoc.device import adb
from tests.commands import ask, refuse, succeed
from tests.ndks import fake_ndk, forget_ndks
from tests.patience import WAIT_S
from tests.runtime.fake_adb import fake_adb_process, what_happened
from tests.runtime.servers import SOFTWARE_ENVIRONMENT, free_port

SERIAL = "R58M12ABCDE"


@pytest.fixture
def fake(monkeypatch, tmp_path) -> Iterator[int]:
    monkeypatch.setattr(adb, "DEVICE_FOLDER", str(tmp_path / "phone"))
    with fake_adb_process({SERIAL: "device"}, SOFTWARE_ENVIRONMENT) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        yield port


def test_a_bundle_runs_on_a_phone(fake, bundle, case, runtime, opencl, tmp_path, monkeypatch):
    inputs = [f"{name}={file}" for name, file in case.files.items()]
    monkeypatch.setenv("ADRENOC_RUNTIME", str(runtime.folder))
    command = ["run", str(bundle.path), "--on", f"adb:{SERIAL}"]
    command += ["--repeat", "1", "--json", "--save", str(tmp_path / "out.npz")]
    command += [word for item in inputs for word in ("--input", item)]
    first = json.loads(succeed(*command).stdout)
    case.check(np.load(tmp_path / "out.npz"))
    happened = what_happened(fake)
    assert [Path(name).name for name in happened["pushed"]] == ["adrenoc_rpc"]
    assert not happened["forwards"]  # taken back
    key = re.search(r"--key (\w+)", happened["commands"][-2])
    assert key is not None and len(key[1]) == 32  # a secret of this session

    again = json.loads(succeed(*command).stdout)
    assert what_happened(fake)["pushed"] == happened["pushed"]
    assert first["programs"]["hits"] == 0
    assert again["programs"]["hits"] == len(bundle.manifest.kernels)
    assert again["notes"][-1].startswith("0.0 MB were sent")


def test_the_walk_of_the_readme(fake, bundle, runtime, opencl, work, tmp_path, capsys, monkeypatch):
    """Build the runtime, run, compare, profile; what is there is not sent again."""
    built = tmp_path / "built"
    assert main(["runtime", "build", "-o", str(built)]) == 0
    monkeypatch.setenv("ADRENOC_RUNTIME", str(built))
    command = ["run", str(bundle.path), "--on", f"adb:{SERIAL}", "--repeat", "2"]
    command += ["--check", str(work / "two.onnx"), "--profile"]
    capsys.readouterr()
    assert main(command) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "\x1b" not in said.out  # no colours where nobody looks
    assert "agrees with the reference" in said.out
    assert "GFLOPS" in said.out
    pushed = what_happened(fake)["pushed"]
    # A server that changed goes to a place of its own, beside the one that others may use.
    (built / "adrenoc_rpc").write_bytes((built / "adrenoc_rpc").read_bytes() + b"\0")
    told = ask(*command)
    assert told["programs"]["misses"] == 0
    assert told["notes"][-1].startswith("0.0 MB were sent")
    again = what_happened(fake)["pushed"]
    assert len(again) == 2 * len(pushed)
    assert len({Path(name).parent for name in again}) == 2


def test_a_hang_names_what_the_user_can_read(fake, bundle, runtime, opencl, monkeypatch):
    """Nobody sees what the server on a phone says."""

    def late(*_: object) -> None:
        raise RuntimeError("the socket was closed")

    monkeypatch.setattr("tvm.rpc.connect", late)
    monkeypatch.setenv("ADRENOC_RUNTIME", str(runtime.folder))
    said = refuse(RemoteError, "run", bundle.path, "--on", f"adb:{SERIAL}")
    assert f"adb -s {SERIAL} logcat -d" in said
    assert "the server's output" not in said


def test_a_runtime_that_does_not_start(fake, tmp_path):
    broken = tmp_path / "runtime"
    broken.mkdir()
    (broken / "adrenoc_rpc").write_text("#!/bin/sh\necho CANNOT LINK EXECUTABLE\nexit 1\n")
    phone = adb.pick_device("", timeout_s=WAIT_S)
    with (
        pytest.raises(AdbError, match=r"does not start on the device: .*CANNOT LINK EXECUTABLE"),
        adb.adb_server(phone, broken, timeout_s=WAIT_S, folder=str(tmp_path / "phone")),
    ):
        pass


def test_a_runtime_without_a_server(fake, tmp_path):
    phone = adb.pick_device("", timeout_s=WAIT_S)
    with (
        pytest.raises(DependencyError, match="has no adrenoc_rpc, which runs on the device"),
        adb.adb_server(phone, tmp_path, timeout_s=WAIT_S, folder=str(tmp_path / "phone")),
    ):
        pass


@pytest.mark.parametrize(
    ("devices", "serial", "said"),
    [
        ({}, "", "adb has no device"),
        ({}, "X1", "adb has no device X1"),
        ({"A": "device", "B": "device"}, "", "more than one device: A .device., B .device."),
        ({"A": "unauthorized"}, "", "cannot be used: it does not trust this computer"),
        ({"A": "device", "B": "offline"}, "B", "cannot be used: it does not answer"),
        ({"A": "device"}, "B", "no device B; there is A"),
    ],
)
def test_phones_that_cannot_be_used(devices, serial, said, monkeypatch):
    with fake_adb_process(devices) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        with pytest.raises(AdbError, match=said):
            adb.pick_device(serial, timeout_s=WAIT_S)


def test_the_only_phone_that_is_ready_is_taken(monkeypatch):
    with fake_adb_process({"A": "offline", "B": "device"}) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        assert adb.pick_device("", timeout_s=WAIT_S).serial == "B"


def test_devices_lists_phones(fake):
    command = ["device", "list"]
    (phone,) = ask(*command)["adb"]
    assert (phone["serial"], phone["state"]) == (SERIAL, "device")
    assert (phone["abi"], phone["soc"], phone["api"]) == ("arm64-v8a", "SM8650", "34")
    assert SERIAL in succeed(*command).stdout


def test_an_adb_that_hangs_is_given_up(monkeypatch):
    with socket.create_server(("127.0.0.1", free_port())) as silent:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(silent.getsockname()[1]))
        with pytest.raises(AdbError, match="failed"):
            adb.list_devices(timeout_s=0.5)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("HOST", "127.0.0.2", "no adb server answers at 127.0.0.2:5037, where ANDROID_ADB"),
        ("HOST", "a" * 300, "no adb server answers at a"),
        ("PORT", "0", "ANDROID_ADB_SERVER_PORT holds no port: '0', expected 1 to 65535"),
        ("PORT", "65536", "holds no port: '65536'"),
        ("PORT", "\u0665", "holds no port"),
    ],
)
def test_no_server_is_started_here_where_another_is_meant(
    variable, value, said, monkeypatch, tmp_path
):
    started = tmp_path / "started"
    program = tmp_path / "adb"
    program.write_text(f"#!/bin/sh\ntouch {started}\n")
    program.chmod(0o755)
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(program))
    monkeypatch.setenv(f"ANDROID_ADB_SERVER_{variable}", value)
    with pytest.raises(AdbError, match=said):
        adb.list_devices(timeout_s=1)
    assert not started.exists()


def test_an_empty_variable_counts_as_unset(monkeypatch):
    with fake_adb_process({"A": "device"}) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_HOST", "")
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        assert adb.pick_device("", timeout_s=WAIT_S).serial == "A"


FACTS = {
    "ro.product.cpu.abi": "arm64-v8a",
    "ro.product.model": "SM-S928B",
    "ro.build.version.release": "14",
    "ro.build.version.sdk": "34",
}


@contextmanager
def _phone(
    monkeypatch: pytest.MonkeyPatch, folder: Path, facts: Mapping[str, str], state: str = "device"
) -> Iterator[None]:
    """adb with one phone, whose `getprop` answers with `facts`."""
    folder.mkdir()
    answers = "".join(f"  {name}) echo '{value}';;\n" for name, value in facts.items())
    script = folder / "getprop"
    script.write_text(f"#!/bin/sh\ncase $1 in\n{answers}esac\n")
    script.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    with fake_adb_process({"R58": state}, environment) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        yield


def _finding(subject: str) -> CheckedItem:
    (found,) = [one for one in (doctor._ndk(), *doctor._phones()) if one.subject == subject]
    assert (found.state == "ok") == (not found.fix)
    return found


@pytest.fixture(autouse=True)
def _adbutils(request) -> None:
    if request.node.name != "test_no_ndk":
        pytest.importorskip("adbutils", reason="pip install '.[adb]'")


def test_no_ndk(monkeypatch, tmp_path):
    forget_ndks(monkeypatch, tmp_path)
    found = _ndk_finding()
    assert (found.state, found.seen) == (
        "missing",
        "none in the usual places, and no variable names one",
    )
    fake_ndk(tmp_path / "Android/Sdk/ndk/21.4.7075529", "21.4.7075529")
    assert "is r21; adrenoc needs r23 or newer" in _ndk_finding().seen
    monkeypatch.setenv("ANDROID_NDK_HOME", str(tmp_path))
    assert "is not an Android NDK" in _ndk_finding().seen
    fake_ndk(tmp_path / "mac", "27.0.1", host="darwin-x86_64")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(tmp_path / "mac"))
    assert "its tools are for macOS" in _ndk_finding().seen
    fake_ndk(tmp_path / "good", "27.0.1")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(tmp_path / "good"))
    assert _ndk_finding() == CheckedItem(
        subject="Android NDK",
        state="ok",
        seen=f"27.0.1 at {tmp_path / 'good'} (ANDROID_NDK_HOME)",
        needed_for="runtime build for phones",
    )


def _ndk_finding() -> CheckedItem:
    found = doctor._ndk()
    assert (found.state == "ok") == (not found.fix)
    return found


def test_no_adb_for_a_phone(monkeypatch):
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
    monkeypatch.setenv("ADBUTILS_ADB_PATH", "/nowhere/adb")
    found = _finding("adb")
    assert (found.state, found.seen) == (
        "missing",
        "there is no program adb to start a server with",
    )
    assert "apt-get install adb" in found.fix


def test_no_phone(monkeypatch):
    with fake_adb_process({}) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        assert _finding("adb").seen == "it answers; no phone is connected"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("unauthorized", "does not trust this computer: allow USB debugging on its screen"),
        ("offline", "does not answer: plug it in again"),
        ("recovery", "its state is recovery"),
    ],
)
def test_a_phone_that_is_not_ready(state, said, monkeypatch, tmp_path):
    with _phone(monkeypatch, tmp_path / "phone", FACTS, state):
        found = _finding("phone R58")
    assert found.state == "missing"
    assert said in found.seen


def test_a_phone_without_opencl(monkeypatch, tmp_path):
    with _phone(monkeypatch, tmp_path / "phone", FACTS):
        found = _finding("phone R58")
    assert found.state == "missing"
    assert found.seen.startswith("it has no libOpenCL.so in /vendor")


def test_a_phone_that_is_good(monkeypatch, tmp_path):
    library = tmp_path / "libOpenCL.so"
    library.touch()
    monkeypatch.setattr(adb, "_FACTS", adb._FACTS.replace("/vendor/lib64 ", f"{tmp_path} "))
    with _phone(monkeypatch, tmp_path / "phone", FACTS):
        found = _finding("phone R58")
        assert (found.state, found.seen) == ("ok", "SM-S928B, Android 14")
        assert str(library) in "".join(succeed("device", "list").stdout.split())


def test_a_phone_that_is_too_old(monkeypatch, tmp_path):
    old = {**FACTS, "ro.build.version.release": "6.0", "ro.build.version.sdk": "23"}
    with _phone(monkeypatch, tmp_path / "phone", old):
        found = _finding("phone R58")
        assert found.seen == "it has Android 6.0 (API level 23), expected 24"
        with pytest.raises(AdbError, match=r"cannot be used: it has Android 6\.0"):
            adb.pick_device("", timeout_s=WAIT_S)
