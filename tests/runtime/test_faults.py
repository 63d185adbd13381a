"""Links, disks and drivers that fail half-way: typed errors in time, and a server that lives."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import BundleError, DeviceError, DeviceMemoryError, RemoteError
from adrenoc.cli.main import main
from adrenoc.device.remote import open_session, run_remote
from tests.commands import run_program
from tests.runtime.link import link_to
from tests.runtime.servers import (
    SOFTWARE_ENVIRONMENT,
    WAIT_S,
    Served,
    address_of,
    check_remote,
    native_server,
    server_process,
    wait_until,
)

DEVICE_FAILED = 25


def _with_mounts(script: str, place: Path) -> list[object]:
    """The words before a command that has mounts of its own, which `script` makes at `place`."""
    own = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec")
    enter = [*own, f'{script}; exec "$@"', place]
    if run_program([*enter, "true"]).returncode != 0:
        pytest.skip("this user may not mount a disk of its own")
    return enter


# --- links ----------------------------------------------------------------------------------------


def test_a_slow_link_is_no_failure(bundle, case, runtime, opencl):
    with native_server(runtime, opencl) as (_, port), link_to(port, bytes_per_s=40_000) as slow:
        started = time.monotonic()
        # Each kernel's source and each answer pass one by one; the library is the longest message.
        check_remote(bundle, case, address_of(slow, timeout_s=WAIT_S))
        assert time.monotonic() - started > 1


@pytest.mark.parametrize(("then", "said"), [("stall", "within 1 s"), ("cut", "left or did not")])
# In the greeting, in the upload of the library, in that of the constants or later.
@pytest.mark.parametrize("end", [10, 2_000, 30_000])
def test_a_link_that_ends_half_way(end, then, said, bundle, case, runtime, opencl, tmp_path):
    options = ("--store", str(tmp_path / "store"), "--folder", str(tmp_path))
    with native_server(runtime, opencl, *options) as (_, port):
        with link_to(port, end=end, then=then) as broken:
            limit_s = 1.0 if then == "stall" else WAIT_S
            with pytest.raises(RemoteError, match=said):
                run_remote(bundle, address_of(broken, timeout_s=limit_s), inputs=case.arrays)
        # What came half is not taken for the whole.
        check_remote(bundle, case, address_of(port))
        wait_until(lambda: not list(tmp_path.glob("adrenoc-rpc-*")))


def test_a_second_client_waits_or_is_told(bundle, case, runtime, opencl):
    with native_server(runtime, opencl) as (_, port):
        with open_session(address_of(port)):
            with pytest.raises(RemoteError, match="did not answer within 1 s") as caught:
                run_remote(bundle, address_of(port, timeout_s=1.0), inputs=case.arrays)
            assert "one client at a time" in caught.value.hint
        check_remote(bundle, case, address_of(port))


def test_a_server_of_another_version(bundle, case, runtime, opencl):
    versions = {**bundle.manifest.versions, "apache-tvm": "0.28.0"}
    newer = replace(bundle, manifest=replace(bundle.manifest, versions=versions))
    with (
        native_server(runtime, opencl) as (_, port),
        pytest.raises(BundleError, match=r"TVM 0\.28\.0, but the server at .* runs TVM 0\.27"),
    ):
        run_remote(newer, address_of(port), inputs=case.arrays)


def _kill_when_it_runs(server: subprocess.Popen[str], folder: Path) -> None:
    """Kill a server a second after it launched something."""

    def runs() -> bool:
        with suppress(OSError):
            told = [one.read_bytes() for one in folder.glob("*/doing")]
            return any(b"launching" in text or b"replaying" in text for text in told)
        return False

    wait_until(runs)
    time.sleep(1)
    server.kill()


def test_what_ran_before_is_kept(bundle, case, runtime, opencl, tmp_path, capsys):
    kept = tmp_path / "kept.npz"
    with native_server(runtime, opencl, "--folder", str(tmp_path)) as (server, port):
        command = ["run", str(bundle.path), "--on", f"127.0.0.1:{port}", "--repeat", "1000000"]
        command += ["--save", str(kept)]
        for name, file in case.files.items():
            command += ["--input", f"{name}={file}"]
        killer = threading.Thread(target=_kill_when_it_runs, args=[server, tmp_path])
        killer.start()
        assert main(command) == RemoteError.exit_code
    killer.join()
    assert "(before that the first run took " in " ".join(capsys.readouterr().err.split())
    with np.load(kept) as outputs:
        case.check(outputs)


# --- disks ----------------------------------------------------------------------------------------


def _on_a_small_disk(folder: Path, kib: int, *command: object, **extra: str) -> Served:
    """A server that sees a disk of its own at `folder`."""
    folder.mkdir()
    enter = _with_mounts(f'mount -t tmpfs -o size={kib}k none "$0"', folder)
    return server_process(*enter, *command, **extra)


@pytest.mark.parametrize("kib", [4, 8, 16])
def test_a_full_disk_at_the_server(kib, bundle, case, runtime, opencl, tmp_path):
    """No room for a session's folder, for what it notes, or for what is sent."""
    disk = tmp_path / "disk"
    command = [runtime.server, "--port", "0", "--opencl", opencl, "--folder", disk]
    with _on_a_small_disk(disk, kib, *command, **SOFTWARE_ENVIRONMENT) as (_, port):
        for _ in range(2):  # the server lives on
            with pytest.raises(RemoteError, match=r"No space left on device|left or did not"):
                run_remote(bundle, address_of(port, timeout_s=WAIT_S), inputs=case.arrays)


