"""Fleets without devices: what comes next, what counts, and what tables say of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adrenoc.base.errors import AdbError, InputError, OutputError, RemoteError
from adrenoc.cli.main import main
from adrenoc.lab.fleet import runner
from adrenoc.lab.fleet.board import (
    DONE,
    FAILED,
    LEFT,
    MOST_ATTEMPTS,
    MOST_LOSSES,
    WAITING,
    Board,
    Plan,
    target_of,
)
from adrenoc.lab.fleet.fleet import FleetReport
from adrenoc.lab.fleet.store import (
    CALIBRATE,
    COMPILE,
    IDENTIFY,
    RUN,
    VERIFY,
    Result,
    Store,
    hold_lock,
    write_result,
)
from adrenoc.lab.fleet.table import lines_of
from adrenoc.target.device_set import load_device_set
from tests.hostile.models import relu
from tests.planted_fleet import PHONE, PlantedFleet, give_good_result


@pytest.fixture
def fleet(tmp_path: Path) -> PlantedFleet:
    return PlantedFleet(tmp_path)


def test_a_device_says_what_it_is_then_waits_for_its_bundles(fleet: PlantedFleet) -> None:
    fleet.board.meet("x")
    asked = fleet.board.take("x")
    assert asked is not None
    assert asked.action == IDENTIFY
    assert fleet.board.take("x") is None
    fleet.finish(asked, give_good_result(asked, fleet.plan))
    assert fleet.board.targets() == {"x": "adreno:a750"}
    assert fleet.board.take("x") is None  # no bundle is there
    assert not fleet.board.is_over("x")
    made = fleet.board.take_compile()
    assert made is not None
    assert made.words[:4] == ("compile", str(fleet.models[0]), "--device", "adreno:a750")
    fleet.finish(made, give_good_result(made, fleet.plan))
    run = fleet.board.take("x")
    assert run is not None
    assert (run.action, run.model) == (RUN, str(fleet.models[0]))


def test_one_bundle_serves_devices_of_several_kinds(tmp_path: Path) -> None:
    fleet = PlantedFleet(tmp_path, target=load_device_set("all").option)
    for name in ("x", "y"):
        fleet.board.meet(name)
    done = fleet.walk("x", "y")
    assert [sum(job.action == action for job in done) for action in (COMPILE, RUN)] == [2, 4]
    ran = {word for job in done if job.action == RUN for word in job.words if "/bundles/" in word}
    assert len(ran) == 2
    assert all(len(Path(word).name) < 64 for word in ran)
    other = PlantedFleet(tmp_path, target=load_device_set("adreno:660,adreno:750").option)
    assert not ran & {str(other.plan.bundle_path(other.options.target, m)) for m in other.models}


def test_what_is_done_for_one_kind_of_gpu_takes_no_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.onnx").write_bytes(relu())
    words = ["device", "fleet", str(tmp_path / "a.onnx"), "--do", "verify", "--on", "127.0.0.1:1"]
    assert main([*words, "--device", "adreno:660,adreno:750"]) == 2
    assert "--do verify is for one kind of GPU" in capsys.readouterr().err


def test_a_bundle_is_made_once_for_a_kind_of_gpu(fleet: PlantedFleet) -> None:
    for name in ("x", "y", "z"):
        fleet.board.meet(name)
    done = fleet.walk("x", "y", "z")
    assert [sum(job.action == action for job in done) for action in (IDENTIFY, COMPILE, RUN)] == [
        3,
        2,
        6,
    ]
    assert fleet.board.settle()
    assert {row.state for row in fleet.board.rows()} == {DONE}


def test_what_was_done_is_not_done_again(tmp_path: Path, fleet: PlantedFleet) -> None:
    fleet.board.meet("x")
    fleet.walk("x")
    later = PlantedFleet(tmp_path)
    later.board.meet("x")
    assert later.walk("x") == []
    assert later.board.settle()
    # Another preset is another fleet, and so is another model of the same name.
    other = PlantedFleet(tmp_path, preset="fp32")
    other.board.meet("x")
    assert [job.action for job in other.walk("x")] == [COMPILE, COMPILE, RUN, RUN]
    (tmp_path / "a.onnx").write_bytes(relu("other"))
    changed = Plan(fleet.options, fleet.store)
    assert changed.compile("host", fleet.models[0]) != fleet.plan.compile("host", fleet.models[0])
    # A bundle that somebody removed is made again.
    for path in (tmp_path / "fleet" / "bundles").iterdir():
        path.rmdir()
    bare = PlantedFleet(tmp_path)
    bare.board.meet("x")
    assert {job.action for job in bare.walk("x")} >= {COMPILE}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the board's clock shows, to be set."""
    seconds = [1000.0]
    monkeypatch.setattr("adrenoc.lab.fleet.board.time.monotonic", lambda: seconds[0])
    return seconds


