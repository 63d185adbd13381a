"""Lists of tensors, whose length is known: what is taken from them is known too."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.importers import import_model
from tests.ir.import_and_run import check, operators
from tests.models import graph, parse_nodes, write

node = helper.make_node


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def number(value: int) -> np.ndarray:
    return np.array(value, np.int64)


def test_results_of_a_loop_are_joined(tmp_path):
    """As torch exports an EmbeddingBag, and what appends to a list."""
    body = helper.make_graph(
        parse_nodes(
            "row = Gather <axis = 0>(x, i) e = Exp(row) longer = SequenceInsert(held, e) "
            "on = Identity(go)"
        ),
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_sequence_value_info("held", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_sequence_value_info("longer", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["three", "", "none"], ["all"], body=body),
        node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=1),
    ]
    path = write(graph(nodes, {"x": (3, 4)}, ["y"], {"three": number(3)}), tmp_path)
    _, module = check(path)
    assert operators(module)["exp"] == 3


SEQUENCES: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray]]] = {
    "split_at": (
        [node("SplitToSequence", ["x", "n"], ["s"], axis=1), node("SequenceAt", ["s", "k"], ["y"])],
        {"n": number(2), "k": number(-1)},
    ),
    "split_sizes": (
        parse_nodes(
            "s = SplitToSequence <axis = 1>(x, n) t = SequenceErase(s, k) "
            "y = ConcatFromSequence <axis = 1>(t)"
        ),
        {"n": ints(1, 3, 1), "k": number(0)},
    ),
    "split_ones": (
        parse_nodes(
            "s = SplitToSequence <axis = 0, keepdims = 0>(x) a = SequenceAt(s, k) "
            "t = SequenceInsert(s, a, k) y = ConcatFromSequence <axis = -1, new_axis = 1>(t)"
        ),
        {"k": number(1)},
    ),
    "length": (
        parse_nodes(
            "m = Neg(x) s = SequenceConstruct(x, m) n = SequenceLength(s) f = Cast <to = 1>(n) "
            "a = SequenceAt(s, k) y = Mul(a, f)"
        ),
        {"k": number(1)},
    ),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(name, tmp_path):
    nodes, constants = SEQUENCES[name]
    check(write(graph(nodes, {"x": (3, 5)}, ["y"], constants), tmp_path))


def test_a_position_that_is_data_is_refused(tmp_path):
    nodes = (
        "s = SplitToSequence(x) m = ArgMax <axis = 0, keepdims = 0>(x) "
        "k = ReduceMax <keepdims = 0>(m) y = SequenceAt(s, k)"
    )
    path = write(graph(nodes, {"x": (3, 5)}, ["y"], {}), tmp_path)
    with pytest.raises(UnsupportedOperatorError, match=r"SequenceAt \(1x\)"):
        import_model(path, shapes={})


def test_a_sequence_as_output_is_refused(tmp_path):
    nodes = [node("SequenceConstruct", ["x", "x"], ["s"]), node("Identity", ["s"], ["y"])]
    path = write(graph(nodes, {"x": (3, 5)}, ["y"], {}), tmp_path)
    with pytest.raises(UnsupportedOperatorError, match=r"SequenceConstruct \(1x\)"):
        import_model(path, shapes={})


def test_a_map_over_a_sequence_is_refused(tmp_path):
    """onnx's own definition of it ends the process where it is given no types."""
    body = helper.make_graph(
        [node("Relu", ["e"], ["r"])],
        "body",
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, (5,))],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, (5,))],
    )
    nodes = [
        node("SplitToSequence", ["x"], ["s"], keepdims=0),
        node("SequenceMap", ["s"], ["t"], body=body),
        node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    path = write(graph(nodes, {"x": (3, 5)}, ["y"], {}), tmp_path)
    with pytest.raises(UnsupportedOperatorError, match=r"SequenceMap \(1x\)"):
        import_model(path, shapes={})
