"""`scripts/bench_regret` looks at its command line before it measures for minutes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import WAIT_S

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_regret"


def test_a_part_of_no_layer_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--only", "no such layer", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    assert "--only no such layer: no layer has it in its name" in done.stderr
    assert not any(tmp_path.iterdir())
