"""Fleets of devices, and tables of what they measured."""

import json
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adrenoc.base.errors import AdbError, CheckFailedError, InputError, OutputError, RemoteError
from adrenoc.base.host.proc import Result
from adrenoc.cli.fleet import find_error
from adrenoc.cli.main import main
from adrenoc.lab.fleet import fleet as fleets
from adrenoc.lab.fleet.fleet import DONE, FAILED, LEFT, MOST_ATTEMPTS, Fleet, FleetMember, JobRow
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
from adrenoc.lab.fleet.table import (
    FleetLine,
    find_before,
    fleet_html,
    junit_xml,
    lines_of,
    read_fleet_baseline,
)
from adrenoc.target.device_set import load_device_set
from tests.hostile.models import relu
from tests.planted_fleet import PHONE, PlantedFleet, make_result, make_run

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


@pytest.fixture
def rows(tmp_path) -> list[JobRow]:
    jobs = PlantedFleet(tmp_path).plan.list_jobs("x", "adreno:a750")
    return [JobRow(job=job, state=DONE, result=make_run()) for job in jobs]


def test_lines_tell_the_figures(rows):
    first, second = lines_of(rows, None)
    assert (first.status, first.gpu, first.driver) == ("right", "Adreno 750", "D")
    assert (first.p50_ms, first.p90_ms, first.cold_ms, first.launches) == (2.0, 3.0, 90.0, 3)
    assert (first.clock_mhz, first.temperature_c, first.memory_bytes) == (500.0, 40.0, 2**20)
    assert (first.error, first.note) == (1e-5, "")
    assert Path(second.model).name == "b.onnx"


@pytest.mark.parametrize(
    ("changes", "status", "note"),
    [
        ({"p50_ms": 1.0, "p90_ms": 1.1}, "slower", "2.00 of its time before"),
        ({"p50_ms": 1.9, "p90_ms": 1.9}, "right", ""),
        # Half of this fleet's runs are that far from each other; then the baseline's.
        (
            {"p50_ms": 1.6, "p90_ms": 1.6},
            "right",
            "1.25 of its time before, within the spread of 50%: more --repeat tells",
        ),
        (
            {"p50_ms": 1.0, "p90_ms": 2.5},
            "right",
            "2.00 of its time before, within the spread of 150%: more --repeat tells",
        ),
        ({"p50_ms": 1.0, "driver": "E"}, "right", "not comparable: that was with the driver E"),
        ({"p50_ms": 1.0, "gpu": "Z"}, "right", "not comparable: that was on Z"),
        (
            {"p50_ms": 1.0, "clock_mhz": 900.0},
            "right",
            "not comparable: the GPU's clock changed from 900 to 500 MHz",
        ),
    ],
)
def test_a_baseline_tells_what_became_slower(rows, tmp_path, changes, status, note):
    line = lines_of(rows, None)[0]
    file = tmp_path / "before.json"
    file.write_text(json.dumps({"fleet": [{**line.__dict__, **changes}]}))
    found = lines_of(rows, read_fleet_baseline(file))
    assert (found[0].status, found[0].note) == (status, note)
    assert found[1].before_ms is None


def test_a_baseline_knows_a_model_in_another_folder():
    facts = {"action": RUN, "device": "x", "target": "adreno", "status": "right"}
    one, other = (FleetLine(**facts, model=f"{place}/m.onnx", p50_ms=1.0) for place in ("a", "b"))
    alone = FleetLine(**facts, model="c/n.onnx")
    before = (one, other, alone)
    assert find_before(before, replace(one, p50_ms=9.0)) == one
    assert find_before(before, other) == other
    assert find_before(before, replace(alone, model="elsewhere/n.onnx")) == alone
    assert find_before(before, replace(one, model="elsewhere/m.onnx")) is None  # which of the two?
    assert find_before(before, replace(one, device="y")) is None


@pytest.mark.parametrize("text", ["", "[]", '{"fleet": 1}', '{"fleet": [{}]}', '{"fleet": [1]}'])
def test_a_baseline_that_is_none(tmp_path, text):
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(InputError, match="is not what `adrenoc device fleet --json` printed"):
        read_fleet_baseline(tmp_path / "b.json")


def test_junit_and_page_show_any_name_as_a_text():
    facts = {"action": RUN, "target": "adreno", "gpu": "<b>\x1b[2J", "took_s": 2.0}
    lines = [
        FleetLine(**facts, device="x", model="a.onnx", status="right", p50_ms=1.5),
        FleetLine(**facts, device="x", model="b.onnx", status="wrong", note="y & z\x00"),
        FleetLine(**facts, device="<y>", model="a.onnx", status="left", note="gone"),
    ]
    root = ElementTree.fromstring(junit_xml(lines))
    assert [(s.get("name"), s.get("failures"), s.get("skipped")) for s in root] == [
        ("x", "1", "0"),
        ("<y>", "0", "1"),
    ]
    assert root.find("testsuite/testcase/failure").get("message") == r"wrong: y & z\x00"
    page = fleet_html(lines)
    assert "&lt;y&gt;" in page
    assert "\x1b" not in page
    assert "1.50 ms" in page
    assert "<p>2 devices, 3 jobs, 1 wrong, slower or failed</p>" in page


def test_a_fleet_of_which_no_device_answered_is_an_error():
    facts = {"action": RUN, "target": "adreno", "gpu": "", "took_s": 0.0, "model": "a.onnx"}
    left = FleetLine(**facts, device="x", status="left", note="gone")
    right = FleetLine(**facts, device="y", status="right")
    wrong = FleetLine(**facts, device="z", status="wrong")
    assert find_error([]) is None
    assert find_error([left, right]) is None
    assert isinstance(find_error([left, wrong]), CheckFailedError)
    error = find_error([left, left])
    assert isinstance(error, RemoteError)
    assert (
        error.message
        == "nothing was measured: no device answered; the first is a.onnx on x: left, gone"
    )
