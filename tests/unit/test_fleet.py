"""Fleets without devices: what comes next, what counts, and what tables say of it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adrenoc.device.tracker import HostPort
from adrenoc.errors import AdbError, InputError, OutputError, RemoteError
from adrenoc.fleet import runner
from adrenoc.fleet.board import DONE, FAILED, LEFT, MOST_ATTEMPTS, WAITING, Board
from adrenoc.fleet.fleet import FleetReport, places_to_tune
from adrenoc.fleet.junit import junit_xml
from adrenoc.fleet.members import Tracked, phone, server
from adrenoc.fleet.page import fleet_html
from adrenoc.fleet.plan import FleetOptions, Plan, target_of
from adrenoc.fleet.store import Store, hold_lock, write_result
from adrenoc.fleet.table import Baseline, Line, lines_of, read_fleet_baseline
from adrenoc.fleet.work import COMPILE, IDENTIFY, RUN, Job, Result
from tests.hostile.models import relu

PHONE = {"machine": "aarch64-linux-android", "devices": [{"name": "QUALCOMM Adreno(TM) 750"}]}


def _result(exit_code: int = 0, **output: object) -> Result:
    return Result(exit_code=exit_code, took_s=1.0, ended="2026-01-01T00:00:00+00:00", output=output)


def _good(job: Job, plan: Plan, p50_ms: float = 2.0) -> Result:
    """What a device that works says."""
    if job.deed == IDENTIFY:
        return _result(server=PHONE)
    if job.deed == COMPILE:
        plan.bundle_path(job.target, Path(job.model)).mkdir(exist_ok=True)
        return _result()
    return _result(
        device="Adreno 750 at 127.0.0.1:1",
        driver="D",
        times={"p50_ms": p50_ms, "p90_ms": 3.0, "cold_ms": 90.0},
        check={"passed": True, "tensors": [{"range_error": 1e-5, "passed": True, "reason": ""}]},
        launching={"launches": 3},
        memory_bytes=2**20,
        gpu=[{"clock_mhz": 500.0, "temperature_c": 40.0}],
        notes=["0.1 MB were sent, 0.0 were there"],
    )


class Yard:
    """A board with what it needs."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.models = []
        for name in ("a.onnx", "b.onnx"):
            (folder / name).write_bytes(relu())
            self.models.append(folder / name)
        self.store = Store(folder / "fleet")
        self.options = FleetOptions(models=tuple(self.models), **options)  # type: ignore[arg-type]
        self.plan = Plan(self.options, self.store)
        self.board = Board(self.plan, self.store)

    def finish(self, job: Job, result: Result | None) -> None:
        """As the runner and its thread do it."""
        if result is not None and result.is_final:
            write_result(self.store.result_path(job), result)
        self.board.finish(job, result, result.error if result is not None else "")

    def walk(self, *names: str, steps: int = 100) -> list[Job]:
        """Do all that is to be done, and well."""
        done = []
        for _ in range(steps):
            taken = [self.board.take_compile(), *(self.board.take(name) for name in names)]
            for job in filter(None, taken):
                self.finish(job, _good(job, self.plan))
                done.append(job)
        return done


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def test_a_device_says_what_it_is_then_waits_for_its_bundles(yard: Yard) -> None:
    yard.board.meet("x")
    asked = yard.board.take("x")
    assert asked is not None
    assert asked.deed == IDENTIFY
    assert yard.board.take("x") is None
    yard.finish(asked, _good(asked, yard.plan))
    assert yard.board.targets() == {"x": "adreno:a750"}
    assert yard.board.take("x") is None  # no bundle is there
    assert not yard.board.is_over("x")
    made = yard.board.take_compile()
    assert made is not None
    assert made.words[:4] == ("compile", str(yard.models[0]), "--device", "adreno:a750")
    yard.finish(made, _good(made, yard.plan))
    run = yard.board.take("x")
    assert run is not None
    assert (run.deed, run.model) == (RUN, str(yard.models[0]))


