"""Schedules of firmware: each computes the same, a log is kept and honoured, boards may fail."""

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from adrenoc.cli.main import main
from adrenoc.firmware.mcu.boards import (
    Candidate,
    EmulatedBoard,
    expected_hash,
    tasks_of,
    trial_program,
)
from adrenoc.firmware.mcu.core import load_core
from adrenoc.firmware.mcu.kernel import Measured
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.program import make_program
from adrenoc.firmware.mcu.tflite.importer import network_of
from adrenoc.importers.tflite.file import read_tflite
from adrenoc.ir.tuning_log import Status, read_log
from adrenoc.lab.tune.firmware import read_lines
from tests.mcu.judge import needs_emulator
from tests.mcu.maker import Maker

Adrenoc = Callable[..., "Done"]
_STAND_IN = Path(__file__).with_name("stand_in_board.py")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no cc, which plays a board")


def _layers() -> bytes:
    """Layers of each kind that has schedules, small."""
    make = Maker(seed=5)
    x = make.input(1, 6, 7, 8)
    y = make.conv(x, 9, (3, 3), relu="RELU6")
    z = make.depthwise(make.conv(x, 12), relu="RELU")
    z = make.add(x, make.conv(z, 8))
    rows = make.dense(make.input(2, 40), 7)
    return make.finish(y, z, make.dense(make.input(1, 33), 10, relu="RELU"), rows)


def _network(content: bytes) -> Network:
    return network_of(Path("m.tflite"), read_tflite(Path("m.tflite"), content))


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    exit_code: int
    output: str
    errors: str


@pytest.fixture(name="adrenoc")
def fixtureadrenoc(capsys) -> Callable[..., Done]:
    """Runs a command here."""

    def run(*words: str) -> Done:
        code = main(list(words))
        said = capsys.readouterr()
        return Done(exit_code=code, output=said.out, errors=said.err)

    return run


def _executor(*words: str) -> str:
    return shlex.join([sys.executable, str(_STAND_IN), *words])


@needs_emulator
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_all_schedules_of_a_layer_compute_the_same(core):
    program = make_program(_network(_layers()), load_core(core))
    tasks = tasks_of(program)
    candidates = [Candidate(task=task, choice=c) for task in tasks for c in task.choices]
    assert len(tasks) >= 5
    assert len({json.dumps(c.choice.actions, sort_keys=True) for c in candidates}) >= 20
    board = EmulatedBoard(program.core, limit_s=300.0)
    rows = read_lines(board.run(trial_program(candidates)))
    ratios = []
    for number, candidate in enumerate(candidates):
        ticks, found = rows[number]
        assert found == expected_hash(candidate.task), candidate.choice.key
        counted = 1000 * board.time_us(ticks) / candidate.repeats
        ratios.append(candidate.choice.instructions / counted)
    if core == "cortex-m4":
        assert 0.6 < min(ratios) <= max(ratios) < 1.4, "the cost model is far from the counts"


@needs_compiler
def test_a_board_behind_a_command_tunes(tmp_path, adrenoc, monkeypatch):
    monkeypatch.setenv("ADRENOC_EXECUTOR", _executor())
    model, log = tmp_path / "m.tflite", tmp_path / "m.tune.json"
    model.write_bytes(_layers())
    words = ("firmware", "tune", str(model), "--device", "cortex-m4", "-o", str(log), "--json")
    done = adrenoc(*words, "--trials", "12")
    assert done.exit_code == 0, done.errors
    trials = read_log(log)
    assert len(trials) == 12
    assert {t.status for t in trials} == {Status.OK}
    assert {t.device.name for t in trials} == {"stand-in"}
    # 1000 ticks at 100 MHz are 10 microseconds for all repetitions.
    assert all(t.median_us == pytest.approx(10.0 / t.runs) for t in trials)
    again = adrenoc(*words, "--trials", "15")
    assert again.exit_code == 0, again.errors
    assert len(read_log(log)) == 15
    words = (str(model), "--device", "cortex-m4", "--tuning-log", str(log), "--json")
    made = adrenoc("firmware", "compile", *words, "-o", str(tmp_path / "m"))
    assert made.exit_code == 0, made.errors
    decisions = json.loads(made.output)["decisions"]
    assert [d for d in decisions if d["reason"].startswith("the fastest of the tuning log")]
    checked = adrenoc("firmware", "check", *words)
    assert json.loads(checked.output)["decisions"] == decisions


