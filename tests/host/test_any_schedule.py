"""Any schedule that a family offers computes the same: the suite by schedules of chance."""

import pytest

from adrenoc.device.run import run_bundle
from adrenoc.lab.prove.examine import judge
from adrenoc.lab.prove.suite import CASES, Suite, make_suite
from adrenoc.target.target import load_target
from tests.decided import choose_by_chance

pytestmark = pytest.mark.operator

_nightly = pytest.mark.nightly
PLACES = (
    ("host:750", "fp32", "textures"),
    pytest.param("host:660", "mixed", "buffers", marks=_nightly),
    pytest.param("host:750", "fp16", "textures", marks=_nightly),
    pytest.param("host:830", "mixed", "textures", marks=_nightly),
)
"""Together these have each family, and each form of it."""


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=_nightly) for n in range(1, 8))])
@pytest.mark.parametrize(("name", "precision", "memory"), PLACES)
def test_any_schedule(name, precision, memory, seed, device, tmp_path, monkeypatch):
    choose_by_chance(monkeypatch, seed)
    monkeypatch.setenv("ADRENOC_CACHE_DIR", str(tmp_path))
    # Of each family and form one, and all of them in the nights.
    some = CASES if seed else tuple({(c.family, c.fusion, c.kernel): c for c in CASES}.values())
    suite = Suite(precision=precision, memory=memory, cases=some)
    made = make_suite(suite, load_target(name), tmp_path)
    outputs = run_bundle(made.bundle, inputs=made.inputs, repeat=1, warmup=0).outputs
    wrong = [str(one) for one in judge(made, outputs)]
    assert not wrong, "\n".join(wrong)
