"""Who is blamed: trials that share a session, by sessions that follow a script."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from adrenoc.device.answers import WrongAnswerError
from adrenoc.device.remote import RemoteAddress
from adrenoc.lab.tune import farm
from adrenoc.lab.tune import session as session_module
from adrenoc.lab.tune.farm import TrialQueue
from adrenoc.lab.tune.session import DevicePlace, MeasureJob, Session, TrialResult
from adrenoc.lab.tune.tasks import Argument, Variant

PLACE = DevicePlace(server=RemoteAddress.parse("127.0.0.1:1"))


@dataclass(kw_only=True)
class Device:
    """What each trial does there, by its id: ok if it is not named."""

    deeds: dict[int, str]
    is_cpu: bool = False
    sessions: int = 0
    measured: Counter[int] = field(default_factory=Counter)
    absent: int = 0


class ScriptedSession:
    """A session whose trials do what the device says."""

    def __init__(self, device: Device) -> None:
        if device.absent:
            device.absent -= 1
            raise RuntimeError("nobody is there")
        device.sessions += 1
        self._world = device
        self.is_cpu = device.is_cpu
        self.facts: dict[str, Any] = {"name": "scripted"}
        self.is_old = False
        self.measured = 0
        self._building: set[int] = set()
        self._spoilt = self._lost = False

    def start(self, job: MeasureJob) -> int:
        self._alive()
        self._building.add(job.tag)
        return int(job.tag)

    def is_built(self, number: int, wait_ms: int) -> bool:
        # A compiler that dies takes the session with it, whatever that waits for.
        if any(self._world.deeds.get(n) == "kills while it is built" for n in self._building):
            self._lost = True
        if self._world.deeds.get(number) == "never builds":
            return False
        self._alive()
        return True

    def prepare(self, job: MeasureJob) -> list[Any]:
        self._alive()
        return []

    def measure(self, number: int, job: MeasureJob, tensors: list[Any]) -> TrialResult:
        self._alive()
        self.measured += 1
        self._world.measured[number] += 1
        self._building.discard(number)
        deed = self._world.deeds.get(number, "ok")
        if deed == "kills":
            self._lost = True
            self._alive()
        if deed == "fails":
            self._lost = True
            raise RuntimeError("Error caught from RPC call:\nCL_OUT_OF_RESOURCES")
        spoilt, self._spoilt = self._spoilt, self._spoilt or deed == "spoils"
        if deed == "wrong" or spoilt:
            return TrialResult(refused="wrong", index=0, detail="off")
        if deed == "does not build":
            return TrialResult(refused="build", index=0, detail="line 1")
        return TrialResult(times_us=((1.0,),), errors=(0.0,))

    def forget(self) -> None:
        self._spoilt = False

    def close(self) -> None:
        self._lost = True

    def _alive(self) -> None:
        if self._lost:
            raise RuntimeError("the peer left")


def run(
    monkeypatch: pytest.MonkeyPatch, device: Device, count: int, careful: tuple[int, ...] = ()
) -> dict[int, TrialResult]:
    """Hand over trials 1 and on at once; what came of each."""
    monkeypatch.setattr(farm, "Session", lambda place: ScriptedSession(device))
    ends: dict[int, TrialResult] = {}

    def end(job: MeasureJob, result: TrialResult) -> None:
        assert job.tag not in ends, "one end for each trial"
        ends[job.tag] = result

    trials = TrialQueue(PLACE, ended=end, connected=lambda session: None)
    for number in range(1, count + 1):
        trials.add(MeasureJob(tag=number, careful=number in careful))
    while trials.held:
        trials.work()
    assert trials.close() == ()
    return ends


def _blamed(ends: dict[int, TrialResult]) -> dict[int, str]:
    return {n: result.refused for n, result in ends.items() if result.refused}


@pytest.mark.parametrize("is_cpu", [False, True])
def test_many_trials_share_a_session(monkeypatch, is_cpu):
    device = Device(deeds={}, is_cpu=is_cpu)
    ends = run(monkeypatch, device, 20)
    assert {result.times_us for result in ends.values()} == {((1.0,),)}
    assert device.sessions == 1
    assert set(device.measured.values()) == {1}


@pytest.mark.parametrize("is_cpu", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "victim",
    [pytest.param(1, marks=pytest.mark.nightly), 5, pytest.param(12, marks=pytest.mark.nightly)],
)
def test_a_crash_is_the_fault_of_the_one_that_was_measured(monkeypatch, is_cpu, victim):
    device = Device(deeds={victim: "kills"}, is_cpu=is_cpu)
    assert _blamed(run(monkeypatch, device, 12)) == {victim: "lost"}
    assert device.sessions == (1 if victim == 12 else 2)


@pytest.mark.parametrize("is_cpu", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_compiler_that_dies_is_found_one_by_one(monkeypatch, is_cpu):
    """It breaks the session while others are built too, and none of those is blamed."""
    device = Device(deeds={7: "kills while it is built"}, is_cpu=is_cpu)
    assert _blamed(run(monkeypatch, device, 12)) == {7: "lost"}


def test_a_wrong_one_that_spoilt_nothing_is_refused_and_costs_no_session(monkeypatch):
    device = Device(deeds={3: "wrong", 4: "does not build"})
    assert _blamed(run(monkeypatch, device, 6)) == {3: "wrong", 4: "build"}
    assert device.sessions == 1
    assert device.measured[3] == 2  # once more, with tensors that nobody has touched
    assert device.measured[4] == 1


def test_who_finds_spoilt_tensors_is_not_blamed(monkeypatch):
    device = Device(deeds={2: "spoils"})
    assert _blamed(run(monkeypatch, device, 6)) == {}


def test_a_device_that_fails_is_asked_again_in_a_new_session(monkeypatch):
    device = Device(deeds={4: "fails"})
    assert _blamed(run(monkeypatch, device, 6)) == {4: "failed"}
    assert device.measured[4] == 2
    assert set(device.measured.values()) == {1, 2}


def test_who_was_repeated_has_no_company(monkeypatch):
    device = Device(deeds={2: "kills while it is built"})
    assert _blamed(run(monkeypatch, device, 3, careful=(2,))) == {2: "lost"}


def test_without_a_device_all_come_back(monkeypatch):
    ends = run(monkeypatch, Device(deeds={}, absent=1), 4)
    assert [result.refused for result in ends.values()] == ["absent"] * 4
    assert ends[1].detail == "nobody is there"


def test_a_compiler_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(farm, "START_S", -PLACE.limit_s)
    assert _blamed(run(monkeypatch, Device(deeds={2: "never builds"}), 3)) == {2: "lost"}


def test_what_is_ended_from_outside_comes_back(monkeypatch):
    device = Device(deeds={})
    monkeypatch.setattr(farm, "Session", lambda place: ScriptedSession(device))
    trials = TrialQueue(
        PLACE,
        fetch=lambda held: [MeasureJob(tag=held)] if held < 3 else [],
        ended=lambda job, result: None,
        connected=lambda session: None,
    )
    trials.work()
    assert [job.tag for job in trials.close()] == []
    trials.add(MeasureJob(tag=7))
    assert [job.tag for job in trials.close()] == [7]
    assert trials.held == 0


@pytest.mark.parametrize(
    "found",
    [
        {"times_us": [], "errors": []},
        {"times_us": [[1.0]], "errors": [0.0, 0.0]},
        {"times_us": [[1.0], []], "errors": [0.0, 0.0]},
        {"times_us": [[1.0], [-1.0]], "errors": [0.0, 0.0]},
        {"refused": "wrong", "index": 2, "detail": ""},
        {"refused": "wrong", "index": 0.5, "detail": ""},
        {"refused": "wrong", "index": -2, "detail": ""},
    ],
)
def test_results_of_other_variants_than_were_sent_are_refused(found):
    """A server may lie: the tuner counts on as many results as it sent variants."""
    session = Session.__new__(Session)
    session._place = PLACE
    session.measured = 0
    session._measure = lambda *_: json.dumps(found)
    with pytest.raises(WrongAnswerError):
        session.measure(1, MeasureJob(variants=(_variant(), _variant())), [])


def _kept_session(monkeypatch: pytest.MonkeyPatch, room_bytes: int) -> tuple[Session, list[str]]:
    """A session without a server, and the files that it uploads."""
    uploads: list[str] = []

    def upload(self: Session, argument) -> np.ndarray:
        uploads.append(argument.file)
        return np.zeros(argument.shape, argument.dtype)

    monkeypatch.setattr(session_module.Session, "_upload", upload)
    session = Session.__new__(Session)
    session._tensors, session._tensor_bytes, session._room_bytes = {}, 0, room_bytes
    return session, uploads


def _variant(*files: str) -> Variant:
    arguments = (
        Argument(shape=(256,), dtype="float32", scope="global", file=file) for file in files
    )
    return Variant(
        kernel="k", source="", work_items=(1, 1, 1), work_group=(1, 1, 1), arguments=(*arguments,)
    )


def test_tensors_that_were_used_last_stay(monkeypatch):
    """Large networks have more than fits: what is in use must not come again for each trial."""
    session, uploads = _kept_session(monkeypatch, room_bytes=4 * 1024)
    for files in ("ab", "cd", "ab", "e", "ab", "cd"):
        session.prepare(MeasureJob(variants=(_variant(*files),)))
    assert "".join(uploads) == "abcd" + "e" + "c"
    assert session._tensor_bytes == sum(tensor.nbytes for tensor in session._tensors.values())


@pytest.mark.parametrize(
    ("memory", "room"), [(0, 256 << 20), (16 << 30, 1 << 30), (1 << 40, 2 << 30)]
)
def test_room_for_tensors_follows_the_memory_of_the_device(memory, room):
    facts = {"limits": {"global_memory_bytes": memory}} if memory else {}
    assert session_module._room_bytes(facts) == room
