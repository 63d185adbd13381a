"""A fleet without devices: commands end as a test says."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from adrenoc.base.host.proc import Result
from adrenoc.lab.fleet.fleet import Fleet, FleetMember, JobRow
from adrenoc.lab.fleet.jobs import COMPILE, IDENTIFY, RUN, FleetOptions, JobPlanner, ResultStore
from tests.hostile.models import relu

PHONE = {"machine": "aarch64-linux-android", "devices": [{"name": "QUALCOMM Adreno(TM) 750"}]}

Fate = Callable[[str, str, int], "Result | None"]
"""(device, action, how often it was asked for before) -> how a command ends, None for well."""


def make_result(exit_code: int = 0, error: str = "", **output: object) -> Result:
    ended = "2026-01-01T00:00:00+00:00"
    return Result(exit_code=exit_code, took_s=1.0, ended=ended, error=error, output=output)


def make_run(p50_ms: float = 2.0) -> Result:
    return make_result(
        device="Adreno 750 at 127.0.0.1:1",
        driver="D",
        times={"p50_ms": p50_ms, "p90_ms": 3.0, "cold_ms": 90.0},
        check={"passed": True, "tensors": [{"range_error": 1e-5, "passed": True, "reason": ""}]},
        launching={"launches": 3},
        memory_bytes=2**20,
        gpu=[{"clock_mhz": 500.0, "temperature_c": 40.0}],
        notes=["0.1 MB were sent, 0.0 were there"],
    )


class PlantedFleet:
    """Two models on some devices; `done` is what was done, as (device, action, what else)."""

    def __init__(self, folder: Path, fate: Fate | None = None, **options: object) -> None:
        self.models = []
        for name in ("a.onnx", "b.onnx"):
            (folder / name).write_bytes(relu())
            self.models.append(folder / name)
        self.store = ResultStore(folder / "fleet")
        self.options = FleetOptions(models=tuple(self.models), **{"patience_s": 0.5, **options})
        self.plan = JobPlanner(self.options, self.store.folder)
        self.done: list[tuple[str, str, str]] = []
        self.at_work: list[str] = []
        self.kept: list[Path] = []
        self._fate, self._lock = fate or (lambda *_: None), threading.Lock()

    def run(self, *names: str) -> tuple[JobRow, ...]:
        fleet = Fleet(self.plan, self.store, self._do)
        try:
            return fleet.run([FleetMember(name=name, options=("--on", name)) for name in names])
        finally:
            fleet.close()

    def count(self, action: str) -> int:
        return sum(own == action for _, own, _ in self.done)

    def _do(self, words: Sequence[str]) -> Result:
        device = words[words.index("--on") + 1] if "--on" in words else ""
        action = {"list": IDENTIFY}.get(words[1], words[1]) if words[0] == "device" else words[0]
        with self._lock:
            assert not device or device not in self.at_work, "a device does one job at a time"
            self.at_work.append(device)
            before = sum(one[:2] == (device, action) for one in self.done)
            self.done.append((device, action, words[1] if action in (RUN, COMPILE) else ""))
        result = self._fate(device, action, before)
        if result is None and action == COMPILE:
            Path(words[words.index("-o") + 1]).mkdir(exist_ok=True)
        with self._lock:
            self.at_work.remove(device)
        if result is not None:
            return result
        return {IDENTIFY: make_result(server=PHONE), RUN: make_run()}.get(action, make_result())
