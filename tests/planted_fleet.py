"""A fleet without devices: a board, and what a device that works would say."""

from __future__ import annotations

from pathlib import Path

from adrenoc.lab.fleet.board import Board, FleetOptions, Plan
from adrenoc.lab.fleet.store import COMPILE, IDENTIFY, Job, Result, Store, write_result
from tests.hostile.models import relu

PHONE = {"machine": "aarch64-linux-android", "devices": [{"name": "QUALCOMM Adreno(TM) 750"}]}


def make_result(exit_code: int = 0, **output: object) -> Result:
    return Result(exit_code=exit_code, took_s=1.0, ended="2026-01-01T00:00:00+00:00", output=output)


def give_good_result(job: Job, plan: Plan, p50_ms: float = 2.0) -> Result:
    """What a device that works says."""
    if job.action == IDENTIFY:
        return make_result(server=PHONE)
    if job.action == COMPILE:
        plan.bundle_path(job.target, Path(job.model)).mkdir(exist_ok=True)
        return make_result()
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
                self.finish(job, give_good_result(job, self.plan))
                done.append(job)
        return done
