"""Pads by reflection: the lesser of two distances an axis, and no conditions."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tvm import tirx
from tvm_ffi.structural import structural_walk

from tests.ir.planning import plan


def test_places_take_no_conditions() -> None:
    widths = numpy_helper.from_array(np.array([0, 0, 2, 0, 0, 0, 3, 0]), "widths")
    node = helper.make_node("Pad", ["x", "widths"], ["y"], mode="reflect")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 9, 6])
    graph = helper.make_graph([node], "pad", [x], [y], [widths])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    (read,) = plan(model, until="read_graph").graph.nodes

    kinds: list[type] = []
    structural_walk(read.body.value, (tirx.Expr, lambda part: kinds.append(type(part))))
    assert {tirx.Min, tirx.Max} <= set(kinds)
    assert tirx.Select not in kinds
    rows, columns = read.body.value.indices[2:]
    assert str(columns) == str(read.body.axes[3])  # what is not padded is read as it is
    assert {tirx.Min, tirx.Max} <= {type(rows), type(rows.a)}
