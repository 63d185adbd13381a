"""A process that is asked to end does so within seconds, whatever its main thread waits for."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

# The main thread waits in C for what never comes, and hears nothing of signals there.
_STUCK = """
import ctypes, signal, threading, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts with & ignores it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and what nohup starts, this
from adrenoc.files.aside import aside_file, aside_folder
from adrenoc.cli.interrupts import interrupts
from adrenoc.files.temporary import TemporaryFolder

main = threading.get_native_id()

def tell():
    asleep = 0
    while asleep < 20:
        time.sleep(0.005)
        state = Path(f"/proc/self/task/{main}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
    print("stuck", flush=True)

with interrupts(), aside_file(Path("out")) as (_, stream), aside_folder(Path("bundle")) as folder:
    stream.write(b"half")
    stream.flush()
    (folder / "a").mkdir()
    (folder / "a" / "model.so").write_bytes(b"half")
    kept = TemporaryFolder("link")
    threading.Thread(target=tell).start()
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)  # no signal interrupts that
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_long_call_of_c_does_not_hold_a_process(number: signal.Signals, tmp_path: Path) -> None:
    work, temporary = tmp_path / "work", tmp_path / "tmp"
    work.mkdir()
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", _STUCK],
        cwd=work,
        env={"TMPDIR": str(temporary), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stuck\n"
        assert len(list(work.iterdir())) == 2
        process.send_signal(number)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()  # else leaving waits for ever for what did not end
    assert process.returncode == 128 + number, said
    assert "nothing half-written was left" in said
    assert list(work.iterdir()) == []
    assert list(temporary.iterdir()) == []


# TVM calls our code while the signal comes, and hands on an error of its own.
_TURNED = """
import os, signal, sys
from adrenoc.cli import main
from adrenoc.errors import CompileError

def lower(*args, **named):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    except BaseException as error:
        raise {error} from error

main.cli.main = lower
sys.exit(main.main([]))
"""


@pytest.mark.parametrize(
    "error", ["CompileError('operator relax.erf cannot be lowered', hint='x')", "RuntimeError('x')"]
)
def test_what_a_signal_became_on_its_way_is_told_as_no_fault(error: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TURNED.format(error=error)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert done.stderr == "ended by SIGTERM; nothing half-written was left\n"


# What a driver's threads do where its libraries are taken down under them.
_CRASHING = """
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts with & ignores it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and what nohup starts, this
from adrenoc.cli import main
from adrenoc.files.temporary import TemporaryFolder

def compute(*args, **named):
    global kept
    kept = TemporaryFolder("link")
    atexit.register(os.abort)
    os.kill(os.getpid(), signal.{name})
    signal.pause()

main.cli.main = compute
sys.argv = ["adrenoc"]
sys.exit(main.main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_threads_of_drivers_do_not_crash_a_process_that_ends(
    number: signal.Signals, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CRASHING.format(name=number.name)],
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr.endswith("nothing half-written was left\n")
    assert list(tmp_path.iterdir()) == []
