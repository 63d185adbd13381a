"""Tuning without a device: by an analyser's word."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnx
import pytest
from planted_kernels import plan_small, small_model

from adrenoc.base.errors import ToolError
from adrenoc.cli.main import main
from adrenoc.ir.tuning_log import Status, best_trials, read_log
from adrenoc.kernels.families.shared.schedule import actions_of

ANALYSER = """
import json, pathlib, sys
source = pathlib.Path(sys.argv[1])
facts = json.loads(source.with_suffix(".json").read_text())
assert "__kernel void " + facts["kernel"] in source.read_text()
x, y, z = facts["work_group"]
if x > 8:
    print(json.dumps({"error": "too wide"}))
else:
    print(json.dumps({"time_us": 100 / x + y}))
"""


def _analyser(folder: Path, text: str = ANALYSER) -> str:
    path = folder / "analyse.py"
    path.write_text(text, encoding="utf-8")
    return f"{sys.executable} {path}"


def _tune(folder: Path, *options: str) -> int:
    onnx.save(small_model(), folder / "small.onnx")
    log = str(folder / "log")
    return main(
        ["tune", "run", str(folder / "small.onnx"), "--device", "adreno:750", "-o", log, *options]
    )


def test_the_analyser_picks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = _analyser(tmp_path)
    assert _tune(tmp_path, "--offline", "--analyser", command, "--trials", "18", "--json") == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    log = read_log(tmp_path / "log")
    assert result["trials"] == len(log)
    assert {t.gpu for t in log} == {"750"}
    assert any(t.detail == "too wide" for t in log if t.status is not Status.OK)
    assert all(t.actions["work_group"][0] <= 8 for t in best_trials(log).values())
    # Once more: nothing is asked twice.
    assert _tune(tmp_path, "--offline", "--analyser", command, "--trials", "18") == 0
    assert read_log(tmp_path / "log") == log


def test_a_budget_ends_the_analysis(tmp_path: Path) -> None:
    """Planning alone takes longer than this one."""
    asked = tmp_path / "asked"
    command = _analyser(tmp_path, f"open({str(asked)!r}, 'a').write('x')\n{ANALYSER}")
    options = ("--offline", "--analyser", command, "--budget", "0.001s")
    assert _tune(tmp_path, *options) == 0
    assert read_log(tmp_path / "log") == ()
    # What was begun for the first kernel is waited for, and nothing else begun.
    assert not asked.exists() or len(asked.read_text()) <= 2


@pytest.mark.parametrize(
    "said", ["fast", '{"time_us": -3}', '{"time_us": 0}', '{"time_us": NaN}', '{"time_us": 1e99}']
)
def test_an_analyser_that_talks_nonsense_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    command = _analyser(tmp_path, f"print({said!r})")
    assert _tune(tmp_path, "--offline", "--analyser", command) == ToolError.exit_code
    assert "expected JSON with `time_us`" in capsys.readouterr().err


def test_without_analyser_the_cost_model_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _tune(tmp_path, "--offline") == 0
    assert "ranked by the cost model" in capsys.readouterr().out
    assert read_log(tmp_path / "log") == ()


def test_the_next_command_compiles_the_kernels_that_were_tuned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _tune(tmp_path, "--offline", "--preset", "fp16", "--set", "int8_prompts=true") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert " --preset fp16 --set int8_prompts=true --tuning-log " in told


def test_candidates_are_in_the_order_of_the_estimate(tmp_path: Path) -> None:
    for task in plan_small(tmp_path).tasks:
        assert list(task.estimates) == sorted(task.estimates)
        assert task.position(actions_of(task.candidates[3])) == 3
        assert task.position({"work_group": [7, 7, 7]}) is None
