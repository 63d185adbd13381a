"""Which operators' tests store all that they can in half, and which as users' compilations do."""

from __future__ import annotations

import pytest
import run_op

from adrenoc.options import CompileOptions

_AS_USERS = (
    "test_half_",
    "test_mixed_range",
    "test_coordinates",
    "test_long_sums",
    "test_property",
)
"""Files about which numbers lie in half.  Others test kernels, in half wherever they can be."""


@pytest.fixture(autouse=True)
def _as_users(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.name.startswith(_AS_USERS):
        monkeypatch.setitem(run_op.CHECKED, "keep_float32", True)


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilations of this process store all that they can in half: bundles may be wrong."""
    monkeypatch.setitem(CompileOptions.__init__.__kwdefaults__, "keep_float32", False)
