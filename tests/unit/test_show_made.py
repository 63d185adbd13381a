"""What `compile` prints of its options."""

from __future__ import annotations

import pytest

from adrenoc.cli.show_made import show_options
from adrenoc.ir.options import CompileOptions, ResolvedOptions


def test_states_and_shapes_are_shown_by_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    options = CompileOptions(
        shapes=(("past", (1, 4, 32, 8)),), states=(("past", "present"),), forbid=("cpu",)
    )
    origins = tuple((name, "the test") for name in ("shapes", "states", "forbid", "winograd"))
    show_options(ResolvedOptions(options=options, origins=origins))
    said = " ".join(capsys.readouterr().out.split())
    assert "past:1,4,32,8" in said
    assert "past:present" in said
    assert "forbid cpu" in said
