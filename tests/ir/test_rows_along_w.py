"""Tokens that come first, as torch's attention has them, lie as those that come second."""

import numpy as np
import pytest

from adrenoc.ir.layout import Layout, rows_along_w
from tests.ir.planning import plan
from tests.models import graph


@pytest.mark.parametrize(
    "shape, roles",
    [
        ((197, 768), "WC"),
        ((197, 1, 768), "W1C"),
        ((1, 197, 768), "NWC"),
        ((4, 197, 768), "NWC"),
        ((4, 197, 1, 768), "HW1C"),
        ((197, 1, 1, 768), "W11C"),
        ((1, 1, 768), "NWC"),
    ],
)
def test_the_last_axis_of_several_runs_along_w(shape, roles):
    assert rows_along_w(shape) == Layout(roles)


def test_moving_the_tokens_first_takes_no_kernel():
    """A transpose of an axis of one moves no texel, for the product reads its tokens along W."""
    matrix = np.ones((32, 24), np.float32)
    nodes = (
        "t = Tanh(x) first = Transpose <perm = [1, 0, 2]>(t) product = MatMul(first, matrix) "
        "second = Transpose <perm = [1, 0, 2]>(product) y = Softmax <axis = -1>(second)"
    )
    made = graph(nodes, {"x": (1, 40, 32)}, ["y"], {"matrix": matrix}, opset=18)
    state = plan(made, until="elide_copies")
    assert [node.op for node in state.graph.nodes] == ["map", "matmul", "softmax"]
    product = next(node for node in state.graph.nodes if node.op == "matmul")
    assert state.graph.operand(product.output).extents.w == 40
