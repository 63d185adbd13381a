"""Runs commands of adrenoc in children of one process that has imported everything.

    python tests/hostile/forks.py

Reads a JSON object a line (the fields of `Case`, the folder, where output goes) and answers with
one: exit code or signal, processor time, memory.  An import of TVM takes seconds, a fork none, and
a command in a process that has run others less still: cases that set nothing up but files and
variables share one, until one of them ends or hangs it.
"""

import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from tests.patience import WAIT_S

_HEAVY = (
    "adrenoc.cli.main",
    "adrenoc.check.accuracy.examine",
    "adrenoc.check.check_model",
    "adrenoc.importers.onnx.importer",
    "adrenoc.importers.tflite.importer",
    "adrenoc.compile.make",
    "adrenoc.check.reference",
    "adrenoc.lab.tune.tuner",
    "rich.live",
    "safetensors.numpy",
)
# What a first use makes ready takes most of the time of a small command.
_FIRST = (
    ("check", "model.onnx"),
    ("check", "model.onnx", "--html", "out.html"),
    ("inspect", "b"),
    ("inspect", "b", "--json"),
    ("compile", "model.onnx", "--device", "host", "-o", "out"),
    ("compile", "model.onnx", "-o", "out.tar"),
    ("tune", "run", "model.onnx", "--offline"),
    ("tune", "log", "show", "model.onnx"),
    ("run", "b", "--on", "x"),
    ("device", "list", "--on", "tracker:x"),
)
_HANG_S = WAIT_S
_TICK_S = 0.005
_MOST_SHARED = 250
_USUAL_MASK = 0o022
_CAPABILITIES_3 = 0x20080522
_OF_FILES = 1 << 1 | 1 << 2 | 1 << 3
"""CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER."""


def main() -> None:
    for name in _HEAVY:
        importlib.import_module(name)
    _use_all()
    # So that no child writes to what it has only inherited.
    gc.collect()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    print("ready", file=answers, flush=True)
    shared: _Shared | None = None
    for line in sys.stdin:
        job = json.loads(line)
        if _Shared.takes(job):
            shared = shared or _Shared()
            answer, stays = shared.run(job)
            if not stays:
                shared.end()
                shared = None
        else:
            answer = _run(job)
        print(json.dumps(answer), file=answers, flush=True)
    if shared is not None:
        shared.end()


