"""Fleets without devices: what comes next, what counts, and what is kept."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adrenoc.base.errors import AdbError, InputError, OutputError, RemoteError
from adrenoc.base.host.proc import Result
from adrenoc.cli.main import main
from adrenoc.lab.fleet import fleet as fleets
from adrenoc.lab.fleet.fleet import DONE, FAILED, LEFT, MOST_ATTEMPTS, Fleet, FleetMember
from adrenoc.lab.fleet.jobs import (
    CALIBRATE,
    COMPILE,
    IDENTIFY,
    RUN,
    VERIFY,
    Job,
    JobPlanner,
    ResultStore,
    target_of,
)
from adrenoc.lab.fleet.table import lines_of
from adrenoc.target.device_set import load_device_set
from tests.hostile.models import relu
from tests.planted_fleet import PHONE, PlantedFleet, make_result

GONE = make_result(RemoteError.exit_code, "no server at x")
DIED = make_result(-11)


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """Threads look at what there is to do without waiting."""
    monkeypatch.setattr(fleets, "_TICK_S", 0.005)
    monkeypatch.setattr(fleets, "_ABSENT_S", 0.01)


def test_a_device_says_what_it_is_then_waits_for_its_bundles(tmp_path):
    fleet = PlantedFleet(tmp_path)
    rows = fleet.run("x")
    assert [action for _, action, _ in fleet.done[:2]] == [IDENTIFY, COMPILE]
    for model in fleet.models:
        bundle = str(fleet.plan.bundle_path("adreno:a750", model))
        made = fleet.done.index(("", COMPILE, str(model)))
        assert fleet.done.index(("x", RUN, bundle)) > made
    assert [(row.job.action, row.job.target, row.state) for row in rows] == [
        (RUN, "adreno:a750", DONE)
    ] * 2


def test_one_bundle_serves_devices_of_several_kinds(tmp_path):
    fleet = PlantedFleet(tmp_path, target=load_device_set("all").option)
    fleet.run("x", "y")
    assert (fleet.count(COMPILE), fleet.count(RUN), fleet.count(IDENTIFY)) == (2, 4, 0)
    ran = {Path(bundle) for _, action, bundle in fleet.done if action == RUN}
    assert len(ran) == 2
    assert all(len(bundle.name) < 64 for bundle in ran)
    other = PlantedFleet(tmp_path, target=load_device_set("adreno:660,adreno:750").option)
    assert not ran & {other.plan.bundle_path(other.options.target, m) for m in other.models}


def test_what_is_done_for_one_kind_of_gpu_takes_no_set(tmp_path, capsys):
    (tmp_path / "a.onnx").write_bytes(relu())
    words = ["device", "fleet", str(tmp_path / "a.onnx"), "--do", "verify", "--on", "127.0.0.1:1"]
    assert main([*words, "--device", "adreno:660,adreno:750"]) == 2
    assert "--do verify is for one kind of GPU" in capsys.readouterr().err


def test_a_bundle_is_made_once_for_a_kind_of_gpu(tmp_path):
    fleet = PlantedFleet(tmp_path)
    rows = fleet.run("x", "y", "z")
    assert (fleet.count(IDENTIFY), fleet.count(COMPILE), fleet.count(RUN)) == (3, 2, 6)
    assert {row.state for row in rows} == {DONE}


def test_what_was_done_is_not_done_again(tmp_path):
    fleet = PlantedFleet(tmp_path)
    fleet.run("x")
    later = PlantedFleet(tmp_path)
    assert {row.state for row in later.run("x")} == {DONE}
    assert later.done == []
    # Another preset is another fleet, and so is another model of the same name.
    other = PlantedFleet(tmp_path, preset="fp32")
    other.run("x")
    assert (other.count(IDENTIFY), other.count(COMPILE), other.count(RUN)) == (0, 2, 2)
    (tmp_path / "a.onnx").write_bytes(relu("other"))
    changed = JobPlanner(fleet.options, fleet.store.folder)
    assert changed.compile("host", fleet.models[0]) != fleet.plan.compile("host", fleet.models[0])
    # A bundle that somebody removed is made again.
    for path in (tmp_path / "fleet" / "bundles").iterdir():
        path.rmdir()
    bare = PlantedFleet(tmp_path)
    bare.run("x")
    assert bare.count(COMPILE) == 2


def test_a_device_that_leaves_is_a_row_and_may_come_back(tmp_path):
    away = PlantedFleet(tmp_path, lambda *_: GONE, patience_s=0.05)
    (row,) = away.run("x")
    assert (row.state, row.word, row.job.action) == (LEFT, "no server at x", IDENTIFY)
    assert away.count(IDENTIFY) > 1
    assert not away.store.path(row.job).exists()
    back = PlantedFleet(tmp_path, lambda _, action, before: GONE if not before else None)
    back.store.folder.joinpath("bundles").rmdir()
    back.store.folder.joinpath("bundles").mkdir()
    assert [row.state for row in back.run("x")] == [DONE, DONE]


def test_a_device_that_leaves_in_a_long_job_may_come_back(tmp_path):
    """It was there until then, however long ago it last gave something."""

    def fate(_: str, action: str, before: int) -> Result | None:
        if action == RUN and not before:
            time.sleep(0.3)
            return make_result(AdbError.exit_code, "gone")
        return None

    fleet = PlantedFleet(tmp_path, fate, patience_s=0.2)
    assert [row.state for row in fleet.run("x")] == [DONE, DONE]


def test_a_device_that_waits_for_a_bundle_is_not_away(tmp_path):
    def fate(_: str, action: str, before: int) -> Result | None:
        if action == COMPILE:
            time.sleep(0.2)
        return None

    fleet = PlantedFleet(tmp_path, fate, patience_s=0.05, jobs=1)
    assert [row.state for row in fleet.run("x")] == [DONE, DONE]


def run_tracked(fleet: PlantedFleet, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """Run a fleet of the one device of a kind, which its tracker has again each time."""
    kind = fleets.TrackedKind(tracker=fleets.HostPort(host="h", port=1), key="phones")
    monkeypatch.setattr(fleets.TrackedKind, "names", lambda _: ("x",))
    member = FleetMember(name="x", options=("--on", "x"))
    monkeypatch.setattr(fleets.TrackedKind, "next_free", lambda _: member)
    walk = Fleet(fleet.plan, fleet.store, fleet._do)
    try:
        return walk.run([], [kind])
    finally:
        walk.close()


def test_a_device_that_is_lost_by_one_job_alone_fails_it(tmp_path, monkeypatch):
    """A tracker has it again each time: that would go on for ever."""
    fleet = PlantedFleet(tmp_path, lambda *_: GONE)
    (row,) = run_tracked(fleet, monkeypatch)
    assert isinstance(row, fleets.JobRow) and row.result is not None
    assert row.state == FAILED
    assert row.result.error == f"the device was lost {MOST_ATTEMPTS} times in it: no server at x"
    assert not fleet.store.path(row.job).exists()  # the next fleet tries it again


def test_a_command_that_dies_is_done_again_so_often(tmp_path):
    fleet = PlantedFleet(tmp_path, lambda *_: DIED)
    (row,) = fleet.run("x")
    assert row.state == FAILED
    assert row.result.error == f"the command died of signal 11, {MOST_ATTEMPTS} times"
    assert fleet.count(IDENTIFY) == MOST_ATTEMPTS


@pytest.mark.parametrize("code", [-9, RemoteError.exit_code])
def test_a_command_that_dies_having_done_more_is_not_to_blame(tmp_path, code, monkeypatch):
    """It goes on from what it did: only one that comes no further has failed."""

    def fate(_: str, action: str, before: int) -> Result | None:
        if action == VERIFY and before < 2 * MOST_ATTEMPTS:
            (tmp_path / "fleet" / "progress" / "x.verify").write_text("done" * (before + 1))
        return make_result(code, "it left") if action == VERIFY else None

    fleet = PlantedFleet(tmp_path, fate, target="host", actions=(VERIFY, CALIBRATE))
    (job, _) = fleet.plan.list_jobs("x", "host")
    assert job.words[job.words.index("--resume") + 1] == job.progress
    rows = run_tracked(fleet, monkeypatch)
    assert [getattr(row, "state", "") for row in rows] == [FAILED, DONE]
    assert fleet.count(VERIFY) == 3 * MOST_ATTEMPTS


def test_a_bundle_that_cannot_be_made_fails_its_rows(tmp_path):
    def fate(_: str, action: str, before: int) -> Result | None:
        return make_result(13, "no kernel for Foo") if action == COMPILE and not before else None

    lines = lines_of(PlantedFleet(tmp_path, fate, jobs=1).run("x"), None)
    assert [line.status for line in lines] == ["failed", "right", "failed"]
    assert lines[0].note == "its bundle was not made: no kernel for Foo"
    # The next fleet tries it once more.
    again = PlantedFleet(tmp_path)
    assert [row.state for row in again.run("x")] == [DONE, DONE]
    assert (again.count(COMPILE), again.count(RUN)) == (1, 1)


def test_what_ends_a_thread_ends_the_fleet(tmp_path):
    def fate(*_: object) -> Result | None:
        raise OutputError("the disk is full", hint="make room")

    with pytest.raises(OutputError, match="the disk is full"):
        PlantedFleet(tmp_path, fate).run("x", "y")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(["good", "left", "died", "wrong"]), max_size=12))
def test_whatever_happens_it_ends_with_one_result_a_job(tmp_path_factory, fates):
    left = list(fates)

    def fate(device: str, action: str, _: int) -> Result | None:
        kind = left.pop() if left and action != IDENTIFY else "good"
        return {"left": GONE, "died": DIED, "wrong": make_result(22, "wrong")}.get(kind)

    fleet = PlantedFleet(tmp_path_factory.mktemp("fleet"), fate, patience_s=30.0)
    rows = fleet.run("x", "y")
    assert {row.state for row in rows} <= {DONE, FAILED}
    kept = list((fleet.store.folder / "results").iterdir())
    finals = [row.job.key for row in rows if row.result is not None]
    assert len(finals) == len(set(finals)) <= len(kept)


def test_the_target_is_what_the_device_says():
    assert target_of({"server": PHONE}) == "adreno:a750"
    assert target_of({"server": {**PHONE, "machine": "x86_64-linux-gnu"}}) == "host:a750"
    assert target_of({"server": {"machine": "x86_64", "devices": [{"name": "CPU"}]}}) == "host"
    unknown = {"machine": "aarch64-linux-android", "devices": [{"name": "Adreno (TM) 999"}]}
    assert target_of({"server": unknown}) == "adreno"
    assert target_of({}) == "host"


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(OutputError, match="is not the folder of a fleet"):
        ResultStore(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    store = ResultStore(tmp_path / "new")
    with (
        store.hold(),
        pytest.raises(OutputError, match="another `adrenoc device fleet` is at work"),
        ResultStore(tmp_path / "new").hold(),
    ):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"exit_code": "0"}', '{"exit_code": 0}'])
def test_a_result_that_is_none(tmp_path, text):
    store, job = ResultStore(tmp_path / "fleet"), Job(action=IDENTIFY, words=())
    store.path(job).write_text(text)
    with pytest.raises(InputError, match="is no result of a fleet"):
        store.find(job)
