"""Control flow, loops and lists of tensors: what remains is what onnxruntime computes."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from adrenoc.base.errors import ModelFormatError, UnsupportedOperatorError
from adrenoc.check.inputs import make_inputs
from adrenoc.importers import import_model
from adrenoc.importers.onnx.session import open_session
from adrenoc.importers.onnx.unroll import MOST_ITERATIONS
from adrenoc.passes.rewrites.simplify import simplify
from tests.ir.planning import check, operators
from tests.models import graph, parse_nodes, write
from tests.stock_tvm import run_on_cpu

node = helper.make_node


def chosen(taken: str, other: str, result: str = "y", by: str = "c") -> str:
    """The text of an If of two branches, whose results are `r`."""
    one, two = (f"b () => (r) {{ {nodes} }}" for nodes in (taken, other))
    return f"{result} = If <then_branch = {one}, else_branch = {two}>({by})"


@pytest.mark.parametrize("offset", [-100.0, 100.0])
def test_if_on_data_selects(tmp_path, offset):
    """The branch that is not taken would give infinities; none of them may be seen."""
    inner = "l = Log(zero) r = Mul(l, x)"
    taken, other = "r = Neg(a)", chosen(inner, inner, "r")
    if offset < 0:
        taken, other = other, taken
    nodes = f"""t = ReduceSum <keepdims = 0>(x) u = Add(t, offset) c = Greater(u, zero)
                a = Relu(x) {chosen(taken, other)}"""
    constants = {"zero": np.float32(0), "offset": np.float32(offset)}
    imported, _ = check(write(graph(nodes, {"x": (2, 3)}, ["y"], constants), tmp_path))
    both = "computed both branches of an If, then selected"
    assert [d.taken for d in imported.decisions].count(both) == 2


def test_a_branch_that_only_asks_for_the_shape_of_an_outer_tensor(tmp_path):
    """onnx's own inference of such an If ends the process: it is not told the tensor's type."""
    branches = chosen("r = EyeLike <k = 1>(x)", "r = Neg(x)")
    nodes = f"m = ReduceMax <keepdims = 0>(x) c = Greater(m, zero) {branches}"
    check(write(graph(nodes, {"x": (3, 4)}, ["y"], {"zero": np.float32(0)}), tmp_path))


def test_concat_with_nothing_passes_the_rest_on(tmp_path):
    nodes = (
        "nothing = Slice(x, two, two, axis) still_nothing = Relu(nothing) "
        "y = Concat <axis = 1>(x, still_nothing)"
    )
    model = graph(nodes, {"x": (2, 3)}, ["y"], {"two": ints(2), "axis": ints(1)})
    _, module = check(write(model, tmp_path))
    assert set(operators(module)) <= {""}


def test_sum_over_an_input_of_nothing_is_zero(tmp_path):
    nodes = "s = ReduceSum <keepdims = 1>(empty, axes) y = Add(x, s)"
    model = graph(nodes, {"x": (2, 3), "empty": (2, "n")}, ["y"], {"axes": ints(1)})
    imported, _ = check_without(write(model, tmp_path), {"empty": (2, 0)})
    assert [spec.name for spec in imported.inputs] == ["x"]
    assert ("empty", "left the input out") in [(d.subject, d.taken) for d in imported.decisions]


def check_without(path: Path, empty: dict[str, tuple[int, ...]]) -> tuple:
    """Compare with onnxruntime, which takes the inputs that hold nothing."""
    imported = import_model(path, shapes=empty)
    module, _ = simplify(imported.module)
    feeds = make_inputs(imported.inputs)
    nothing = {name: np.empty(shape, np.float32) for name, shape in empty.items()}
    expected = open_session(path).run(None, {**feeds, **nothing})
    for found, wanted in zip(run_on_cpu(module, list(feeds.values())), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    return imported, module


def _refused(model: onnx.ModelProto, folder: Path) -> str:
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_model(write(model, folder), shapes={})
    return str(caught.value)


def _made(model: onnx.ModelProto, folder: Path, x: np.ndarray) -> tuple[np.ndarray, set[str]]:
    """What the imported model makes of `x`, and what was decided."""
    imported = import_model(write(model, folder), shapes={})
    (found,) = run_on_cpu(imported.module, [x])
    return found, {d.taken for d in imported.decisions}


def test_old_opset_is_converted(tmp_path):
    """Until opset 7 an operand was broadcast by an attribute."""
    constants = {"b": np.arange(4, dtype=np.float32)}
    nodes = "y = Add <broadcast = 1>(x, b)"
    model = graph(nodes, {"x": (2, 3, 4)}, ["y"], constants, opset=6)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, (2, 3, 4)))
    x = np.ones((2, 3, 4), np.float32)
    found, taken = _made(model, tmp_path, x)
    np.testing.assert_array_equal(found, x + constants["b"])
    assert "converted from opset 6 to 7" in taken


def test_nodes_out_of_order_are_sorted(tmp_path):
    inner = "r = Add(b, p) p = Abs(x)"
    nodes = (
        f"{chosen(inner, inner)} c = Cast <to = 9>(t) t = ReduceSum <keepdims = 0>(b) "
        "b = Relu(a) a = Neg(x)"
    )
    x = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    found, taken = _made(graph(nodes, {"x": (2, 3)}, ["y"]), tmp_path, x)
    np.testing.assert_array_equal(found, np.maximum(-x, 0) + np.abs(x))
    assert "sorted its nodes" in taken


def test_function_with_a_branch_that_reads_its_attribute(tmp_path):
    inner = "r = LeakyRelu <alpha: float = @slope>(v)"
    body = parse_nodes(
        f"t = ReduceSum <keepdims = 0>(v) c = Cast <to = 9>(t) {chosen(inner, inner, 'w')}"
    )
    opset = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Bent", ["v"], ["w"], body, opset, ["slope"])
    nodes = "y = own.Bent <slope = 0.25>(x)"
    model = graph(nodes, {"x": (2, 3)}, ["y"], domains=["own"])
    model.functions.append(function)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, (2, 3)))
    check(write(model, tmp_path))


def test_pads_below_zero_cut(tmp_path):
    constants = {"p": ints(0, -1, 2, -1, 0, 1, -3, 0)}
    check(write(graph("y = Pad(x, p)", {"x": (1, 3, 5, 4)}, ["y"], constants), tmp_path))


def _of_older_function(body: str) -> onnx.ModelProto:
    opset = [helper.make_opsetid("", 11)]
    model = graph("y = own.Old(x)", {"x": (2, 3, 4)}, ["y"], domains=["own"])
    made = helper.make_function("own", "Old", ["v"], ["w"], parse_nodes(body), opset)
    model.functions.append(made)
    return model


def test_functions_may_be_of_an_older_opset(tmp_path):
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    found, _ = _made(_of_older_function("e = Exp(v) w = Relu(e)"), tmp_path, x)
    np.testing.assert_allclose(found, np.exp(x), rtol=1e-5)


def test_functions_whose_operators_meant_something_else_are_refused(tmp_path):
    """Softmax of opset 11 is over all axes from one on; onnxruntime takes it for the model's."""
    path = write(_of_older_function("w = Softmax <axis = 1>(v)"), tmp_path)
    with pytest.raises(ModelFormatError, match=r"\(Old\) are some of another opset"):
        import_model(path, shapes={})


