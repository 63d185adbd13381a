"""Pads by reflection: the lesser of two distances an axis, and no conditions."""

import numpy as np
from onnx import helper
from tvm import tirx
from tvm_ffi.structural import structural_walk

from tests.ir.planning import plan
from tests.models import graph


def test_places_take_no_conditions():
    widths = np.array([0, 0, 2, 0, 0, 0, 3, 0])
    node = helper.make_node("Pad", ["x", "widths"], ["y"], mode="reflect")
    model = graph([node], {"x": (1, 3, 4, 6)}, ["y"], {"widths": widths})

    (read,) = plan(model, until="read_graph").graph.nodes

    kinds: list[type] = []
    structural_walk(read.body.value, (tirx.Expr, lambda part: kinds.append(type(part))))
    assert {tirx.Min, tirx.Max} <= set(kinds)
    assert tirx.Select not in kinds
    rows, columns = read.body.value.indices[2:]
    assert str(columns) == str(read.body.axes[3])  # what is not padded is read as it is
    assert {tirx.Min, tirx.Max} <= {type(rows), type(rows.a)}