def test_a_bundle_is_made_once_for_a_kind_of_gpu(yard: Yard) -> None:
    for name in ("x", "y", "z"):
        yard.board.meet(name)
    done = yard.walk("x", "y", "z")
    assert [sum(job.deed == deed for job in done) for deed in (IDENTIFY, COMPILE, RUN)] == [3, 2, 6]
    assert yard.board.settle()
    assert {row.state for row in yard.board.rows()} == {DONE}


def test_what_was_done_is_not_done_again(tmp_path: Path, yard: Yard) -> None:
    yard.board.meet("x")
    yard.walk("x")
    later = Yard(tmp_path)
    later.board.meet("x")
    assert later.walk("x") == []
    assert later.board.settle()
    # Another preset is another fleet, and so is another model of the same name.
    other = Yard(tmp_path, preset="fp32")
    other.board.meet("x")
    assert [job.deed for job in other.walk("x")] == [COMPILE, COMPILE, RUN, RUN]
    (tmp_path / "a.onnx").write_bytes(relu("other"))
    changed = Plan(yard.options, yard.store)
    assert changed.compile("host", yard.models[0]) != yard.plan.compile("host", yard.models[0])
    # A bundle that somebody removed is made again.
    for path in (tmp_path / "fleet" / "bundles").iterdir():
        path.rmdir()
    bare = Yard(tmp_path)
    bare.board.meet("x")
    assert {job.deed for job in bare.walk("x")} >= {COMPILE}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the board's clock shows, to be set."""
    seconds = [1000.0]
    monkeypatch.setattr("adrenoc.fleet.board.time.monotonic", lambda: seconds[0])
    return seconds


def test_a_device_that_leaves_is_a_row_and_may_come_back(yard: Yard, clock: list[float]) -> None:
    yard.board.meet("x")
    job = yard.board.take("x")
    assert job is not None
    gone = Result(exit_code=RemoteError.exit_code, took_s=1.0, ended="", error="no server at x")
    yard.finish(job, gone)
    clock[0] += yard.options.patience_s - 1
    assert not yard.board.settle()
    # Asking it in vain does not make it one that is there.
    assert yard.board.take("x") == job
    assert not yard.board.settle()
    yard.finish(job, gone)
    clock[0] += 2
    assert yard.board.settle()
    (row,) = yard.board.rows()
    assert (row.state, row.word) == (LEFT, "no server at x")
    assert not yard.store.result_path(job).exists()
    yard.board.meet("x")
    assert not yard.board.is_over("x")
    assert len(yard.walk("x")) == 5


def test_a_device_that_leaves_in_a_long_job_may_come_back(yard: Yard, clock: list[float]) -> None:
    yard.board.meet("x")
    job = yard.board.take("x")
    assert job is not None
    clock[0] += 100 * yard.options.patience_s
    yard.finish(job, Result(exit_code=AdbError.exit_code, took_s=1.0, ended="", error="gone"))
    assert not yard.board.settle()
    assert len(yard.walk("x")) == 5


def test_a_device_that_waits_for_a_bundle_is_not_away(yard: Yard, clock: list[float]) -> None:
    yard.board.meet("x")
    asked = yard.board.take("x")
    assert asked is not None
    yard.finish(asked, _good(asked, yard.plan))
    clock[0] += 100 * yard.options.patience_s
    assert not yard.board.settle()
    assert not yard.board.is_over("x")


def test_a_command_that_dies_is_done_again_so_often(yard: Yard) -> None:
    yard.board.meet("x")
    for attempt in range(MOST_ATTEMPTS):
        job = yard.board.take("x")
        assert job is not None, attempt
        yard.finish(job, Result(exit_code=-11, took_s=1.0, ended="", error=""))
    assert yard.board.take("x") is None
    (row,) = yard.board.rows()
    assert row.state == FAILED
    assert row.result is not None
    assert row.result.error == "the command died of signal 11, 3 times"


