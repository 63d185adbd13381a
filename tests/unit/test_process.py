"""Processes that are started, and what interrupts them."""

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adrenoc.base.errors import HostMemoryError, OptionError
from adrenoc.base.files.read import spell_native_path
from adrenoc.base.host.memory import LEAST_BYTES, collect_rarely, collector_paused
from adrenoc.base.host.time_trace import is_recording, record_sections, section
from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.main import main
from tests.commands import run_program
from tests.patience import WAIT_S, is_running


@pytest.mark.parametrize("command", ["check", "compile", "tune run", "check-accuracy"])
def test_too_little(command, monkeypatch, capsys):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (LEAST_BYTES - 1, LEAST_BYTES - 1))
    assert main([*command.split(), "model.onnx", "--json"]) == HostMemoryError.exit_code
    assert "ulimit -v" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_commands_that_need_little_do_with_it(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (LEAST_BYTES - 1, LEAST_BYTES - 1))
    assert main(["presets"]) == 0


_PRODUCT = """
import os, sys
os.sched_setaffinity(0, range(os.cpu_count()))  # a worker of the tests has one core
from adrenoc.cli.main import main
sys.argv = ["adrenoc", "targets"]
main()
import numpy as np
matrix = np.ones((512, 512), np.float32)
assert (matrix @ matrix).sum() == 512.0**3
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(os.cpu_count() == 1, reason="one core has one thread anyway")
@pytest.mark.parametrize(("asked", "threads"), [(None, 1), ("2", 2)])
def test_products_are_calculated_in_as_many_threads_as_are_asked_for(asked, threads):
    variables = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    if asked is not None:
        variables["OPENBLAS_NUM_THREADS"] = asked
    done = run_program([sys.executable, "-c", _PRODUCT], check=True, env=variables)
    assert int(done.stdout.splitlines()[-1]) == threads


_LOAD = "from adrenoc.base.host.memory import collect_rarely, collector_paused"
_MAKE = "made = [[] for _ in range(100_000)]"
_COUNT = "import gc; before = gc.get_stats()[0]['collections']"
_SHOW = "print(gc.get_stats()[0]['collections'] - before)"


def _count_collections(*lines: str) -> int:
    text = "\n".join([_LOAD, _COUNT, *lines, _SHOW])
    return int(run_program([sys.executable, "-c", text], check=True).stdout)


def test_nothing_is_collected_while_modules_are_loaded():
    assert _count_collections(_MAKE) > 50
    assert _count_collections(f"with collector_paused(): {_MAKE}") < 10


def test_a_compilation_is_looked_through_a_few_times():
    many = "made = [[] for _ in range(1_000_000)]"
    assert _count_collections(many) > 500
    assert 0 < _count_collections(f"with collect_rarely(): {many}") < 30


@pytest.mark.parametrize("is_frozen", [True, False])
def test_the_collector_is_as_it_was_after_a_failed_compilation_too(is_frozen):
    (gc.freeze if is_frozen else gc.unfreeze)()
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        with pytest.raises(ValueError, match="no model"), collect_rarely():
            assert gc.get_threshold() != before
            assert gc.get_freeze_count() > 0
            raise ValueError("no model")
        assert gc.get_threshold() == before
        assert gc.get_freeze_count() == frozen
        assert (frozen > 0) is is_frozen
    finally:
        gc.freeze()


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_as_it_was_after_a_failed_import_too(is_on):
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with pytest.raises(ImportError), collector_paused():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if was_on else gc.disable)()


_CIRCLE = """
class Circle:
    def __init__(self) -> None:
        self.own = self
    def __del__(self) -> None:
        print("found")
circle = Circle()
"""


@pytest.mark.parametrize("ends_quickly", [False, True])
def test_no_circles_are_looked_for_as_a_process_ends(ends_quickly):
    lines = ["from adrenoc.base.host.memory import leave_objects", _CIRCLE, "del circle"]
    if ends_quickly:
        lines.append("leave_objects()")
    done = run_program([sys.executable, "-c", "\n".join(lines)], check=True)
    assert ("found" in done.stdout) is not ends_quickly


@pytest.mark.parametrize(("call", "is_left"), [("main()", True), ("main(['targets'])", False)])
def test_only_a_command_of_its_own_process_leaves_its_objects(call, is_left):
    lines = [
        "import gc, sys",
        "from adrenoc.cli.main import main",
        "sys.argv = ['adrenoc', 'targets']",
        call,
        "print(gc.get_freeze_count() > 0, gc.isenabled())",
    ]
    done = run_program([sys.executable, "-c", "\n".join(lines)], check=True)
    assert done.stdout.splitlines()[-1] == f"{is_left} {not is_left}"


def test_paths_are_given_in_unicode():
    assert spell_native_path(Path("/a/\u00e9"), hint="x") == "/a/\u00e9"
    with pytest.raises(OptionError, match="is not UTF-8") as caught:
        spell_native_path(Path(os.fsdecode(b"/a/\xff")), hint="x")
    assert caught.value.hint == "x"


def test_paths_are_given_in_unicode_whatever_the_locale():
    program = (
        "import pathlib, sys\n"
        "from adrenoc.base.files.read import spell_native_path as spell\n"
        "print(ascii(spell(pathlib.Path(sys.argv[1]), hint='')))"
    )
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    told = run_program(
        [sys.executable, "-c", program, "/\u00e9"], env={**os.environ, **plain}, check=True
    )
    assert told.stdout == "'/\\xe9'\n"


def test_a_path_in_a_hint_is_no_option():
    assert quote_word(Path("-net.adrenoc")) == "./-net.adrenoc"
    assert quote_word(Path("-a b")) == "'./-a b'"
    assert quote_word(Path("a/-b")) == "a/-b"
    assert quote_word("-x") == "-x"


def test_sections_nest_and_end_where_work_fails():
    with record_sections() as trace:
        with section("outer", "stage"), section("inner", "kernel"):
            assert is_recording()
        with pytest.raises(ValueError, match="broken"), section("fails", "stage"):
            raise ValueError("broken")
    assert not is_recording()
    events = {event["name"]: event for event in json.loads(trace.to_json())["traceEvents"]}
    assert list(events) == ["start of the process", "inner", "outer", "fails"]
    inner, outer = events["inner"], events["outer"]
    for at, lasts in (("ts", "dur"), ("tts", "tdur")):
        assert outer[at] <= inner[at]
        assert inner[at] + inner[lasts] <= outer[at] + outer[lasts]
    with section("after", "stage"):
        assert "after" not in trace.to_json()


def test_compile_writes_it_beside_the_bundle(model, compiled, monkeypatch):
    monkeypatch.setenv("ADRENOC_TIME_TRACE", "trace.json")
    assert main(["compile", str(model)]) == 0
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert {"link", "write"} <= {event["name"] for event in events}
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)


def test_it_replaces_no_model(model, monkeypatch, capsys):
    monkeypatch.setenv("ADRENOC_TIME_TRACE", str(model))
    before = model.read_bytes()
    assert main(["compile", str(model)]) != 0
    assert model.read_bytes() == before
    assert "net" in capsys.readouterr().err


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
