"""Small files that ask for much: each ends soon, in little memory, in a result or an error."""

import resource
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from adrenoc.base import errors
from adrenoc.importers import onnx_wire
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx import unroll
from adrenoc.importers.onnx.graph import all_nodes
from tests.ir.planning import plan_as_user
from tests.models import graph

node = helper.make_node


def added(nodes: str, **held: np.ndarray) -> onnx.ModelProto:
    """The sum of the constant `made`, which `nodes` compute, added to an input."""
    nodes += " f = Cast <to = 1>(made) sum = ReduceSum <keepdims = 0>(f) y = Add(x, sum)"
    return graph(nodes, {"x": (2, 3)}, ["y"], held)


def split() -> onnx.ModelProto:
    return graph(f"y, z = Split <num_outputs = {2**62}>(x)", {"x": (4, 3)}, ["y"], opset=18)


def ranged() -> onnx.ModelProto:
    first, end, by = (np.array(number) for number in (0, 2**29, 1))
    return added("made = Range(first, end, by)", first=first, end=end, by=by)


def mel() -> onnx.ModelProto:
    held = {name: np.array(number) for name, number in (("n", 2**29), ("dft", 16), ("rate", 8192))}
    held |= {"low": np.array(0, np.float32), "high": np.array(4096, np.float32)}
    return added("made = MelWeightMatrix(n, dft, rate, low, high)", **held)


def gathered() -> onnx.ModelProto:
    """Rows of a table, very many times."""
    nodes = "zeros = ConstantOfShape(n) i = Cast <to = 7>(zeros) made = Gather(table, i)"
    return added(nodes, n=np.array([2**20]), table=np.ones((4, 4096), np.float32))


def doubled() -> onnx.ModelProto:
    """A constant that is joined with itself forty times."""
    names = [*(f"t{i}" for i in range(40)), "made"]
    nodes = [f"{b} = Concat <axis = 0>({a}, {a})" for a, b in pairwise(names)]
    return added(" ".join(nodes), t0=np.ones(1024, np.float32))


def looped(steps: int, size: int) -> onnx.ModelProto:
    """A Loop of so many steps of so many nodes."""
    inner = " ".join(f"w{i} = Neg(w{i - 1})" for i in range(1, size))
    nodes = f"""y = Loop <body = b (int64 i, bool go, float[3] v) => (bool on, float[3] w{size - 1})
                          {{ on = Identity(go) w0 = Neg(v) {inner} }}>(n, "", x)"""
    return graph(nodes, {"x": (3,)}, ["y"], {"n": np.array(steps)})


def scanned() -> onnx.ModelProto:
    inner = "t0 = Add(s, r) " + " ".join(f"t{i + 1} = Neg(t{i})" for i in range(100))
    nodes = f"""y = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] r) => (float[2] t100)
                          {{ {inner} }}>(first, x)"""
    return graph(nodes, {"x": (1000, 2)}, ["y"], {"first": np.zeros(2, np.float32)})


def scanned_rows(rows: int, steps: int, size: int) -> onnx.ModelProto:
    """A Scan of opset 8, whose first axis are rows that each run by themselves."""
    each = f"float[{size}]"
    nodes = f"""y = Scan <num_scan_inputs = 1, body = b ({each} s, {each} r) => ({each} t)
                          {{ t = Add(s, r) }}>("", first, x)"""
    held = {"first": np.zeros((rows, size), np.float32)}
    return graph(nodes, {"x": (rows, steps, size)}, ["y"], held, opset=8)


def branches(depth: int, source: str, go: str = "go", of: str = "") -> str:
    """An If 'y' by 'go' that holds twice as many with each level, with a Neg of `source` inside."""
    nodes = f"y = Neg({source})"
    for _ in range(depth):
        inner = f"b () => ({of} y) {{ {nodes} }}"
        nodes = f"y = If <then_branch = {inner}, else_branch = {inner}>({go})"
    return nodes


def conditions() -> onnx.ModelProto:
    """Nine Ifs in each other, with the same in both branches."""
    model = graph(branches(9, "x", "c", "float[3]"), {"x": (3,)}, ["y"])
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, ()))
    return model


def deep_rank() -> onnx.ModelProto:
    nodes = " ".join(f"t{i + 1} = Unsqueeze(t{i}, at)" for i in range(100))
    return graph(nodes, {"t0": (3,)}, ["t100"], {"at": np.array([0])})


