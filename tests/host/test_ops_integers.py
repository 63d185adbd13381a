"""Reductions of integers, and triangles whose diagonal is known at run time, as onnxruntime's."""

import numpy as np
import pytest

pytestmark = pytest.mark.operator

KINDS = ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceSumSquare")
VALUES = {
    "beyond the dtype": [[2**31 - 1, 5, 3, 16777217, 0, 7], [-(2**31), -5, 2**20, 1, 3, 4]],
    "of products": [[40000, -40001, 39999, 1, -1, 2], [-40000, -40001, 0, 3, 5, 7]],
    "within it": [[16777217, -2, 4, 6, 8, 1], [33554433, 1, -1, 1, 1, 1]],
}


@pytest.mark.parametrize("values", VALUES)
def test_int32_ends_where_its_dtype_does(ops, device, values):
    x = ops.whole_input(2, 6, count=9, dtype=np.int32)
    ops.given(x, np.array(VALUES[values], np.int32))
    for kind in KINDS:
        ops.output(ops(kind, x, ops.ints(1), keepdims=0), ops(kind, x, ops.ints(0)), ops(kind, x))
    for name, seen in ops.run(device, "mixed").items():
        np.testing.assert_array_equal(seen, ops.reference()[name], err_msg=ops._path_to(name))


@pytest.mark.parametrize("kind", ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"])
def test_without_axes_each_number_is_mapped(ops, device, kind):
    x = ops.input(3, 5, low=0.5, high=2.0)
    ops.output(ops(kind, x, noop_with_empty_axes=1))
    ops.check(device, "fp32")


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [-2, 0, 9])
def test_triangle_of_a_diagonal_that_is_data(ops, device, upper, diagonal):
    x, k = ops.input(2, 4, 5), ops.whole_input(count=1)
    ops.given(k, np.array(diagonal, np.int64))
    ops.output(ops("Trilu", x, k, upper=upper))
    ops.check(device, "fp32")
