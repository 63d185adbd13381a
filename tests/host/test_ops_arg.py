"""Places of the largest and smallest: exact, also where halves could not tell numbers apart."""

import numpy as np
import pytest

from adrenoc.passes.read.fold_nests import FEW_RESULTS, LONG_FOLD, LONG_PART

pytestmark = pytest.mark.operator

NEAR = 1e-6
"""Between two numbers about 1: a half there is a step of 1e-3."""


@pytest.mark.parametrize("preset", ["fp32", "mixed", "buffer"])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 70), 1), ((3, LONG_FOLD + 51), 1), ((LONG_FOLD + 1, 5), 0)]
)
def test_numbers_of_an_input_are_told_apart(ops, device, preset, op, shape, axis):
    x = ops.input(*shape)
    steps = np.random.default_rng(0).integers(0, 900, shape)  # some of them the same
    ops.given(x, (1.0 + steps * NEAR).astype(np.float32))
    y = ops(op, x, axis=axis, keepdims=0)
    ops.output(y)
    np.testing.assert_array_equal(ops.run(device, preset)[y], ops.reference()[y])


def test_the_extreme_of_an_output_is_found_in_it(ops, device):
    """What is handed out lies in float32, and its extreme is one of these numbers."""
    scores = ops("Mul", ops.input(1, 1, 500), ops.const(1.0001))
    place = ops("ArgMax", scores, axis=-1, keepdims=0)
    ops.output(scores, place)
    found = ops.run(device, "mixed")
    assert found[place].item() == int(np.argmax(found[scores]))


@pytest.mark.parametrize(
    ("results", "length", "kernels"),
    [(1, LONG_FOLD + 1, 5), (2, LONG_PART**2 + 1, 7), (FEW_RESULTS + 1, LONG_FOLD + 1, 3)],
)
@pytest.mark.parametrize("preset", ["fp32", "mixed"])
def test_a_long_axis_is_folded_in_parts_where_few_threads_would(
    ops, device, preset, results, length, kernels
):
    x = ops.input(results, length)
    steps = np.random.default_rng(length).permutation(length) * NEAR
    ops.given(x, (1.0 + np.stack([np.roll(steps, 7 * r) for r in range(results)])).astype("f4"))
    y = ops("ArgMax", x, axis=1, keepdims=0)
    ops.output(y)
    found = ops.run(device, preset)[y]
    assert len(ops.kernels) == kernels
    np.testing.assert_array_equal(found, ops.reference()[y])
