"""Kernels that only move elements: each says why it is left."""

import numpy as np

from tests.ir.planning import plan
from tests.models import graph


def test_a_window_partition_says_who_reads_it():
    """Windows of pixels become rows of a product of two activations."""

    constants = {"split": [1, 8, 2, 4, 2, 4], "rows": [4, 16, 8]}
    nodes = (
        "r = Relu(x) s = Reshape(r, split) t = Transpose <perm = [0, 2, 4, 3, 5, 1]>(s) "
        "w = Reshape(t, rows) back = Transpose <perm = [0, 2, 1]>(w) scores = MatMul(w, back) "
        "y = Softmax(scores)"
    )

    held = {name: np.array(value, "int64") for name, value in constants.items()}
    model = graph(nodes, {"x": (1, 8, 8, 8)}, ["y"], held)
    state = plan(model, until="explain_moves")
    moves = [n for n in state.graph.nodes if set(n.operators) <= {"reshape", "permute_dims"}]
    said = [d for d in state.log if d.taken == "a kernel that only moves elements"]
    assert moves and {n.name for n in moves} == {d.subject for d in said}
    assert all("matmul" in d.reason for d in said)
