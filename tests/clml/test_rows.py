"""Every row of the pattern table: its graph, and its numbers on the emulator."""

import numpy as np
import pytest

from adrenoc.clml.region import load_table
from tests.clml.regions import (
    build,
    offloaded_by_tvm,
    only_document,
    only_match,
    random,
    without_names,
)
from tests.clml.rows import CASES, expected_nodes
from tests.stock_tvm import run_on_cpu

_BY_NAME = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


_DTYPES = ("float32", "float16")


def test_every_row_has_a_document_in_each_of_its_dtypes():
    """Written by hand, and of the row's own operator: not of a row that is found in its place."""
    described = {(case.row, dtype) for case in CASES for dtype in _DTYPES}
    table = load_table().rows
    assert described == {(name, dtype) for name, row in table.items() for dtype in row.dtypes}
    for case in CASES:
        assert only_match(case.module()).row.name == case.row, case.name
        assert any(node[0] == "kernel" for node in case.nodes), case.name


@_BY_NAME
@pytest.mark.parametrize("dtype", _DTYPES)
def test_graph(case, dtype):
    graph = only_document(case.module(), dtype=dtype)
    assert without_names(graph) == expected_nodes(case, dtype)
    leaves = [i for i, node in enumerate(graph["nodes"]) if node["op"] != "kernel"]
    assert graph["arg_nodes"] == leaves
    assert graph["heads"] == [[len(graph["nodes"]) - 1, 0, 0]]
    assert graph["node_row_ptr"] == list(range(len(graph["nodes"]) + 1))


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("case", [c for c in CASES if c.by_tvm], ids=lambda case: case.name)
def test_the_partition_of_tvm_gives_the_same(case, dtype):
    if case.row == "batch_norm" and dtype == "float16":
        pytest.skip("TVM 0.27 offloads batch norms of float32 alone")
    assert offloaded_by_tvm(case.module(dtype)) == expected_nodes(case, dtype)


_TOLERANCE = {"fp32": 1e-5, "mixed": 4e-3}


@_BY_NAME
@pytest.mark.parametrize("preset", [pytest.param("fp32", marks=pytest.mark.nightly), "mixed"])
def test_numbers(case, preset, device, emulate):
    module = case.module()
    inputs = [random(*shape, seed=i) for i, shape in enumerate(case.inputs)]
    if case.name == "divide":
        inputs[1] = np.sign(inputs[1]) * (np.abs(inputs[1]) + 0.5)
    emulate(versions=[1, 2, 3, 4, 5])
    built = build(module, device, preset=preset)
    assert len(built.state.clml.regions) == 1
    (value,) = built.run(inputs)
    (expected,) = run_on_cpu(module, inputs)
    size = max(float(np.abs(expected).max()), 1e-3)
    assert value.shape == expected.shape
    assert np.abs(value - expected).max() / size <= _TOLERANCE[preset]
