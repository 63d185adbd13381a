"""A process that is asked to end does so within seconds, whatever its main thread waits for."""

import signal
import subprocess
import sys
import time

import pytest

from tests.commands import run_program
from tests.patience import WAIT_S, is_running

# The main thread waits in C for what never comes, and hears nothing of signals there.
_STUCK = """
import ctypes, signal, threading, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts with & ignores it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and what nohup starts, this
from adrenoc.base.files.aside import aside_file, aside_folder
from adrenoc.cli.interrupts import interrupts
from adrenoc.base.files.aside import TemporaryFolder

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
def test_a_long_call_of_c_does_not_hold_a_process(number, tmp_path):
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
        assert process.stdout.readline() == "stuck\n"
        assert len(list(work.iterdir())) == 2
        process.send_signal(number)
        try:
            _, said = process.communicate(timeout=WAIT_S)
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
from adrenoc.base.errors import CompileError

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
def test_what_a_signal_became_on_its_way_is_told_as_no_fault(error):
    done = subprocess.run(
        [sys.executable, "-c", _TURNED.format(error=error)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=WAIT_S,
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
from adrenoc.base.files.aside import TemporaryFolder

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
def test_threads_of_drivers_do_not_crash_a_process_that_ends(number, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _CRASHING.format(name=number.name)],
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr.endswith("nothing half-written was left\n")
    assert list(tmp_path.iterdir()) == []


_INTERRUPTED_EARLY = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts with & ignores it

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "adrenoc.cli.main":
            interrupt()

from adrenoc.__main__ import run_command
{when}
run_command()
"""
_EARLY = {
    "loading": "sys.meta_path.insert(0, Interrupt())",
    "loaded": "import adrenoc.cli.main as m; m.prepare_streams = interrupt",
    "about to hear of it": "import threading; threading.Thread.start = interrupt",
}


@pytest.mark.parametrize("when", _EARLY)
def test_ctrl_c_in_the_first_moments_is_told_in_a_sentence(when):
    done = run_program([sys.executable, "-c", _INTERRUPTED_EARLY.replace("{when}", _EARLY[when])])
    said = "interrupted; nothing half-written was left\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", said)


_KILLED = """
import os, signal, threading, time
from adrenoc.base.host.proc import {uses}

def kill():
    while not os.path.exists("started"):
        time.sleep(0.01)
    time.sleep({after})
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=kill).start()
{does}
"""
_TOOL = "sleep 1000 & echo $! > helper; echo $$ > tool; touch started; wait"


@pytest.mark.parametrize(
    ("uses", "does", "after"),
    [
        ("run_tool", f"run_tool(['/bin/sh', '-c', '{_TOOL}'], deed='wait')", 1.5),
        (
            "ending_with_us",
            "import subprocess\n"
            f"tool = subprocess.Popen(['/bin/sh', '-c', 'exec {_TOOL.partition(' &')[0]}'])\n"
            "open('tool', 'w').write(str(tool.pid)); open('helper', 'w').write(str(tool.pid))\n"
            "with ending_with_us(tool.pid):\n    open('started', 'w'); tool.wait()",
            0.3,
        ),
    ],
)
def test_what_a_killed_process_has_started_ends(tmp_path, uses, does, after):
    """After SIGKILL, too, which is how systems end a process when memory runs out."""
    program = _KILLED.format(uses=uses, does=does, after=after)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    started = [int((tmp_path / name).read_text()) for name in ("tool", "helper")]
    until = time.monotonic() + WAIT_S
    while any(is_running(number) for number in started):
        assert time.monotonic() < until
        time.sleep(0.05)
