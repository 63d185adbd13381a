"""Inputs that a node leaves out, by the schema of its operator: '' where it may, else refused."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.base import errors
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx.importer import import_onnx
from tests.models import graph, write

node = helper.make_node

ROW = np.ones((1, 3), np.float32)
MANY = ("Concat", "Einsum", "Max", "Mean", "Min", "SequenceConstruct", "Sum")
NEEDED = {
    **{op: ([node(op, ["x", "c", ""], ["y"])], 2) for op in MANY},
    "of an Add": ([node("Add", ["", "x"], ["y"])], 0),
    "of a Range": ([node("Range", ["c", "", "c"], ["y"])], 1),
    "of a Conv": ([node("Conv", ["x", "", "c"], ["y"])], 1),
    "of a Relu": ([node("Relu", [""], ["y"])], 0),
    "in a branch": (
        [
            node(
                "If",
                ["go"],
                ["y"],
                then_branch=helper.make_graph(
                    [node("Sum", ["x", ""], ["z"])], "then", [], [onnx.ValueInfoProto(name="z")]
                ),
                else_branch=helper.make_graph(
                    [node("Neg", ["x"], ["z"])], "else", [], [onnx.ValueInfoProto(name="z")]
                ),
            )
        ],
        1,
    ),
}


def model_of(nodes: list[onnx.NodeProto], **options: int) -> onnx.ModelProto:
    for one in nodes:
        attributes = {"Concat": {"axis": 0}, "Einsum": {"equation": "ab,ab,ab"}}
        for name, value in attributes.get(one.op_type, {}).items():
            one.attribute.append(helper.make_attribute(name, value))
    held = {"c": ROW, "go": np.array(True)}
    return graph(nodes, {"x": (2, 3)}, ["y"], held, **options)


def imported(model: onnx.ModelProto, folder: Path) -> list[tuple[int, ...]]:
    """The shapes of the results."""
    found = import_onnx(find_model_files(write(model, folder)), shapes={})
    return [spec.shape for spec in found.outputs]


@pytest.mark.parametrize("name", NEEDED)
def test_an_input_that_the_operator_needs_is_named(tmp_path, name):
    """TVM's concatenation of nothing at all ends the process."""
    nodes, index = NEEDED[name]
    with pytest.raises(errors.ModelFormatError, match=f"leaves out input {index} ") as raised:
        imported(model_of(nodes), tmp_path)
    place = "Sum the node of 'z'" if name == "in a branch" else f"{nodes[0].op_type} the node of"
    assert raised.value.message.startswith(place)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_function_that_leaves_an_input_out(tmp_path, leaves):
    """What its node leaves out reaches those of its body."""
    model = model_of([node("F", ["x", "" if leaves else "c"], ["y"], domain="own")])
    body, opsets = [node("Sum", ["a", "b"], ["z"])], [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "F", ["a", "b"], ["z"], body, opsets))
    model.opset_import.append(helper.make_opsetid("own", 1))
    if not leaves:
        assert imported(model, tmp_path) == [(2, 3)]
        return
    with pytest.raises(errors.ModelFormatError, match=r"Sum .* leaves out input 1 "):
        imported(model, tmp_path)


def test_what_may_be_left_out_is(tmp_path):
    nodes = [node("Clip", ["x", "", "most"], ["a"]), node("Resize", ["a", "", "scales"], ["y"])]
    held = {"most": np.array(1, np.float32), "scales": np.array([1, 2], np.float32)}
    model = graph(nodes, {"x": (2, 3)}, ["y"], held, opset=18)
    assert imported(model, tmp_path) == [(2, 6)]