@pytest.mark.parametrize("kind", ["native", "python"])
def test_the_store_may_lie_on_another_disk(kind, bundle, case, runtime, opencl, tmp_path):
    disk = tmp_path / "disk"
    command: list[object] = [runtime.server, "--port", "0", "--opencl", opencl]
    command += ["--folder", disk, "--store", tmp_path / "store"]
    extra = dict(SOFTWARE_ENVIRONMENT)
    if kind == "python":
        command = [sys.executable, "-m", "adrenoc", "runtime", "serve", "--port", "0", "--json"]
        extra = {"TMPDIR": str(disk)}
    with _on_a_small_disk(disk, 1 << 14, *command, **extra) as (_, port):
        check_remote(bundle, case, address_of(port))


# --- drivers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "error", "said"),
    [
        ("MEMORY", DeviceMemoryError, "has no memory left"),
        ("BUILD", DeviceError, "Cannot build kernel"),
        (
            "LAUNCH",
            DeviceError,
            "CL_OUT_OF_RESOURCES.*takes commands again.*than that memory ran out",
        ),
        ("FINISH", DeviceError, "CL_OUT_OF_RESOURCES.*takes no command any more.*it was lost"),
    ],
)
def test_a_driver_that_refuses(
    what, error, said, bundle, case, runtime, failing, monkeypatch, capsys
):
    monkeypatch.setenv(f"ADRENOC_TEST_FAIL_{what}", "1")
    with native_server(runtime, str(failing)) as (_, port):
        with pytest.raises(error, match=said):
            run_remote(bundle, address_of(port), inputs=case.arrays, programs=None)
        command = ["run", str(bundle.path), "--on", f"127.0.0.1:{port}", "--json"]
        monkeypatch.setenv("ADRENOC_PROGRAM_CACHE", "off")
        assert main(command) == error.exit_code
        assert json.loads(capsys.readouterr().out)["error"]["hint"]


@pytest.mark.parametrize("what", ["LAUNCH", "FINISH"])
def test_the_c_api_tells_what_decides_too(what, bundle, failing, runner):
    failure = {f"ADRENOC_TEST_FAIL_{what}": "1"}
    said = runner(bundle.path, library=failing, expect=DEVICE_FAILED, **failure).err
    lost = "takes no command any more" if what == "FINISH" else "takes commands again"
    assert "the device failed: " in said
    assert "CL_OUT_OF_RESOURCES" in said
    assert lost in said
    assert "MiB are in use by this process" in said


