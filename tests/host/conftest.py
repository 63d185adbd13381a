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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as nightly the presets that are `mixed` but for one thing: products in halves, buffers.

    `test_device_suite.py` has each family in buffers.
    """
    for item in items:
        if item.path.parent.name == "host" and _preset(item) in ("fp16", "buffer"):
            item.add_marker(pytest.mark.nightly)
    if config.getoption("--few"):
        kept = _few_of_each(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def _preset(item: pytest.Item) -> Any:
    """Return the preset that a case compiles with, where it is one of its parameters."""
    return item.callspec.params.get("preset") if hasattr(item, "callspec") else None


def _few_of_each(items: list[pytest.Item]) -> set[pytest.Item]:
    """Take of each operator's test the first and the last case in floats, of others all."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("operator") is None:
            cases[item.nodeid] = [item]
        elif _preset(item) in (None, "fp32"):
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    return {case for of_one in cases.values() for case in (of_one[0], of_one[-1])}


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
