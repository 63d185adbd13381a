"""Loops: written out up to a stated count, and refused above it with what is so and what to do."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.importers import import_model
from adrenoc.importers.onnx.unroll import MOST_ITERATIONS
from tests.ir.import_and_run import check, operators
from tests.models import graph, write

node = helper.make_node
value = helper.make_tensor_value_info


def cell(*, go: str = "go", rows: int = 4) -> onnx.GraphProto:
    """A step of a recurrence as scripts write it: a row of 'x' and the state before."""
    nodes = [
        node("Gather", ["x", "i"], ["row"], axis=0),
        node("MatMul", ["s", "w"], ["held"]),
        node("Add", ["row", "held"], ["sum"]),
        node("Tanh", ["sum"], ["after"]),
        node("Identity", ["after"], ["y_i"]),
        node("ReduceMax", ["after"], ["most"], keepdims=0),
        node("Less", ["most", "bound"], ["small"]),
        node("Identity", [go], ["on"]),
    ]
    ends = [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ())]
    results = [value("on", TensorProto.BOOL, ())]
    results += [value(name, TensorProto.FLOAT, (1, rows)) for name in ("after", "y_i")]
    return helper.make_graph(
        nodes, "body", [*ends, value("s", TensorProto.FLOAT, (1, rows))], results
    )


def looped(steps: int | None, *, go: str = "go", held: int = 6) -> onnx.ModelProto:
    """A Loop of `steps` steps over 'x' of `held` rows, by an input 'n' where None."""
    constants = {
        "w": np.eye(4, dtype=np.float32) / 2,
        "s0": np.zeros((1, 4), np.float32),
        "bound": np.array(0.5, np.float32),
    }
    if steps is not None:
        constants["n"] = np.array(steps, np.int64)
    loop = node("Loop", ["n", "", "s0"], ["last", "all"], body=cell(go=go))
    model = graph([loop], {"x": (held, 1, 4)}, ["last", "all"], constants)
    if steps is None:
        model.graph.input.append(value("n", TensorProto.INT64, ()))
    return model


def test_a_recurrence_of_constant_length_is_written_out(tmp_path):
    """Beside onnxruntime: the last state and all of them."""
    _, module = check(write(looped(6), tmp_path))
    assert operators(module)["tanh"] == 6


def test_what_is_the_same_in_all_steps_is_computed_once(tmp_path):
    """Of what the loop hands on from step to step as it is, and of a tensor outside."""
    model = looped(6)
    (loop,) = model.graph.node
    loop.input.append("x")
    loop.output.insert(1, "same")
    body = loop.attribute[0].g
    body.input.append(value("v", TensorProto.FLOAT, (6, 1, 4)))
    body.output.insert(2, value("v", TensorProto.FLOAT, (6, 1, 4)))
    body.node[0].input[0] = "rows"
    for made in (("Mul", ["e", "c"], ["rows"]), ("Cos", ["x"], ["c"]), ("Exp", ["v"], ["e"])):
        body.node.insert(0, node(*made))
    _, module = check(write(model, tmp_path))
    counts = operators(module)
    assert (counts["exp"], counts["cos"], counts["tanh"]) == (1, 1, 6)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (looped(None), "its trip count is computed at run time; --fix n=VALUE decides it"),
        (looped(6, go="small"), "whether it goes on is computed at run time"),
        (looped(0), "it takes no step, so that 'all' is empty"),
        (
            looped(MOST_ITERATIONS + 1, held=MOST_ITERATIONS + 1),
            f"it takes {MOST_ITERATIONS + 1} steps, expected up to {MOST_ITERATIONS}: make a "
            "loop's body a model of its own, compile that with --state for what it carries",
        ),
    ],
    ids=["count", "condition", "none", "long"],
)
def test_a_loop_that_is_refused_says_why(tmp_path, model, reason):
    path = write(model, tmp_path)
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_model(path, shapes={})
    assert reason in str(caught.value)


def test_a_refused_loop_says_why_whatever_ranks_its_body_states(tmp_path):
    model = looped(6, go="small")
    body = model.graph.node[0].attribute[0].g
    body.input[1].CopyFrom(value("go", TensorProto.BOOL, (1,)))
    with pytest.raises(UnsupportedOperatorError, match="whether it goes on is computed"):
        import_model(write(model, tmp_path), shapes={})


def test_a_count_that_is_an_input_is_fixed(tmp_path):
    path = write(looped(None), tmp_path)
    imported = import_model(path, shapes={}, fixed=(("n", "3"),))
    assert operators(imported.module)["tanh"] == 3