@pytest.mark.parametrize("wrong", ["binaries", "folder", "full"])
def test_built_kernels_that_cannot_be_kept_cost_the_next_start_alone(
    wrong, bundle, case, runtime, failing, execute, tmp_path
):
    """The driver does not give them, the folder cannot be written, the disk is full."""
    cache, extra, enter = tmp_path / "cache", {}, []
    if wrong == "binaries":
        extra = {"ADRENOC_TEST_FAIL_BINARIES": "1"}
    elif wrong == "folder":
        cache = tmp_path / "file" / "cache"
        cache.parent.write_text("")
    else:
        cache.mkdir()
        enter = _with_mounts('mount -t tmpfs -o size=4k none "$0"', cache)
    command = (runtime.runner, bundle.path, "--opencl", failing, "--cache", cache)
    told = execute(*enter, *command, **extra).json()
    assert told["cache_misses"] > 0
    (note,) = told["notes"]
    assert note.startswith("the built kernels are not kept, so the next start builds them again: ")
    assert {
        "binaries": "the driver does not give them: clGetProgramInfo",
        "folder": f"cannot write to {cache}: Not a directory",
        "full": "No space left on device",
    }[wrong] in note


def test_a_launch_that_hangs_keeps_nobody(bundle, case, runtime, failing, tmp_path):
    """The client ends with its error; the server ends the session, and serves the next one."""
    hang = tmp_path / "hang"
    hang.touch()
    command = [runtime.server, "--port", "0", "--opencl", failing, "--folder", tmp_path]
    extra = {**SOFTWARE_ENVIRONMENT, "ADRENOC_TEST_HANG": str(hang)}
    with server_process(*command, **extra) as (server, port):
        client = [sys.executable, "-m", "adrenoc", "run", str(bundle.path)]
        client += ["--on", f"127.0.0.1:{port}"]
        told = {**os.environ, "ADRENOC_TIMEOUT": "4", "ADRENOC_PROGRAM_CACHE": "off"}
        done = run_program(client, timeout=WAIT_S, env=told)
        assert done.returncode == RemoteError.exit_code, done.stderr
        assert "did not answer within 4 s" in " ".join(done.stderr.split())
        # While the file is there, the session does not end by itself.
        wait_until(lambda: "after its peer had left" in "".join(server.heard))
        hang.unlink()
        check_remote(bundle, case, address_of(port))


def test_a_run_that_hangs_ends(bundle, failing, runner, tmp_path):
    """The runner ends by itself, as a server's client does."""
    hang = tmp_path / "hang"
    hang.touch()
    run = partial(runner, bundle.path, "--timeout", library=failing, ADRENOC_TEST_HANG=str(hang))
    done = run("2", expect=DEVICE_FAILED)
    assert "did not end within 2 s: the device or its driver hangs" in done.err
    hang.unlink()
    run("60")


# --- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["native", "python"])
def test_a_session_that_cannot_start_tells_why(kind, bundle, case, runtime, opencl, tmp_path):
    disk = tmp_path / "disk"
    command: list[object] = [runtime.server, "--port", "0", "--opencl", opencl, "--folder", disk]
    disk.mkdir()
    frozen = _with_mounts('mount -t tmpfs -o ro none "$0"', disk)
    served = server_process(*frozen, *command, **SOFTWARE_ENVIRONMENT)
    if kind == "python":
        served = server_process(sys.executable, "-c", _SERVER_WITHOUT_ROOM)
    said = r"did not start a session: .*(Read-only file system|No space left on device)"
    with served as (_, port), pytest.raises(RemoteError, match=said):
        run_remote(bundle, address_of(port), inputs=case.arrays)


_SERVER_WITHOUT_ROOM = """
from adrenoc.device import serve
class Silent:
    def note(self, text): pass
    warn = note
def session_folder():
    raise OSError(28, "No space left on device")
serve.session_folder = session_folder
server = serve.RpcServer(serve.ServeOptions())
print('{"port": %d}' % server.port, flush=True)
while True:
    server.serve_one(Silent())
"""


def test_where_sessions_have_their_folders(runtime, tmp_path):
    """Beside the program, else in TMPDIR, else where all may write; a phone has no /tmp."""
    there, other = tmp_path / "there", tmp_path / "other"
    shutil.copytree(runtime.folder, there)
    other.mkdir()
    server = there / runtime.server.name

    def folder(*command: object, **extra: str) -> str:
        with server_process(*command, server, "--port", "0", **extra) as (process, _):
            return str(json.loads(process.heard[0])["folder"])

    assert folder() == str(there)
    enter = _with_mounts('mount --bind "$0" "$0"; mount -o remount,ro,bind "$0"', there)
    assert folder(*enter, TMPDIR=str(other)) == str(other)
    assert folder(*enter, TMPDIR="/nowhere") in ("/data/local/tmp", "/tmp")
