"""`scripts/bench_launches`: what launching costs, counted on the library that computes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.make import make_bundle
from adrenoc.ir.options import CompileOptions
from adrenoc.target.target import load_target
from tests.models import write_network

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_launches"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """All lines of its table for one network, as it writes them."""
    folder = tmp_path_factory.mktemp("bench")
    model = write_network(folder, "squeezenet", size=32, width=0.25)
    bundle, told = folder / "squeezenet.adrenoc", folder / "told.json"
    make_bundle(
        model,
        target=load_target("host"),
        options=CompileOptions(),
        output=bundle,
        reporter=SilentReporter(),
    )
    command = [sys.executable, str(SCRIPT), str(bundle), "--json", str(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(told.read_text(encoding="utf-8"))[bundle.name]
    return found


def test_every_way_launches_the_same_kernels(rows: list[dict[str, Any]]) -> None:
    assert {row["way"] for row in rows} == {"off", "kept", "always"}
    assert len({row["launches"] for row in rows}) == 1
    assert rows[0]["launches"] > 0


def test_kept_arguments_take_a_call_a_launch_and_set_nothing(rows: list[dict[str, Any]]) -> None:
    kept = [row for row in rows if row["way"] == "kept"]
    for row in kept:
        # A flush for every so many launches is what comes to the launches themselves.
        assert row["launches"] <= row["calls"] < 1.2 * row["launches"]
        assert row["set_calls"] == 0


def test_a_command_buffer_takes_fewer_calls_than_launches(rows: list[dict[str, Any]]) -> None:
    recorded = [row for row in rows if row["mode"] == "a command buffer"]
    assert recorded
    for row in recorded:
        assert row["calls"] < row["launches"]
