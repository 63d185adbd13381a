"""`adrenoc doctor` on what phones need: the true cause of each trouble, and what mends it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from adrenoc.base.errors import AdbError
from adrenoc.check import doctor
from adrenoc.check.doctor import CheckedItem
from adrenoc.cli.main import main
from adrenoc.device import adb
from tests.ndks import fake_ndk, forget_ndks
from tests.patience import WAIT_S
from tests.runtime.fake_adb import fake_adb_process
from tests.runtime.servers import free_port

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
    if "phone" in request.node.name:
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


def test_a_phone_that_is_good(monkeypatch, tmp_path, capsys):
    library = tmp_path / "libOpenCL.so"
    library.touch()
    monkeypatch.setattr(adb, "_FACTS", adb._FACTS.replace("/vendor/lib64 ", f"{tmp_path} "))
    with _phone(monkeypatch, tmp_path / "phone", FACTS):
        found = _finding("phone R58")
        assert (found.state, found.seen) == ("ok", "SM-S928B, Android 14")
        assert main(["device", "list"]) == 0
        assert str(library) in "".join(capsys.readouterr().out.split())


def test_a_phone_that_is_too_old(monkeypatch, tmp_path):
    old = {**FACTS, "ro.build.version.release": "6.0", "ro.build.version.sdk": "23"}
    with _phone(monkeypatch, tmp_path / "phone", old):
        found = _finding("phone R58")
        assert found.seen == "it has Android 6.0 (API level 23), expected 24"
        with pytest.raises(AdbError, match=r"cannot be used: it has Android 6\.0"):
            adb.pick_device("", timeout_s=WAIT_S)