def _use_all() -> None:
    """Use most commands once, so that children find everything imported and looked up."""
    from adrenoc.cli.main import main as run
    from tests.hostile.models import relu
    from tests.unit.fake_compiled import make_bundle_folder

    before, cache = Path.cwd(), os.environ.get("ADRENOC_CACHE_DIR")
    with (
        tempfile.TemporaryDirectory(prefix="hostile-first-") as folder,
        Path(os.devnull).open("w") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        os.chdir(folder)
        Path("model.onnx").write_bytes(relu())
        make_bundle_folder(Path("b"))
        os.environ["ADRENOC_CACHE_DIR"] = str(Path(folder, "cache"))
        for command in _FIRST:
            run(command)
        os.chdir(before)
    os.environ.pop("ADRENOC_CACHE_DIR")
    if cache is not None:
        os.environ["ADRENOC_CACHE_DIR"] = cache


def _run(job: dict[str, Any]) -> dict[str, Any]:
    """What becomes of a case in a process of its own."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _child(job)
        except KeyboardInterrupt:  # it came before the command had begun
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os._exit(code)
    started = time.monotonic()
    is_sent = not job["signal"]
    while True:
        pid, status, used = os.wait4(child, os.WNOHANG)
        elapsed = time.monotonic() - started
        if pid:
            break
        if not is_sent and elapsed > job["after_s"]:
            os.kill(child, job["signal"])
            is_sent = True
        if elapsed > _HANG_S:
            os.kill(child, signal.SIGKILL)
        time.sleep(_TICK_S)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": used.ru_utime + used.ru_stime,
        "bytes": used.ru_maxrss * 1024,
        "hung": elapsed > _HANG_S,
    }


class _Shared:
    """A process for many cases, one after the other."""

    def __init__(self) -> None:
        self._jobs, theirs = socket.socketpair()
        self.cases = 0
        self._process = os.fork()
        if self._process == 0:
            self._jobs.close()
            try:
                _serve(theirs)
            finally:
                os._exit(70)
        theirs.close()

    @staticmethod
    def takes(job: dict[str, Any]) -> bool:
        """Whether a case leaves the process as it was."""
        alone = ("limits", "closed", "opened", "signal", "in_removed_folder", "without_rights")
        return job["umask"] == _USUAL_MASK and not any(job[key] for key in alone)

    def run(self, job: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """What becomes of it, and whether the process is there for the next one."""
        self.cases += 1
        self._jobs.sendall(json.dumps(job).encode() + b"\n")
        self._jobs.settimeout(_HANG_S)
        heard, is_late = b"", False
        try:
            while not heard.endswith(b"\n") and (piece := self._jobs.recv(1 << 16)):
                heard += piece
        except TimeoutError:
            os.kill(self._process, signal.SIGKILL)
            is_late = True
        if heard.endswith(b"\n"):
            return json.loads(heard), self.cases < _MOST_SHARED
        _, status, used = os.wait4(self._process, 0)
        self._process = 0
        return {
            "code": os.waitstatus_to_exitcode(status),
            "seconds": used.ru_utime + used.ru_stime if is_late else 0.0,
            "bytes": 0,
            "hung": is_late,
        }, False

    def end(self) -> None:
        """No more cases come."""
        self._jobs.close()
        if self._process:
            os.waitpid(self._process, 0)


def _serve(jobs: socket.socket) -> None:
    os.setsid()
    before = dict(os.environ)
    for line in jobs.makefile("rb"):
        used, most = _used_s(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
        code = _in_place(json.loads(line))
        lines = Path("/proc/self/status").read_text().splitlines()
        peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        peaks += [largest] if largest > most else []
        os.chdir("/")
        os.environ.clear()
        os.environ.update(before)
        answer = {"code": code, "seconds": _used_s() - used, "bytes": max(peaks) << 10}
        jobs.sendall(json.dumps({**answer, "hung": False}).encode() + b"\n")


def _used_s() -> float:
    """Processor time of this process and those that it waited for."""
    found = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in found)


def _child(job: dict[str, Any]) -> int:
    os.setsid()
    return _in_place(job)


def _in_place(job: dict[str, Any]) -> int:
    """Set this process up and run the command."""
    os.chdir(job["folder"])
    for name, value in job["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    tempfile.tempdir = None  # which was found for another TMPDIR
    _streams(job)
    os.umask(job["umask"])
    # Who starts this in the background may have had signals ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if job["in_removed_folder"]:
        gone = Path(job["folder"], "gone")
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
    if job["without_rights"]:
        _drop_rights()
    for name, value in job["limits"].items():
        number = getattr(resource, name)
        resource.setrlimit(number, (value, resource.getrlimit(number)[1]))
    from adrenoc.cli.main import main as run

    code = run(job["command"])
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        return 120  # what Python ends with where it cannot write what is left
    return code


def _drop_rights() -> None:
    """Modes of files count for root too from here on."""
    if os.geteuid() != 0:
        return
    header = struct.pack("=Ii", _CAPABILITIES_3, 0)
    # Effective, permitted and inherited rights; the lower 32 of each, then the higher ones.
    rights = ctypes.create_string_buffer(24)
    library = ctypes.CDLL(None, use_errno=True)
    if library.capget(header, rights):
        raise OSError(ctypes.get_errno(), "capget")
    held = list(struct.unpack("=6I", rights.raw))
    for number in range(3):
        held[number] &= ~_OF_FILES
    if library.capset(header, struct.pack("=6I", *held)):
        raise OSError(ctypes.get_errno(), "capset")


def _streams(job: dict[str, Any]) -> None:
    """Standard streams as a shell sets them up, and Python's objects for them as at its start."""
    places = {0: os.devnull, 1: job["output"], 2: job["errors"]}
    places |= {int(number): path for number, path in job["opened"].items()}
    for number, path in places.items():
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    encoding = job["environment"].get("PYTHONIOENCODING", "utf-8")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = None
        if number in job["closed"]:
            os.close(number)
        else:
            stream = open(number, "r" if number == 0 else "w", encoding=encoding, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


if __name__ == "__main__":
    main()