def test_a_device_that_leaves_is_a_row_and_may_come_back(
    fleet: PlantedFleet, clock: list[float]
) -> None:
    fleet.board.meet("x")
    job = fleet.board.take("x")
    assert job is not None
    gone = Result(exit_code=RemoteError.exit_code, took_s=1.0, ended="", error="no server at x")
    fleet.finish(job, gone)
    clock[0] += fleet.options.patience_s - 1
    assert not fleet.board.settle()
    # Asking it in vain does not make it one that is there.
    assert fleet.board.take("x") == job
    assert not fleet.board.settle()
    fleet.finish(job, gone)
    clock[0] += 2
    assert fleet.board.settle()
    (row,) = fleet.board.rows()
    assert (row.state, row.word) == (LEFT, "no server at x")
    assert not fleet.store.result_path(job).exists()
    fleet.board.meet("x")
    assert not fleet.board.is_over("x")
    assert len(fleet.walk("x")) == 5


def test_a_device_that_leaves_in_a_long_job_may_come_back(
    fleet: PlantedFleet, clock: list[float]
) -> None:
    fleet.board.meet("x")
    job = fleet.board.take("x")
    assert job is not None
    clock[0] += 100 * fleet.options.patience_s
    fleet.finish(job, Result(exit_code=AdbError.exit_code, took_s=1.0, ended="", error="gone"))
    assert not fleet.board.settle()
    assert len(fleet.walk("x")) == 5


def test_a_device_that_is_lost_by_one_job_alone_fails_it(fleet: PlantedFleet) -> None:
    """A tracker has it again each time: that would go on for ever."""
    fleet.board.meet("x", kind="phones")
    lost = Result(exit_code=RemoteError.exit_code, took_s=1.0, ended="", error="it left")
    for _ in range(MOST_LOSSES):
        fleet.board.meet("x", kind="phones")
        job = fleet.board.take("x")
        assert job is not None
        fleet.finish(job, lost)
    assert fleet.board.take("x") is None
    assert fleet.board.settle()
    (row,) = fleet.board.rows()
    assert row.state == FAILED
    assert row.result is not None
    assert row.result.error == f"the device was lost {MOST_LOSSES} times in it: it left"
    assert not fleet.store.result_path(row.job).exists()  # the next fleet tries it again


def test_a_device_does_one_job_at_a_time(tmp_path: Path) -> None:
    """Between the sessions of a job its tracker offers it to others."""
    fleet = PlantedFleet(tmp_path, target="adreno:750", actions=(RUN, VERIFY), check=False)
    fleet.board.meet("x", kind="phones")
    for _ in fleet.models:
        made = fleet.board.take_compile()
        assert made is not None
        fleet.finish(made, give_good_result(made, fleet.plan))
    first = fleet.board.take("x")
    assert first is not None
    assert not fleet.board.has_ready() and fleet.board.take("x") is None
    fleet.finish(first, give_good_result(first, fleet.plan))
    with hold_lock(fleet.store.lock_path(fleet.board.rows()[1].job)):  # of a fleet that died
        assert not fleet.board.has_ready() and fleet.board.take("x") is None
    assert fleet.board.has_ready() and fleet.board.take("x") is not None


def test_a_device_that_waits_for_a_bundle_is_not_away(
    fleet: PlantedFleet, clock: list[float]
) -> None:
    fleet.board.meet("x")
    asked = fleet.board.take("x")
    assert asked is not None
    fleet.finish(asked, give_good_result(asked, fleet.plan))
    clock[0] += 100 * fleet.options.patience_s
    assert not fleet.board.settle()
    assert not fleet.board.is_over("x")


def test_a_command_that_dies_is_done_again_so_often(fleet: PlantedFleet) -> None:
    fleet.board.meet("x")
    for attempt in range(MOST_ATTEMPTS):
        job = fleet.board.take("x")
        assert job is not None, attempt
        fleet.finish(job, Result(exit_code=-11, took_s=1.0, ended="", error=""))
    assert fleet.board.take("x") is None
    (row,) = fleet.board.rows()
    assert row.state == FAILED
    assert row.result is not None
    assert row.result.error == "the command died of signal 11, 3 times"


@pytest.mark.parametrize("code", [-9, RemoteError.exit_code])
def test_a_command_that_dies_having_done_more_is_not_to_blame(tmp_path: Path, code: int) -> None:
    """It goes on from what it did: only one that comes no further has failed."""
    fleet = PlantedFleet(tmp_path, target="host", actions=(VERIFY, CALIBRATE))
    fleet.board.meet("x", kind="phones")
    died = Result(exit_code=code, took_s=1.0, ended="", error="it left")
    most = MOST_ATTEMPTS if code < 0 else MOST_LOSSES
    for attempt in range(2 * most):
        job = fleet.board.take("x")
        assert job is not None
        assert job.words[job.words.index("--resume") + 1] == job.progress
        Path(job.progress).write_text("done" * (attempt + 1))
        fleet.finish(job, died)
    for _ in range(most):
        again = fleet.board.take("x")
        assert again is not None and again.action == VERIFY
        fleet.finish(again, died)
    (row, _) = fleet.board.rows()
    assert row.state == FAILED


