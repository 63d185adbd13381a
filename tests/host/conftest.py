"""Which operators' tests store all that they can in half, and which as users' compilations do."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from adrenoc.ir.options import CompileOptions

_AS_USERS = tuple(
    f"test_{name}"
    for name in ("half_", "mixed_range", "coordinates", "long_sums", "property", "ops_arg")
)
"""Files about which numbers lie in half.  Others test kernels, in half wherever they can be."""


_NIGHTLY = ("fp16", "buffer")
"""Presets that are `mixed` but for one thing: products in halves, buffers.

`test_device_suite.py` has each family in buffers.
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark presets as nightly; leave out what `--few` does."""
    for item in items:
        if item.path.parent.name == "host" and _preset(item) in _NIGHTLY:
            item.add_marker(pytest.mark.nightly)
    if config.getoption("--few"):
        kept = _few_of_each(items, has_halves=not config.getoption("--opencl"))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def _preset(item: pytest.Item) -> Any:
    """Return the preset that a case compiles with, where it is one of its parameters."""
    return item.callspec.params.get("preset") if hasattr(item, "callspec") else None


def _few_of_each(items: list[pytest.Item], *, has_halves: bool) -> set[pytest.Item]:
    """Take of each operator's test the first and the last case in nightly presets, of others all.

    Without halves, as PoCL is, they are the first and the last in floats alone.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        key, preset = item.nodeid, _preset(item)
        if item.get_closest_marker("operator"):
            if not has_halves and preset not in (None, "fp32"):
                continue
            if not has_halves or preset in _NIGHTLY:
                key = f"{item.nodeid.split('[')[0]} in {preset}"
        cases.setdefault(key, []).append(item)
    return {case for alike in cases.values() for case in (alike[0], alike[-1])}


@pytest.fixture(autouse=True)
def _as_users(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.name.startswith(_AS_USERS):
        for name in ("run_op", "tests.host.run_op"):  # tests import it by either
            if name in sys.modules:
                monkeypatch.setitem(sys.modules[name].CHECKED, "keep_float32", True)


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilations of this process store all that they can in half: bundles may be wrong."""
    monkeypatch.setitem(CompileOptions.__init__.__kwdefaults__, "keep_float32", False)