value = helper.make_tensor_value_info


def looped(steps: int | None, *, go: str = "go", held: int = 6) -> onnx.ModelProto:
    """A Loop of `steps` steps over 'x' of `held` rows, by an input 'n' where None.

    A step is one of a recurrence as scripts write it: a row of 'x' and the state before.
    """
    constants = {"w": np.eye(4, dtype=np.float32) / 2, "s0": np.zeros((1, 4), np.float32)}
    constants["bound"] = np.array(0.5, np.float32)
    if steps is not None:
        constants["n"] = np.array(steps, np.int64)
    nodes = f"""last, all = Loop <body = b (int64 i, bool go, float[1, 4] s)
                => (bool on, float[1, 4] after, float[1, 4] y_i) {{
                    row = Gather <axis = 0>(x, i) held = MatMul(s, w) sum = Add(row, held)
                    after = Tanh(sum) y_i = Identity(after) most = ReduceMax <keepdims = 0>(after)
                    small = Less(most, bound) on = Identity({go}) }}>(n, "", s0)"""
    model = graph(nodes, {"x": (held, 1, 4)}, ["last", "all"], constants)
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


def _stated_otherwise() -> onnx.ModelProto:
    """A loop whose condition has another rank than its body states."""
    model = looped(6, go="small")
    body = model.graph.node[0].attribute[0].g
    body.input[1].CopyFrom(value("go", TensorProto.BOOL, (1,)))
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (looped(None), "its trip count is computed at run time; --fix n=VALUE decides it"),
        (looped(6, go="small"), "whether it goes on is computed at run time"),
        (_stated_otherwise(), "whether it goes on is computed at run time"),
        (looped(0), "it takes no step, so that 'all' is empty"),
        (
            looped(MOST_ITERATIONS + 1, held=MOST_ITERATIONS + 1),
            f"it takes {MOST_ITERATIONS + 1} steps, expected up to {MOST_ITERATIONS}: make a "
            "loop's body a model of its own, compile that with --state for what it carries",
        ),
    ],
    ids=["count", "condition", "rank", "none", "long"],
)
def test_a_loop_that_is_refused_says_why(tmp_path, model, reason):
    assert reason in _refused(model, tmp_path)