def test_a_bundle_that_cannot_be_made_fails_its_rows(fleet: PlantedFleet) -> None:
    fleet.board.meet("x")
    asked = fleet.board.take("x")
    assert asked is not None
    fleet.finish(asked, give_good_result(asked, fleet.plan))
    made = fleet.board.take_compile()
    assert made is not None
    fleet.finish(made, Result(exit_code=13, took_s=1.0, ended="", error="no kernel for Foo"))
    fleet.walk("x")
    lines = lines_of(FleetReport(rows=fleet.board.rows(), targets={}), None, slower_percent=10)
    assert [line.status for line in lines] == ["failed", "right", "failed"]
    assert lines[0].note == "its bundle was not made: no kernel for Foo"
    # With --again it is tried once more.
    again = Board(fleet.plan, fleet.store, again=True)
    again.meet("x")
    repeated = again.take_compile()
    assert repeated == made


def test_what_another_process_does_is_left_to_it(fleet: PlantedFleet) -> None:
    fleet.board.meet("x")
    job = fleet.plan.identify("x")
    with hold_lock(fleet.store.lock_path(job)) as lock:
        assert lock is not None
        assert fleet.board.take("x") is None
    assert fleet.board.take("x") == job


def test_what_another_process_left_is_not_done_again(
    fleet: PlantedFleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between a look at the results and the lock another fleet's command may have ended."""
    job = fleet.plan.identify("x")
    write_result(fleet.store.result_path(job), give_good_result(job, fleet.plan))
    monkeypatch.setattr(runner, "run_command", lambda *_, **__: pytest.fail("it ran"))
    places = {"lock": fleet.store.lock_path(job), "result": fleet.store.result_path(job)}
    asked = {name: str(path) for name, path in places.items()} | {"words": [], "limit_s": 1.0}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked)))
    assert runner.main() == 0
    assert json.loads(capsys.readouterr().out)["output"] == {"server": PHONE}


@settings(max_examples=20)
@given(st.lists(st.sampled_from(["good", "left", "died", "wrong"]), max_size=12))
def test_whatever_happens_it_ends_with_one_result_a_job(
    tmp_path_factory: pytest.TempPathFactory, fates: list[str]
) -> None:
    fleet = PlantedFleet(tmp_path_factory.mktemp("fleet"))
    fleet.board.meet("x")
    fleet.board.meet("y")
    finals: list[str] = []
    for fate in [*fates, *["good"] * 12]:
        for job in filter(None, [fleet.board.take_compile(), *map(fleet.board.take, ("x", "y"))]):
            result = {
                "good": give_good_result(job, fleet.plan),
                "left": Result(exit_code=28, took_s=1.0, ended="", error="left"),
                "died": Result(exit_code=-9, took_s=1.0, ended="", error=""),
                "wrong": Result(exit_code=22, took_s=1.0, ended="", error="wrong"),
            }[fate]
            fleet.finish(job, result)
            finals += [job.key] if result.is_final else []
    assert len(finals) == len(set(finals))
    assert fleet.board.settle()
    assert WAITING not in {row.state for row in fleet.board.rows()}


def test_the_target_is_what_the_device_says() -> None:
    assert target_of({"server": PHONE}) == "adreno:a750"
    assert target_of({"server": {**PHONE, "machine": "x86_64-linux-gnu"}}) == "host:a750"
    assert target_of({"server": {"machine": "x86_64", "devices": [{"name": "CPU"}]}}) == "host"
    unknown = {"machine": "aarch64-linux-android", "devices": [{"name": "Adreno (TM) 999"}]}
    assert target_of({"server": unknown}) == "adreno"
    assert target_of({}) == "host"


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(OutputError, match="is not the folder of a fleet"):
        Store(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    store = Store(tmp_path / "new")
    with (
        store.hold(),
        pytest.raises(OutputError, match="another `adrenoc device fleet` is at work"),
        Store(tmp_path / "new").hold(),
    ):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"exit_code": "0"}', '{"exit_code": 0}'])
def test_a_result_that_is_none(fleet: PlantedFleet, text: str) -> None:
    job = fleet.plan.identify("x")
    fleet.store.result_path(job).write_text(text)
    with pytest.raises(InputError, match="is no result of a fleet"):
        fleet.store.result_of(job)
