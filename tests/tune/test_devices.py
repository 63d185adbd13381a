"""Tuning on the software device: candidates broken on purpose, servers that go, the whole way."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from adrenoc import native
from adrenoc.base.errors import OptionError, RemoteError
from adrenoc.cli.main import main
from adrenoc.device.peers import HostPort, Tracker
from adrenoc.device.remote import RemoteAddress, describe
from adrenoc.ir.tuning_log import Status, Trial, best_trials, read_log
from adrenoc.kernels.families.shared.schedule import actions_of
from adrenoc.lab.tune.farm import Farm
from adrenoc.lab.tune.session import DevicePlace, MeasureJob
from adrenoc.lab.tune.tasks import TunePlan
from adrenoc.lab.tune.tuner import TuneOptions, Tuner, local_server
from tests.patience import WAIT_S
from tests.runtime.servers import python_server, tvm_process
from tests.tune.planted_kernels import (
    Body,
    PlantedBuilder,
    SilentObserver,
    hanging,
    log_writer,
    plan_small,
    small_model,
    unstable,
    wrong,
)

pytest.importorskip("xgboost", reason="pip install '.[tune]'")


@pytest.fixture(scope="module", autouse=True)
def _device() -> None:
    if not native.use_software_device():
        pytest.skip("no software OpenCL device: pip install '.[opencl]'")


@pytest.fixture(scope="module")
def place() -> Iterator[RemoteAddress]:
    with local_server() as address:
        yield address


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> TunePlan:
    """The convolution alone."""
    whole = plan_small(tmp_path_factory.mktemp("plan"))
    conv = tuple(t for t in whole.tasks if t.family == "conv2d")
    return TunePlan(
        model=whole.model, target=whole.target, options=whole.options, graph=whole.graph, tasks=conv
    )


def _outcomes(
    plan: TunePlan, place: RemoteAddress, folder: Path, planted: dict[int, Body], limit_s: float
) -> dict[int, tuple[Status, str]]:
    """Candidates 1 and on against candidate 0, some of them planted."""
    (task,) = plan.tasks
    build = PlantedBuilder(plan, folder, {("conv2d", n): b for n, b in planted.items()})
    reference = folder / "reference.npy"
    found = {}
    with Farm([DevicePlace(server=place, limit_s=limit_s)]) as farm:

        def wait() -> None:
            outcome = None
            while outcome is None:
                outcome = farm.next_outcome(1)
            found[outcome.job.tag] = (outcome.status, outcome.result.detail)

        farm.submit(
            MeasureJob(tag=0, variants=(build(task, 0),), reference=reference, write_reference=True)
        )
        wait()
        for number in (*planted, max(planted) + 1):
            variants = (build(task, number),)
            farm.submit(
                MeasureJob(tag=number, variants=variants, reference=reference, tolerance=5e-3)
            )
            wait()
    return found


def test_wrong_and_unstable_kernels_are_found(plan, place, tmp_path):
    found = _outcomes(plan, place, tmp_path, {1: wrong, 2: unstable}, limit_s=60)
    assert found[0][0] is Status.OK
    assert found[1][0] is Status.WRONG
    assert "of the largest value" in found[1][1]
    assert found[2][0] is Status.UNSTABLE
    assert "different outputs" in found[2][1]
    assert found[3][0] is Status.OK


@pytest.mark.nightly
def test_a_hanging_kernel_costs_itself(plan, place, tmp_path):
    found = _outcomes(plan, place, tmp_path, {1: hanging}, limit_s=20)
    assert found == {
        0: (Status.OK, ""),
        1: (Status.TIMEOUT, "no end within 20 s"),
        2: (Status.OK, ""),
    }


def test_a_planted_kernel_is_named_in_the_log_and_not_taken(plan, place, tmp_path):
    """The whole tuner, every candidate but the untuned one being wrong."""
    (task,) = plan.tasks
    planted: dict[tuple[str, int], Body] = {
        ("conv2d", number): wrong for number in range(1, len(task.candidates))
    }
    path = tmp_path / "log"
    with log_writer(path) as writer, Farm([DevicePlace(server=place, limit_s=60)]) as farm:
        Tuner(
            plan,
            farm=farm,
            build=PlantedBuilder(plan, tmp_path, planted),
            writer=writer,
            known=(),
            options=TuneOptions(trials=2),
            observer=SilentObserver(),
            scratch=tmp_path,
        ).run()
    log = read_log(path)
    assert [t.status for t in log] == [Status.OK, Status.WRONG, Status.WRONG]
    assert best_trials(log)[task.digest].actions == actions_of(task.candidates[0])


def test_no_device_for_long_is_an_error(plan, tmp_path):
    nobody = RemoteAddress.parse("127.0.0.1:1", timeout_s=1)
    remarks: list[str] = []
    places = [DevicePlace(server=nobody, limit_s=1)]
    with Farm(places, patience_s=2, on_event=remarks.append) as farm:
        farm.submit(MeasureJob(tag=0, variants=(), reference=tmp_path / "r"))
        with pytest.raises(RemoteError, match="no device was there"):
            while True:
                farm.next_outcome(1)
    assert "no server at 127.0.0.1:1" in remarks[0]


def test_a_phone_is_not_this_machine(tmp_path, capsys):
    model = tmp_path / "small.onnx"
    onnx.save(small_model(), model)
    assert main(["tune", "run", str(model), "--device", "adreno:750"]) == OptionError.exit_code
    assert "--on tracker:" in capsys.readouterr().err


def _events(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_from_a_tracker_to_a_tuned_bundle(tmp_path, monkeypatch, capsys):
    """Two servers at TVM's tracker; the log's schedules are those of the bundle's kernels."""
    monkeypatch.chdir(tmp_path)
    onnx.save(small_model(), tmp_path / "small.onnx")
    with tvm_process("rpc_tracker") as port:
        tracker = f"127.0.0.1:{port}"
        options = ("--tracker", tracker, "--key", "soft")
        with python_server(*options), python_server(*options):
            known = Tracker(HostPort(host="127.0.0.1", port=port), timeout_s=WAIT_S)
            limit = time.monotonic() + WAIT_S
            while len(known.servers()) < 2 and time.monotonic() < limit:
                time.sleep(0.1)
            known.close()
            there = ("--on", f"tracker:soft@{tracker}")
            command = ["tune", "run", "small.onnx", "--device", "host", *there, "--json"]
            assert main([*command, "--trials", "4"]) == 0
            events = _events(capsys.readouterr().out)
    result = events[-1]
    assert result["event"] == "result"
    assert result["trials"] == 4
    assert any(e.get("devices") == 2 for e in events)
    log = read_log(tmp_path / "small.tune.json")
    assert {t.gpu for t in log} == {"host"}
    assert all(t.device.name and t.median_us > 0 for t in log if t.status is Status.OK)
    _check_bundle(log, capsys)


def _check_bundle(log: tuple[Trial, ...], capsys: pytest.CaptureFixture[str]) -> None:
    compiling = ["compile", "small.onnx", "--device", "host", "--tuning-log", "small.tune.json"]
    assert main([*compiling, "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["manifest"]["kernels"]
    best = best_trials(log)
    tuned = {k["digest"]: k for k in kernels if k["tuned"]}
    assert set(tuned) == set(best)
    for digest, trial in best.items():
        assert tuned[digest]["work_group"] == list(trial.actions["work_group"])
    assert main(["inspect", "small.adrenoc"]) == 0
    assert capsys.readouterr().out.count(" tuned") == len(tuned)
    assert main(["run", "small.adrenoc", "--check", "small.onnx", "--repeat", "1"]) == 0


def test_the_folder_of_a_session_goes_with_it(tmp_path, monkeypatch):
    """The process ends after that, and nothing of it would remove the folder any more."""
    if not native.use_software_device():
        pytest.skip("no software OpenCL device: pip install '.[opencl]'")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with local_server() as address:
        assert describe(address)
    assert os.listdir(tmp_path) == []  # noqa: PTH208
