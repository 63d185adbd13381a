"""Random networks of branches: whatever is joined, the program keeps the rules of OpenCL.

`ADRENOC_PROPERTY_EXAMPLES=500 pytest tests/ir/test_branches.py` draws new ones; their numbers are
compared in `tests/host/test_property_graphs.py` and by `scripts/verify random-graphs --branches`.
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adrenoc.compile.pipeline import State, program_of, storage_of
from adrenoc.compile.pipeline.steps import check_plan
from tests.examples import examples
from tests.host.random_graphs.branches import draw_branches
from tests.host.run_op import Ops
from tests.ir.planning import plan


@st.composite
def networks(draw) -> Ops:
    return draw_branches(lambda low, high: draw(st.integers(low, high)))


@pytest.mark.parametrize(
    ("device", "preset"),
    [("adreno", "mixed"), ("adreno:610", "fp16"), ("adreno:750", "fp32"), ("host", "mixed")],
)
@examples(6)
@given(ops=networks())
def test_the_program_keeps_the_rules(ops, device, preset):
    state = _planned(ops, device, preset)
    check_plan(program_of(state), {"": storage_of(state)}, state.target.limits)


def _planned(ops: Ops, device: str, preset: str) -> State:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "branches.onnx"
        ops.save(path)
        return plan(path, until="plan_memory", device=device, preset=preset)