def test_a_count_that_is_an_input_is_fixed(tmp_path):
    imported = import_model(write(looped(None), tmp_path), shapes={}, fixed=(("n", "3"),))
    assert operators(imported.module)["tanh"] == 3


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def number(value: int) -> np.ndarray:
    return np.array(value, np.int64)


def test_results_of_a_loop_are_joined(tmp_path):
    """As torch exports an EmbeddingBag, and what appends to a list."""
    nodes = """none = SequenceEmpty()
               all = Loop <body = b (int64 i, bool go, seq(float[]) held)
               => (bool on, seq(float[]) longer) {
                   row = Gather <axis = 0>(x, i) e = Exp(row) longer = SequenceInsert(held, e)
                   on = Identity(go) }>(three, "", none)
               y = ConcatFromSequence <axis = 0, new_axis = 1>(all)"""
    path = write(graph(nodes, {"x": (3, 4)}, ["y"], {"three": number(3)}), tmp_path)
    _, module = check(path)
    assert operators(module)["exp"] == 3


SEQUENCES: dict[str, tuple[str, dict[str, np.ndarray]]] = {
    "split_at": (
        "s = SplitToSequence <axis = 1>(x, n) y = SequenceAt(s, k)",
        {"n": number(2), "k": number(-1)},
    ),
    "split_sizes": (
        "s = SplitToSequence <axis = 1>(x, n) t = SequenceErase(s, k) "
        "y = ConcatFromSequence <axis = 1>(t)",
        {"n": ints(1, 3, 1), "k": number(0)},
    ),
    "split_ones": (
        "s = SplitToSequence <axis = 0, keepdims = 0>(x) a = SequenceAt(s, k) "
        "t = SequenceInsert(s, a, k) y = ConcatFromSequence <axis = -1, new_axis = 1>(t)",
        {"k": number(1)},
    ),
    "length": (
        "m = Neg(x) s = SequenceConstruct(x, m) n = SequenceLength(s) f = Cast <to = 1>(n) "
        "a = SequenceAt(s, k) y = Mul(a, f)",
        {"k": number(1)},
    ),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(name, tmp_path):
    nodes, constants = SEQUENCES[name]
    check(write(graph(nodes, {"x": (3, 5)}, ["y"], constants), tmp_path))


@pytest.mark.parametrize(
    ("operator", "nodes"),
    [
        (
            "SequenceAt",
            "s = SplitToSequence(x) m = ArgMax <axis = 0, keepdims = 0>(x) "
            "k = ReduceMax <keepdims = 0>(m) y = SequenceAt(s, k)",
        ),
        ("SequenceConstruct", "s = SequenceConstruct(x, x) y = Identity(s)"),
        # onnx's own definition of it ends the process where it is given no types.
        (
            "SequenceMap",
            "s = SplitToSequence <keepdims = 0>(x) t = SequenceMap <body = b (float[5] e) "
            "=> (float[5] r) { r = Relu(e) }>(s) y = ConcatFromSequence <axis = 0>(t)",
        ),
    ],
    ids=["a position that is data", "an output", "a map"],
)
def test_sequences_that_are_refused(tmp_path, operator, nodes):
    assert f"{operator} (1x)" in _refused(graph(nodes, {"x": (3, 5)}, ["y"]), tmp_path)