def test_a_bundle_that_cannot_be_made_fails_its_rows(yard: Yard) -> None:
    yard.board.meet("x")
    asked = yard.board.take("x")
    assert asked is not None
    yard.finish(asked, _good(asked, yard.plan))
    made = yard.board.take_compile()
    assert made is not None
    yard.finish(made, Result(exit_code=13, took_s=1.0, ended="", error="no kernel for Foo"))
    yard.walk("x")
    lines = lines_of(FleetReport(rows=yard.board.rows(), targets={}), None, slower_percent=10)
    assert [line.status for line in lines] == ["failed", "right", "failed"]
    assert lines[0].note == "its bundle was not made: no kernel for Foo"
    # With --again it is tried once more.
    again = Board(yard.plan, yard.store, again=True)
    again.meet("x")
    repeated = again.take_compile()
    assert repeated == made


def test_what_another_process_does_is_left_to_it(yard: Yard) -> None:
    yard.board.meet("x")
    job = yard.plan.identify("x")
    with hold_lock(yard.store.lock_path(job)) as lock:
        assert lock is not None
        assert yard.board.take("x") is None
    assert yard.board.take("x") == job


def test_what_another_process_left_is_not_done_again(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between a look at the results and the lock another fleet's command may have ended."""
    job = yard.plan.identify("x")
    write_result(yard.store.result_path(job), _good(job, yard.plan))
    monkeypatch.setattr(runner, "run_command", lambda *_, **__: pytest.fail("it ran"))
    places = {"lock": yard.store.lock_path(job), "result": yard.store.result_path(job)}
    asked = {name: str(path) for name, path in places.items()} | {"words": [], "limit_s": 1.0}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked)))
    assert runner.main() == 0
    assert json.loads(capsys.readouterr().out)["output"] == {"server": PHONE}


@settings(max_examples=20)
@given(st.lists(st.sampled_from(["good", "left", "died", "wrong"]), max_size=12))
def test_whatever_happens_it_ends_with_one_result_a_job(
    tmp_path_factory: pytest.TempPathFactory, fates: list[str]
) -> None:
    yard = Yard(tmp_path_factory.mktemp("fleet"))
    yard.board.meet("x")
    yard.board.meet("y")
    finals: list[str] = []
    for fate in [*fates, *["good"] * 12]:
        for job in filter(None, [yard.board.take_compile(), *map(yard.board.take, ("x", "y"))]):
            result = {
                "good": _good(job, yard.plan),
                "left": Result(exit_code=28, took_s=1.0, ended="", error="left"),
                "died": Result(exit_code=-9, took_s=1.0, ended="", error=""),
                "wrong": Result(exit_code=22, took_s=1.0, ended="", error="wrong"),
            }[fate]
            yard.finish(job, result)
            finals += [job.key] if result.is_final else []
    assert len(finals) == len(set(finals))
    assert yard.board.settle()
    assert WAITING not in {row.state for row in yard.board.rows()}


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
        pytest.raises(OutputError, match="another `adrenoc fleet` is at work"),
        Store(tmp_path / "new").hold(),
    ):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"exit_code": "0"}', '{"exit_code": 0}'])
def test_a_result_that_is_none(yard: Yard, text: str) -> None:
    job = yard.plan.identify("x")
    yard.store.result_path(job).write_text(text)
    with pytest.raises(InputError, match="is no result of a fleet"):
        yard.store.result_of(job)


def _lines(yard: Yard) -> tuple[Line, ...]:
    yard.board.meet("x")
    yard.walk("x")
    return lines_of(FleetReport(rows=yard.board.rows(), targets={}), None, slower_percent=10)


