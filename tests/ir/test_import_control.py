"""Control flow and tensors that hold nothing: what remains is what onnxruntime computes."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.base.errors import ModelFormatError
from adrenoc.check.inputs import make_inputs
from adrenoc.importers import import_model
from adrenoc.importers.onnx.session import open_session
from adrenoc.passes.rewrites.simplify import simplify
from tests.ir.import_and_run import check, operators
from tests.models import graph, write
from tests.stock_tvm import run_on_cpu

node = helper.make_node


def branch(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    (name,) = nodes[-1].output
    return helper.make_graph(list(nodes), "branch", [], [onnx.ValueInfoProto(name=name)])


@pytest.mark.parametrize("offset", [-100.0, 100.0])
def test_if_on_data_selects(tmp_path, offset):
    """The branch that is not taken would give infinities; none of them may be seen."""
    inner = branch(node("Log", ["zero"], ["l"]), node("Mul", ["l", "x"], ["r"]))
    nested = branch(node("If", ["c"], ["n"], then_branch=inner, else_branch=inner))
    nodes = [
        node("ReduceSum", ["x"], ["t"], keepdims=0),
        node("Add", ["t", "offset"], ["u"]),
        node("Greater", ["u", "zero"], ["c"]),
        node("Relu", ["x"], ["a"]),
        node(
            "If",
            ["c"],
            ["y"],
            then_branch=branch(node("Neg", ["a"], ["r"])) if offset > 0 else nested,
            else_branch=nested if offset > 0 else branch(node("Neg", ["a"], ["r"])),
        ),
    ]
    constants = {"zero": np.float32(0), "offset": np.float32(offset)}
    path = write(graph(nodes, {"x": (2, 3)}, ["y"], constants), tmp_path)
    imported, _ = check(path)
    assert [d.taken for d in imported.decisions].count(
        "computed both branches of an If, then selected"
    ) == 2


def test_a_branch_that_only_asks_for_the_shape_of_an_outer_tensor(tmp_path):
    """onnx's own inference of such an If ends the process: it is not told the tensor's type."""
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Greater", ["m", "zero"], ["c"]),
        node(
            "If",
            ["c"],
            ["y"],
            then_branch=branch(node("EyeLike", ["x"], ["r"], k=1)),
            else_branch=branch(node("Neg", ["x"], ["r"])),
        ),
    ]
    check(write(graph(nodes, {"x": (3, 4)}, ["y"], {"zero": np.float32(0)}), tmp_path))


def test_concat_with_nothing_passes_the_rest_on(tmp_path):
    nodes = (
        "nothing = Slice(x, two, two, axis) still_nothing = Relu(nothing) "
        "y = Concat <axis = 1>(x, still_nothing)"
    )
    constants = {"two": np.array([2], np.int64), "axis": np.array([1], np.int64)}
    path = write(graph(nodes, {"x": (2, 3)}, ["y"], constants), tmp_path)
    _, module = check(path)
    assert set(operators(module)) <= {""}


def test_sum_over_an_input_of_nothing_is_zero(tmp_path):
    nodes = "s = ReduceSum <keepdims = 1>(empty, axes) y = Add(x, s)"
    constants = {"axes": np.array([1], np.int64)}
    model = graph(nodes, {"x": (2, 3), "empty": (2, "n")}, ["y"], constants)
    imported, _ = check_without(write(model, tmp_path), {"empty": (2, 0)})
    assert [spec.name for spec in imported.inputs] == ["x"]
    assert ("empty", "left the input out") in [(d.subject, d.taken) for d in imported.decisions]


def check_without(path: Path, empty: dict[str, tuple[int, ...]]) -> tuple:
    """Compare with onnxruntime, which takes the inputs that hold nothing."""
    pytest.importorskip("onnxruntime")
    imported = import_model(path, shapes=empty)
    module, _ = simplify(imported.module)
    feeds = make_inputs(imported.inputs)
    session = open_session(path)
    expected = session.run(
        None, {**feeds, **{name: np.empty(shape, np.float32) for name, shape in empty.items()}}
    )
    for found, wanted in zip(run_on_cpu(module, list(feeds.values())), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    return imported, module


def test_old_opset_is_converted(tmp_path):
    """Until opset 7 an operand was broadcast by an attribute."""
    nodes = [node("Add", ["x", "b"], ["y"], broadcast=1)]
    constants = {"b": np.arange(4, dtype=np.float32)}
    model = graph(nodes, {"x": (2, 3, 4)}, ["y"], constants, opset=6)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, (2, 3, 4)))
    imported = import_model(write(model, tmp_path), shapes={})
    x = np.ones((2, 3, 4), np.float32)
    (found,) = run_on_cpu(imported.module, [x])
    np.testing.assert_array_equal(found, x + constants["b"])
    assert any(d.taken == "converted from opset 6 to 7" for d in imported.decisions)


def test_nodes_out_of_order_are_sorted(tmp_path):
    inner = branch(node("Add", ["b", "p"], ["r"]))
    inner.node.append(node("Abs", ["x"], ["p"]))
    nodes = [
        node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        node("Cast", ["t"], ["c"], to=onnx.TensorProto.BOOL),
        node("ReduceSum", ["b"], ["t"], keepdims=0),
        node("Relu", ["a"], ["b"]),
        node("Neg", ["x"], ["a"]),
    ]
    model = graph(nodes, {"x": (2, 3)}, ["y"])
    imported = import_model(write(model, tmp_path), shapes={})
    x = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    (found,) = run_on_cpu(imported.module, [x])
    np.testing.assert_array_equal(found, np.maximum(-x, 0) + np.abs(x))
    assert any(d.taken == "sorted its nodes" for d in imported.decisions)


def test_function_with_a_branch_that_reads_its_attribute(tmp_path):
    leaky = node("LeakyRelu", ["v"], ["r"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    inner = branch(leaky)
    body = [
        node("ReduceSum", ["v"], ["t"], keepdims=0),
        node("Cast", ["t"], ["c"], to=onnx.TensorProto.BOOL),
        node("If", ["c"], ["w"], then_branch=inner, else_branch=inner),
    ]
    opset = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Bent", ["v"], ["w"], body, opset, ["slope"])
    nodes = [node("Bent", ["x"], ["y"], domain="own", slope=0.25)]
    model = graph(nodes, {"x": (2, 3)}, ["y"], domains=["own"])
    model.functions.append(function)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, (2, 3)))
    check(write(model, tmp_path))


def test_pads_below_zero_cut(tmp_path):
    constants = {"p": np.array([0, -1, 2, -1, 0, 1, -3, 0], np.int64)}
    model = graph([node("Pad", ["x", "p"], ["y"])], {"x": (1, 3, 5, 4)}, ["y"], constants)
    check(write(model, tmp_path))


def _of_older_function(folder: Path, *body: onnx.NodeProto) -> Path:
    opset = [helper.make_opsetid("", 11)]
    nodes = [node("Old", ["x"], ["y"], domain="own")]
    model = graph(nodes, {"x": (2, 3, 4)}, ["y"], domains=["own"])
    model.functions.append(helper.make_function("own", "Old", ["v"], ["w"], list(body), opset))
    return write(model, folder)


def test_functions_may_be_of_an_older_opset(tmp_path):
    path = _of_older_function(tmp_path, node("Exp", ["v"], ["e"]), node("Relu", ["e"], ["w"]))
    imported = import_model(path, shapes={})
    module, _ = simplify(imported.module)
    (x,) = make_inputs(imported.inputs).values()
    (found,) = run_on_cpu(module, [x])
    np.testing.assert_allclose(found, np.exp(x), rtol=1e-5)


def test_functions_whose_operators_meant_something_else_are_refused(tmp_path):
    """Softmax of opset 11 is over all axes from one on; onnxruntime takes it for the model's."""
    path = _of_older_function(tmp_path, node("Softmax", ["v"], ["w"], axis=1))
    with pytest.raises(ModelFormatError, match=r"\(Old\) are some of another opset"):
        import_model(path, shapes={})
