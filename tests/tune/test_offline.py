"""Tuning without a device: as the cost model ranks."""

from pathlib import Path

import onnx

from adrenoc.cli.main import main
from adrenoc.ir.tuning_log import read_log
from adrenoc.kernels.families.shared.schedule import actions_of
from tests.tune.planted_kernels import plan_small, small_model


def _tune(folder: Path, *options: str) -> int:
    onnx.save(small_model(), folder / "small.onnx")
    log = str(folder / "log")
    return main(
        ["tune", "run", str(folder / "small.onnx"), "--device", "adreno:750", "-o", log, *options]
    )


def test_the_cost_model_ranks(tmp_path, capsys):
    assert _tune(tmp_path, "--offline") == 0
    assert "ranked by the cost model" in capsys.readouterr().out
    assert read_log(tmp_path / "log") == ()


def test_the_next_command_compiles_the_kernels_that_were_tuned(tmp_path, capsys):
    assert _tune(tmp_path, "--offline", "--preset", "fp16", "--set", "int8_prompts=true") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert " --preset fp16 --set int8_prompts=true --tuning-log " in told


def test_candidates_are_in_the_order_of_the_estimate(tmp_path):
    for task in plan_small(tmp_path).tasks:
        assert list(task.estimates) == sorted(task.estimates)
        assert task.position(actions_of(task.candidates[3])) == 3
        assert task.position({"work_group": [7, 7, 7]}) is None