def _tune(folder: Path, adrenoc: Adrenoc, trials: int) -> tuple[Done, Path]:
    """Tune the layers by a board's program; how that ended, and where the log is to be."""
    model, log = folder / "m.tflite", folder / "m.tune.json"
    model.write_bytes(_layers())
    words = ("--device", "cortex-m4", "--trials", str(trials))
    return adrenoc("firmware", "tune", str(model), "-o", str(log), *words), log


@needs_compiler
def test_a_program_that_fails_is_halved(tmp_path, adrenoc, monkeypatch):
    monkeypatch.setenv("ADRENOC_EXECUTOR", _executor("fail", "2"))
    done, log = _tune(tmp_path, adrenoc, 4)
    assert done.exit_code == 0, done.errors
    assert [t.status for t in read_log(log)] == [Status.OK] * 4


@pytest.mark.parametrize("how", ["garbage", "crash"])
def test_a_board_that_fails_is_told(how, tmp_path, adrenoc, monkeypatch):
    monkeypatch.setenv("ADRENOC_EXECUTOR", _executor(how))
    done, log = _tune(tmp_path, adrenoc, 2)
    if how == "garbage":
        assert done.exit_code == 19
        assert "expected a line BOARD" in done.errors
        assert not log.exists()
        return
    assert done.exit_code == 0, done.errors
    assert [t.status for t in read_log(log)] == [Status.CRASH] * 2


def test_what_cannot_be_tuned_is_refused(tmp_path, adrenoc, monkeypatch):
    model = tmp_path / "m.tflite"
    model.write_bytes(_layers())
    for core, executor, code, said in (
        ("cortex-m0plus", "", 17, "one schedule each"),
        ("cpu:arm64", "", 17, "one schedule each"),
        ("cortex-m4", "/no/such", 19, "does not start"),
        ("cortex-m4", " ", 17, "it is empty"),
    ):
        monkeypatch.setenv("ADRENOC_EXECUTOR", executor)
        done = adrenoc("firmware", "tune", str(model), "--device", core)
        assert done.exit_code == code, done.errors
        assert said in " ".join(done.errors.split()), done.errors


def test_flash_is_spent_where_it_saves_most():
    network, core = _network(_layers()), load_core("cortex-m4")
    lean = make_program(network, core)
    last = lean.constant_bytes
    for spare in (64, 700, 1 << 20):
        program = make_program(network, core, spare_bytes=spare)
        assert last <= program.constant_bytes <= lean.constant_bytes + spare
        last = program.constant_bytes
    assert last > lean.constant_bytes


def test_spare_flash_is_asked_for_by_name(tmp_path, adrenoc):
    model = tmp_path / "m.tflite"
    model.write_bytes(_layers())
    words = ("firmware", "check", str(model), "--json", "--device")
    usual = json.loads(adrenoc(*words, "cortex-m4").output)
    larger = json.loads(adrenoc(*words, "cortex-m4", "--limit", "spare-flash-kib=64").output)
    assert larger["constant_bytes"] > usual["constant_bytes"]
    assert larger["arena_bytes"] <= usual["arena_bytes"]
    assert adrenoc(*words, "cpu:arm64", "--limit", "spare-flash-kib=64").exit_code == 2


def test_a_log_of_failures_alone_forbids_nothing():
    network, core = _network(_layers()), load_core("cortex-m4")
    usual = make_program(network, core)
    tasks = tasks_of(usual)
    failed = frozenset((task.digest, choice.key) for task in tasks for choice in task.choices)
    program = make_program(network, core, measured=Measured(failed=failed))
    assert [s.kernel.schedule for s in program.steps] == [s.kernel.schedule for s in usual.steps]
    first = tasks[0]
    one = Measured(failed=frozenset({(first.digest, first.untuned)}))
    moved = make_program(network, core, measured=one)
    chosen = {s.made: s.kernel.schedule for s in moved.steps}
    assert chosen[first.operator.result] != first.untuned