def calling(bodies: list[list[str]]) -> onnx.ModelProto:
    """Functions F0, F1, ... that call others in a row; F0 is called."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = graph("y = own.F0(x)", {"x": (3,)}, ["y"], domains=["own"])
    for number, called in enumerate(bodies):
        names = ["a", *(f"t{i}" for i in range(len(called) - 1)), "b"]
        nodes = [
            node(op, [names[i]], [names[i + 1]], domain="own" if op != "Neg" else "")
            for i, op in enumerate(called)
        ]
        model.functions.append(
            helper.make_function("own", f"F{number}", ["a"], ["b"], nodes, imports)
        )
    return model


def empty() -> onnx.ModelProto:
    """No element, but extents that no array may have."""
    return graph(f"y = DepthToSpace <blocksize = {2**29}>(x)", {"x": (1, 4, 8, 8)}, ["y"])


def text() -> onnx.ModelProto:
    nodes = 's = Constant <value_strings = ["a", "b"]>() y = Relu(x)'
    return graph(nodes, {"x": (3,)}, ["y", "s"])


def twice(name: str) -> onnx.ModelProto:
    return graph(f"t = Relu(x) {name} = Neg(x) y = Abs(t)", {"x": (3,)}, ["y"])


def complex_input() -> onnx.ModelProto:
    model = graph("y = Neg(x)", {"x": (3,)}, ["y"])
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    return model


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "parts without number": (split, "2 outputs, and says that it has"),
    "a long range": (ranged, "536870912 constant elements, expected up to"),
    "a mel matrix": (mel, "constant elements, expected up to"),
    "a table read often": (gathered, "4294967296 constant elements|expected up to"),
    "a constant joined with itself": (doubled, "constant elements, expected up to"),
    "a long loop of many nodes": (lambda: looped(1000, 100), "written out, the loops"),
    "a long scan of many nodes": (scanned, "written out, the loops"),
    "a long scan of many rows": (lambda: scanned_rows(1000, 1000, 2), "written out, the loops"),
    "conditions in each other": (conditions, "more than 256 conditions"),
    "a hundred dimensions": (deep_rank, "dimensions; expected up to 64"),
    "a function that calls itself": (lambda: calling([["F1"], ["F0"]]), "calls itself"),
    "functions that double": (
        lambda: calling([[f"F{i + 1}"] * 2 for i in range(30)] + [["Neg"]]),
        "1073741824 nodes with its functions inlined",
    ),
    "no element, of vast extents": (empty, "holds no element"),
    "an output of text": (text, "output 's' holds text"),
    "a tensor that two nodes compute": (lambda: twice("t"), "computes 't' once more"),
    "an input that a node computes": (lambda: twice("x"), "computes 'x' once more"),
    "complex numbers": (complex_input, "complex numbers"),
}


class Copies:
    """Counts the nodes of the copies of nested graphs, those of graphs in them included."""

    def __init__(self) -> None:
        self.count = 0
        self._copy = unroll.instantiate

    def __call__(self, *args):
        made = self._copy(*args)
        self.count += sum(1 for _ in all_nodes(made[0]))
        return made


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_grow_out_of_measure_is_refused(tmp_path, name):
    make, said = REFUSED[name]
    onnx.save(make(), tmp_path / "model.onnx")
    before = peak_bytes()
    with pytest.raises(errors.AdrenocError, match=said) as caught:
        plan_as_user(tmp_path / "model.onnx")
    assert caught.value.hint
    assert peak_bytes() - before < 1 << 29


def test_a_long_chain_of_maps_becomes_several_kernels(tmp_path):
    """In one kernel, its expression would be deeper than Python recurses."""
    nodes = [f"t{i + 1} = {'Neg' if i % 2 else 'Abs'}(t{i})" for i in range(300)]
    onnx.save(graph(" ".join(nodes), {"t0": (3,)}, ["t300"]), tmp_path / "model.onnx")
    state = plan_as_user(tmp_path / "model.onnx")
    assert [len(n.fused) for n in state.graph.nodes if n.is_map] == [64, 64, 64, 64, 44]
    assert any("expected up to 64" in d.reason for d in state.log)


def test_an_epilogue_does_not_double_without_end(tmp_path):
    """Each step reads the last one twice: thirty of them are a milliard of reads."""
    steps = [f"s{i} = Sigmoid(t{i}) t{i + 1} = Mul(t{i}, s{i})" for i in range(30)]
    nodes = " ".join(["t0 = Conv(x, w)", *steps])
    held = {"w": np.ones((4, 4, 1, 1), np.float32)}
    onnx.save(graph(nodes, {"x": (1, 4, 8, 8)}, ["t30"], held), tmp_path / "model.onnx")
    state = plan_as_user(tmp_path / "model.onnx")
    assert 2 <= len(state.graph.nodes) < 30
    assert any("parts, expected up to" in d.reason for d in state.log)


def test_a_concatenation_takes_no_more_operands_than_a_kernel(tmp_path):
    nodes = f"y = Concat <axis = 1>({', '.join(['x', 'z'] * 100)})"
    onnx.save(graph(nodes, {"x": (1, 3, 5), "z": (1, 2, 5)}, ["y"]), tmp_path / "model.onnx")
    state = plan_as_user(tmp_path / "model.onnx")
    assert max(len(n.fused) + len(n.inputs) for n in state.graph.nodes) < 64
    assert any("200 operands" in d.reason for d in state.log)


def test_a_long_sequence_is_stacked_in_groups(tmp_path):
    steps = 130
    nodes = f"""s = SequenceConstruct({", ".join(["x", "z"] * (steps // 2))})
                y = ConcatFromSequence <axis = 0, new_axis = 1>(s)"""
    onnx.save(graph(nodes, {"x": (2, 3), "z": (2, 3)}, ["y"]), tmp_path / "model.onnx")
    state = plan_as_user(tmp_path / "model.onnx")
    assert max(len(n.inputs) for n in state.graph.nodes) <= 32
    assert any(f"{steps} operands" in d.reason for d in state.log)


def test_no_more_is_read_of_a_data_file_than_the_tensor_has(tmp_path):
    model = graph("y = Add(x, c)", {"x": (3,)}, ["y"], {"c": np.ones(3, np.float32)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="data.bin")
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    before = peak_bytes()
    plan_as_user(tmp_path / "model.onnx")
    assert peak_bytes() - before < 1 << 27


def test_channels_without_number_are_not_looked_into(tmp_path):
    nodes = "y = Concat <axis = 0>(x, z)"
    onnx.save(graph(nodes, {"x": (2, 2), "z": (1 << 24, 2)}, ["y"]), tmp_path / "model.onnx")
    before = peak_bytes()
    assert plan_as_user(tmp_path / "model.onnx").graph is not None
    assert peak_bytes() - before < 1 << 29


def test_an_operator_that_makes_too_much_is_refused(tmp_path):
    nodes = "y, z = Identity(x) o, p = Optional(x)"
    onnx.save(graph(nodes, {"x": (2, 2)}, ["y", "z", "o", "p"]), tmp_path / "model.onnx")
    with pytest.raises(errors.AdrenocError):
        plan_as_user(tmp_path / "model.onnx")


def test_the_steps_of_a_scan_are_not_those_of_its_state(tmp_path):
    onnx.save(scanned_rows(1, 2, 1 << 15), tmp_path / "model.onnx")
    assert plan_as_user(tmp_path / "model.onnx").graph is not None


def test_branches_that_hold_each_other_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_wire, "MOST_NODES", 50)
    held = {"go": np.array(True)}
    onnx.save(graph(branches(5, "x"), {"x": (2,)}, ["y"], held), tmp_path / "model.onnx")
    with pytest.raises(errors.ModelFormatError, match="more than 50 nodes"):
        find_model_files(tmp_path / "model.onnx")


def looped_branches() -> onnx.ModelProto:
    """Of 30 trips with 63 nodes each, six get to the output; all are copied each time."""
    nodes = f"""z = Loop <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] y)
                          {{ on = Identity(go) {branches(5, "v")} }}>(n, "", x)"""
    return graph(nodes, {"x": (2,)}, ["z"], {"n": np.array(30)})


def scanned_branches() -> onnx.ModelProto:
    nodes = f"""z = Scan <num_scan_inputs = 1, body = b (float[2] v) => (float[2] y)
                          {{ {branches(5, "v")} }}>(x)"""
    return graph(nodes, {"x": (30, 2)}, ["z"], {"go": np.array(True)})


@pytest.mark.parametrize("make", [looped_branches, scanned_branches])
def test_branches_that_a_loop_copies_are_counted(tmp_path, monkeypatch, make):
    onnx.save(make(), tmp_path / "model.onnx")
    assert plan_as_user(tmp_path / "model.onnx").graph is not None
    monkeypatch.setattr(unroll, "MOST_COPIED", 1500)
    monkeypatch.setattr(unroll, "instantiate", copies := Copies())
    with pytest.raises(errors.AdrenocError, match="copied for each trip and branch") as caught:
        plan_as_user(tmp_path / "model.onnx")
    assert caught.value.hint
    assert copies.count <= 1500
