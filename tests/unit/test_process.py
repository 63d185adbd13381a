"""What a process takes and does by itself: memory, threads, imports, and sections in time."""

import gc
import json
import os
import resource
import sys
from pathlib import Path

import pytest

from adrenoc.base.errors import HostMemoryError, OptionError
from adrenoc.base.files.read import spell_native_path
from adrenoc.base.host.memory import LEAST_BYTES, collect_rarely, collector_paused
from adrenoc.base.host.time_trace import is_recording, record_sections, section
from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.main import main
from tests.commands import run_program


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
