"""Random graphs of odd shapes against onnxruntime, for any preset and target.

A few by default; `ADRENOC_PROPERTY_EXAMPLES=200 pytest tests/host/test_property_graphs.py` makes
a finding smaller, `scripts/verify random-graphs` runs thousands.  What they found is tested by
name: the graphs at the end, and in the tests of the operator's family.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.host.random_graphs.branches import draw_branches
from tests.host.random_graphs.draw import TOLERANCE, Case, draw_case
from tests.host.random_graphs.quantised import draw_quantised


@st.composite
def cases(draw) -> Case:
    return draw_case(lambda low, high: draw(st.integers(low, high)))


@examples(10)
@given(case=cases())
def test_random_graph(device, case):
    tolerance = TOLERANCE.get(case.preset)
    case.ops.check(device, case.preset, tolerance, target=case.target, rounding=True)


@pytest.mark.parametrize("number", range(4))
def test_numbers_of_any_size(device, number):
    """Tiny, constant, as of sound or a million: `scripts/verify random-graphs --ranges`."""
    case = draw_case(random.Random(f"ranges/{number}").randint, ranged=True)
    tolerance = TOLERANCE.get(case.preset)
    case.ops.check(device, case.preset, tolerance, target=case.target, rounding=True)


@pytest.mark.parametrize(("number", "preset"), [(5, "fp32"), (6, "mixed"), (7, "fp16")])
def test_random_branches(device, number, preset):
    """`tests/ir/test_join_blocks.py` compiles many more."""
    ops = draw_branches(random.Random(f"branches/{number}").randint)
    ops.check(device, preset, TOLERANCE.get(preset), target="host:750", rounding=True)


@pytest.mark.parametrize("number", range(3))
def test_random_quantised_network(device, number):
    draw_quantised(random.Random(number).randint).check(device)


@pytest.mark.parametrize("width", [16385, 20011])
def test_wider_than_an_image(ops, device, width):
    x = ops.input(1, 3, 2, width)
    pooled = ops("MaxPool", x, kernel_shape=[1, 3], strides=[1, 2])
    conv = ops("Conv", pooled, ops.weight(2, 3, 1, 1))
    ops.output(conv, ops("Relu", ops("Add", x, ops.weight(1, 3, 1, 1))))
    ops.check(device, "fp32")
