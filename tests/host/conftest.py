"""Which operators' tests store all that they can in half, and which as users' compilations do."""

import pytest

from adrenoc.ir.options import CompileOptions
from tests.host.run_op import CHECKED, Ops

_AS_USERS = tuple(f"test_{name}" for name in ("half_", "property", "ops_arg"))
"""Files about which numbers lie in half.  Others test kernels, in half wherever they can be."""


_NIGHTLY = ("fp16", "buffer")
"""Presets that are `mixed` but for one thing: products in halves, buffers.

`test_device_suite.py` has each family in buffers.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark presets as nightly; fp32, too, where mixed has the same case.

    `test_any_schedule.py` has each family in fp32, `test_networks.py` some networks.
    """
    names = {item.nodeid for item in items}
    for item in items:
        if item.path.parent.name != "host":
            continue
        preset = _preset(item)
        is_twin = preset == "fp32" and item.path.name != "test_networks.py"
        if preset in _NIGHTLY or (is_twin and item.nodeid.replace("fp32", "mixed") in names):
            item.add_marker(pytest.mark.nightly)


def _preset(item: pytest.Item):
    """Return the preset that a case compiles with, where it is one of its parameters."""
    return item.callspec.params.get("preset") if hasattr(item, "callspec") else None


@pytest.fixture(autouse=True)
def _as_users(request, monkeypatch) -> None:
    if request.path.name.startswith(_AS_USERS):
        monkeypatch.setitem(CHECKED, "keep_float32", True)


@pytest.fixture(params=["fp32", "mixed", "fp16", "buffer"])
def preset(request) -> str:
    """Each preset; tests that name some run with these alone."""
    return request.param


@pytest.fixture
def ops() -> Ops:
    """A model under construction; those of other seeds and opsets are made by tests."""
    return Ops()


@pytest.fixture
def halves(monkeypatch) -> None:
    """Compilations of this process store all that they can in half: bundles may be wrong."""
    monkeypatch.setitem(CompileOptions.__init__.__kwdefaults__, "keep_float32", False)
