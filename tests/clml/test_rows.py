"""Every row of the pattern table: its graph, and its numbers on the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adrenoc.clml.patterns import load_table
from tests.clml.regions import (
    Emulate,
    build,
    only_document,
    only_match,
    random,
    reference,
    without_names,
)
from tests.clml.rows import CASES, Case, expected_nodes

_BY_NAME = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_every_row_has_a_case():
    assert {case.row for case in CASES} == set(load_table().rows)


@_BY_NAME
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_graph(case: Case, dtype: str):
    graph = only_document(case.module(), dtype=dtype)
    assert without_names(graph) == expected_nodes(case, dtype)
    leaves = [i for i, node in enumerate(graph["nodes"]) if node["op"] != "kernel"]
    assert graph["arg_nodes"] == leaves
    assert graph["heads"] == [[len(graph["nodes"]) - 1, 0, 0]]
    assert graph["node_row_ptr"] == list(range(len(graph["nodes"]) + 1))


@_BY_NAME
def test_row(case: Case):
    assert only_match(case.module()).row.name == case.row


_TOLERANCE = {"fp32": 1e-5, "mixed": 4e-3}


@_BY_NAME
@pytest.mark.parametrize("preset", ["fp32", "mixed"])
def test_numbers(case: Case, preset: str, device: Any, emulate: Emulate):
    module = case.module()
    inputs = [random(*shape, seed=i) for i, shape in enumerate(case.inputs)]
    if case.name == "divide":
        inputs[1] = np.sign(inputs[1]) * (np.abs(inputs[1]) + 0.5)
    emulate(versions=[1, 2, 3, 4, 5])
    built = build(module, device, preset=preset)
    assert len(built.state.clml.regions) == 1
    (value,) = built.run(inputs)
    (expected,) = reference(module, inputs)
    size = max(float(np.abs(expected).max()), 1e-3)
    assert value.shape == expected.shape
    assert np.abs(value - expected).max() / size <= _TOLERANCE[preset]
