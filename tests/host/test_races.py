"""Kernels in a simulator that sees races and strays (`scripts/verify races`), and its own tests."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from scripts.verifying import races
from scripts.verifying.races import Replayed, record, replay

pytestmark = pytest.mark.skipif(
    not races.SIMULATOR.is_file(), reason=f"no {races.SIMULATOR}: apt-get install oclgrind"
)


@pytest.fixture(scope="module")
def launches(tmp_path_factory) -> list[Path]:
    """What the cases of norms and softmax launch: they share local memory."""
    scratch = tmp_path_factory.mktemp("races")
    suite = races.list_suite(("softmax", "norm"), scratch / "device.json", ("fp32",))
    return record(suite, scratch / "launches", scratch)


@pytest.mark.nightly
def test_kernels_that_share_memory_neither_race_nor_stray(launches):
    rows = list(replay(launches, jobs=2))
    assert len(rows) > 20
    assert not [row for row in rows if row.found or row.skipped]


def strip_barriers(folder: Path) -> None:
    text = (folder / "kernel.cl").read_text()
    (folder / "kernel.cl").write_text(text.replace("barrier(CLK_LOCAL_MEM_FENCE);", ""))


def halve_groups(folder: Path) -> None:
    """Half of a work-group waits at a barrier where the others do not come."""
    text = (folder / "kernel.cl").read_text()
    one = "barrier(CLK_LOCAL_MEM_FENCE);"
    (folder / "kernel.cl").write_text(text.replace(one, f"if (get_local_id(0) < 1) {one}", 1))


def shrink_output(folder: Path) -> None:
    place = len(json.loads((folder / "launch.json").read_text())["arguments"]) - 1
    for when in ("before", "after"):
        path = folder / f"{place}.{when}"
        path.write_bytes(path.read_bytes()[:16])


def change_result(folder: Path) -> None:
    told = json.loads((folder / "launch.json").read_text())
    path = folder / f"{len(told['arguments']) - 1}.after"
    path.write_bytes(bytes(len(path.read_bytes())))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (strip_barriers, "data race"),
        (halve_groups, "divergence"),
        (shrink_output, "Invalid write"),
        (change_result, "other numbers than the device"),
    ],
)
def test_a_planted_fault_is_found(launches, tmp_path, plant, told):
    folder = tmp_path / "launch"
    shutil.copytree(next(f for f in launches if writes_buffer_by_teams(f)), folder)
    plant(folder)
    (row,) = replay([folder], jobs=1)
    assert any(told in what for what in row.found), row


def writes_buffer_by_teams(folder: Path) -> bool:
    told = json.loads((folder / "launch.json").read_text())
    text = (folder / "kernel.cl").read_text()
    is_alone = text.count("__kernel") == 1
    output = told["arguments"][-1].get("memory", {})
    return is_alone and "barrier" in text and output.get("width") == 0 and told["local"][0] > 1


@pytest.mark.nightly
def test_what_cannot_be_simulated_is_told(launches, tmp_path):
    folder = tmp_path / "launch"
    shutil.copytree(launches[0], folder)
    (folder / "kernel.cl").write_text("no kernel")
    (row,) = replay([folder], jobs=1)
    assert row == Replayed(row.name, skipped=row.skipped)
    assert row.skipped.startswith("clBuildProgram answered")


def test_nothing_simulated_is_no_success(capsys):
    assert races.report([Replayed("a 1", skipped="halves")]) == 1
    assert races.report([Replayed("a 1")]) == 0
    assert races.report([Replayed("a 1"), Replayed("b 2", found=("a race",))]) == 1
    assert "b 2: a race" in capsys.readouterr().out


def test_a_command_that_fails_ends_it(tmp_path):
    import subprocess

    with pytest.raises(subprocess.CalledProcessError):
        record([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "launches", tmp_path)


RACE = """Write-write data race at local memory address 0x10
\tKernel: a

\tFirst entity:  Global(1,0,0)
\t  store <4 x float> %x
\tAt line 5 (column 3) of input.cl:
\t  shared3_ptr[(to1 + 271)] = x;

\tSecond entity: Global(2,0,0)
\t  store <4 x float> %x
\tAt line 5 (column 3) of input.cl:
\t  shared3_ptr[(to1 + 271)] = x;
"""


@pytest.mark.parametrize(
    ("complaint", "text", "unread"),
    [
        (RACE, "int to1 = (to0 + select(270, at0, (hr0 < 9)));", True),
        (RACE, "int to1 = (to0 + at0);", False),
        (RACE.replace("to1", "wi1"), "int wi1 = select(270, at0, (hr0 < 9));", False),
        (RACE.replace("Write-write", "Read-write"), "int to1 = select(270, at0, 1);", False),
    ],
)
def test_what_nobody_reads_may_be_written_twice(complaint, text, unread):
    assert races.is_unread(complaint, text) is unread