def test_lines_tell_the_figures(yard: Yard) -> None:
    first, second = _lines(yard)
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
def test_a_baseline_tells_what_became_slower(
    yard: Yard, tmp_path: Path, changes: dict[str, object], status: str, note: str
) -> None:
    line = _lines(yard)[0]
    file = tmp_path / "before.json"
    file.write_text(json.dumps({"fleet": [{**line.__dict__, **changes}]}))
    report = FleetReport(rows=yard.board.rows(), targets={})
    found = lines_of(report, read_fleet_baseline(file), slower_percent=10)
    assert (found[0].status, found[0].note) == (status, note)
    assert found[1].before_ms is None


def test_a_baseline_knows_a_model_in_another_folder() -> None:
    facts = {"deed": RUN, "device": "x", "target": "adreno", "status": "right"}
    one, other = (Line(**facts, model=f"{place}/m.onnx", p50_ms=1.0) for place in ("a", "b"))
    alone = Line(**facts, model="c/n.onnx")
    before = Baseline(lines=(one, other, alone))
    assert before.find(replace(one, p50_ms=9.0)) == one
    assert before.find(other) == other
    assert before.find(replace(alone, model="elsewhere/n.onnx")) == alone
    assert before.find(replace(one, model="elsewhere/m.onnx")) is None  # which of the two?
    assert before.find(replace(one, device="y")) is None


def test_each_kind_of_gpu_is_tuned_on_its_own_devices(yard: Yard) -> None:
    for name, kind in (("x", "old"), ("y", "new"), ("z", "new")):
        yard.board.meet(name, kind=kind)
    for name in ("x", "y", "z"):
        asked = yard.board.take(name)
        assert asked is not None
        gpu = "QUALCOMM Adreno(TM) 660" if name == "x" else "QUALCOMM Adreno(TM) 750"
        told = {"machine": PHONE["machine"], "devices": [{"name": gpu}]}
        yard.finish(asked, _result(server=told))
    assert yard.board.kinds_of("adreno:a660") == {"old"}
    assert yard.board.kinds_of("adreno:a750") == {"new"}
    tracker = HostPort(host="h", port=1)
    kind = Tracked(tracker=tracker, key="old")
    assert places_to_tune({"x"}, (), (kind,)) == ("--tracker", "h:1", "--key", "old")


def test_phones_are_tuned_side_by_side(tmp_path: Path) -> None:
    members = [phone(serial, tmp_path) for serial in ("A", "B", "C")]
    words = places_to_tune({"A", "C"}, members, ())
    assert words == ("--adb", "A", "--runtime", str(tmp_path), "--adb", "C")
    servers = [server(f"h:{port}", "k") for port in (1, 2)]
    told = places_to_tune({"h:1", "h:2"}, servers, ())
    assert told == ("--rpc", "h:1", "--key", "k", "--rpc", "h:2")


@pytest.mark.parametrize("text", ["", "[]", '{"fleet": 1}', '{"fleet": [{}]}', '{"fleet": [1]}'])
def test_a_baseline_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(InputError, match="is not what `adrenoc fleet --json` printed"):
        read_fleet_baseline(tmp_path / "b.json")


def test_junit_and_page_show_any_name_as_a_text() -> None:
    facts = {"deed": RUN, "target": "adreno", "gpu": "<b>\x1b[2J", "took_s": 2.0}
    lines = [
        Line(**facts, device="x", model="a.onnx", status="right", p50_ms=1.5),
        Line(**facts, device="x", model="b.onnx", status="wrong", note="y & z\x00"),
        Line(**facts, device="<y>", model="a.onnx", status="left", note="gone"),
    ]
    root = ElementTree.fromstring(junit_xml(lines))
    assert [(s.get("name"), s.get("failures"), s.get("skipped")) for s in root] == [
        ("x", "1", "0"),
        ("<y>", "0", "1"),
    ]
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.get("message") == r"wrong: y & z\x00"
    page = fleet_html(lines)
    assert "&lt;y&gt;" in page
    assert "\x1b" not in page
    assert "1.50 ms" in page
