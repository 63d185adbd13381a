"""Hostile graphs: few bytes that stand for much, attributes that are none, facts that differ."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.hostile.case import ENDED, Case
from tests.hostile.models import NAMES
from tests.models import graph, parse_nodes

X = {"x": (1, 4, 8, 8)}


def make_model(nodes: list[onnx.NodeProto] | str, **more) -> onnx.ModelProto:
    """A model whose output is y; its input is `X` unless `inputs` says otherwise."""
    return graph(nodes, more.pop("inputs", X), ["y"], more.pop("constants", None), **more)


def make_node(kind: str, inputs: list[str], **attributes) -> onnx.NodeProto:
    """A node that makes the output."""
    return helper.make_node(kind, inputs, ["y"], **attributes)


def make_case(
    family: str, name: str, model: onnx.ModelProto | Callable[[], onnx.ModelProto]
) -> Case:
    """Whatever the graph is, or what makes it, it ends in a result or a typed error."""

    def write(folder: Path) -> None:
        made = model() if callable(model) else model
        (folder / "m.onnx").write_bytes(made.SerializeToString())

    return Case(family, name, write, ("check", "m.onnx"), codes=ENDED)


_VAST = 1 << 40


def cases() -> Iterator[Case]:
    yield from _functions()
    yield from _blow_ups()
    yield from _attributes()
    yield from _facts()


def _function(name: str, calls: list[str]) -> onnx.FunctionProto:
    """A function of one input that calls others one after the other."""
    names = ["a", *(f"t{i}" for i in range(len(calls) - 1)), "b"]
    nodes = [
        helper.make_node(call, [names[i]], [names[i + 1]], domain="f" if call[0] == "F" else "")
        for i, call in enumerate(calls)
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["a"], ["b"], nodes, imports)


def _functions() -> Iterator[Case]:
    def called(functions: list[onnx.FunctionProto], name: str = "F0") -> onnx.ModelProto:
        model = make_model([helper.make_node(name, ["x"], ["y"], domain="f")], domains=["f"])
        model.functions.extend(functions)
        return model

    def chain(depth: int, calls: int) -> list[onnx.FunctionProto]:
        inner = [_function(f"F{depth}", ["Relu"])]
        return inner + [_function(f"F{i}", [f"F{i + 1}"] * calls) for i in range(depth)]

    for name, functions in {
        "a function that calls itself": [_function("F0", ["F0"])],
        "two functions that call each other": [_function("F0", ["F1"]), _function("F1", ["F0"])],
        "2^40 calls": chain(40, 2),
        "10^9 calls": chain(9, 10),
        "5,000 calls deep": chain(5000, 1),
        "a function twice": [_function("F0", ["Relu"]), _function("F0", ["Abs"])],
        "a function of nothing": [_function("F0", ["Relu"])],
        "a function that is not there": [_function("F1", ["Relu"])],
    }.items():
        model = called(functions)
        if name == "a function of nothing":
            del model.functions[0].node[:]
        yield make_case("functions of models", name, model)


def _blow_ups() -> Iterator[Case]:
    fill, count, reshape = "y = ConstantOfShape(s)", "y = Range(a, b, c)", "y = Reshape(x, s)"
    pad, tile, resize = "y = Pad(x, s)", "y = Tile(x, s)", "y = Resize(x, , f)"
    split = "y, z = Split <axis = 1>(x, s)"
    made: dict[str, tuple[str, dict[str, Any]]] = {
        "ConstantOfShape": (fill, {"s": [_VAST]}),
        "ConstantOfShape, overflowing": (fill, {"s": [1 << 32, 1 << 32]}),
        "ConstantOfShape below zero": (fill, {"s": [-4]}),
        "Range": (count, {"a": 0, "b": _VAST, "c": 1}),
        "Range by zero": (count, {"a": 0, "b": 9, "c": 0}),
        "Expand": ("y = Expand(k, s)", {"k": [1], "s": [_VAST]}),
        "Expand of the input": ("y = Expand(x, s)", {"s": [1 << 20, 4, 8, 8]}),
        "Tile": (tile, {"s": [1 << 20, 1 << 20, 1, 1]}),
        "Tile below zero": (tile, {"s": [-1, 1, 1, 1]}),
        "Pad": (pad, {"s": [0, 0, 0, 0, 0, 0, 0, _VAST]}),
        "Pad that takes all": (pad, {"s": [0, 0, -9, 0, 0, 0, 0, 0]}),
        "OneHot": (
            "y = OneHot(i, d, v)",
            {"i": [1], "d": _VAST, "v": np.array([0, 1], "float32")},
        ),
        "Resize": (resize, {"f": np.array([1, 1, 1e6, 1e6], "float32")}),
        "Resize by NaN": (resize, {"f": np.array([1, 1, np.nan, np.inf], "float32")}),
        "EyeLike of much": ("y = EyeLike(k)", {"k": np.zeros((1, 1), "float32")}),
        "a Reshape to much": (reshape, {"s": [_VAST, -1]}),
        "a Reshape with two -1": (reshape, {"s": [-1, -1]}),
        "a Slice by 0": ("y = Slice(x, a, b, c, d)", {"a": [0], "b": [9], "c": [2], "d": [0]}),
        "a Slice from -2^63": ("y = Slice(x, a, b)", {"a": [-(1 << 63)], "b": [(1 << 63) - 1]}),
        "a Gather beyond": ("y = Gather(x, i)", {"i": [10**18]}),
        "a Split of nothing": (split, {"s": [0, 4]}),
        "a Split of too much": (split, {"s": [_VAST, 4]}),
        "TopK of 2^40": ("y, z = TopK(x, s)", {"s": [_VAST]}),
        "constants that grow 2^60": (_doubling(60), {"k0": np.ones(1, "float32")}),
    }
    for name, (nodes, constants) in made.items():
        yield make_case("blow-ups of graphs", name, make_model(nodes, constants=constants))
    body = helper.make_graph(
        parse_nodes("d = Identity(c) w = Add(v, v)"),
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, X["x"]),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, X["x"]),
        ],
    )
    for count in (10**9, (1 << 63) - 1, -1, 0):
        loop = make_node("Loop", ["n", "go", "x"], body=body)
        constants = {"n": np.array(count), "go": np.array(True)}
        model = make_model([loop], constants=constants)
        yield make_case("blow-ups of graphs", f"a Loop of {count}", model)


def _doubling(times: int) -> str:
    """Constants, each twice as long as the one before."""
    grown = (f"k{i + 1} = Concat <axis = 0>(k{i}, k{i})" for i in range(times))
    return " ".join([*grown, f"y = Add(x, k{times})"])


def _attributes() -> Iterator[Case]:
    weights = {"w": np.ones((4, 4, 3, 3), "float32")}
    for name, attributes in {
        "strides of 0": {"strides": [0, 0]},
        "strides of -1": {"strides": [-1, -1]},
        "strides of 2^62": {"strides": [1 << 62, 1 << 62]},
        "three strides": {"strides": [1, 1, 1]},
        "dilations of 0": {"dilations": [0, 1]},
        "dilations of 2^40": {"dilations": [_VAST, _VAST]},
        "pads of 2^40": {"pads": [_VAST] * 4},
        "pads of -9": {"pads": [-9] * 4},
        "one pad": {"pads": [1]},
        "group 0": {"group": 0},
        "group -1": {"group": -1},
        "group 3": {"group": 3},
        "group 2^62": {"group": 1 << 62},
        "kernel_shape 2^31": {"kernel_shape": [1 << 31, 1 << 31]},
        "auto_pad of escapes": {"auto_pad": "\x1b[2J"},
        "auto_pad that is no text": {"auto_pad": b"\xff\xfe"},
        "strides that are a text": {"strides": "22"},
        "strides that are floats": {"strides": [1.0, float("nan")]},
        "group that is a tensor": {"group": numpy_helper.from_array(np.ones(3, "float32"))},
        "an attribute of a graph": {"pads": helper.make_graph([], "g", [], [])},
    }.items():
        model = make_model([make_node("Conv", ["x", "w"], **attributes)], constants=weights)
        yield make_case("attributes of nodes", name, model)
    for name, node in {
        "axis 10^18": make_node("Softmax", ["x"], axis=10**18),
        "axis -2^63": make_node("Softmax", ["x"], axis=-(1 << 63)),
        "axis as a text": make_node("Softmax", ["x"], axis="1"),
        "perm twice the same": make_node("Transpose", ["x"], perm=[0, 0, 1, 2]),
        "perm beyond": make_node("Transpose", ["x"], perm=[0, 1, 2, 10**18]),
        "perm of 10,000": make_node("Transpose", ["x"], perm=list(range(10_000))),
        "Cast to 99": make_node("Cast", ["x"], to=99),
        "Cast to nothing": make_node("Cast", ["x"]),
        "LRN of 2^40": make_node("LRN", ["x"], size=_VAST),
        "LRN of 0": make_node("LRN", ["x"], size=0),
        "blocksize 0": make_node("DepthToSpace", ["x"], blocksize=0),
        "blocksize 2^40": make_node("SpaceToDepth", ["x"], blocksize=_VAST),
        "a pool of 0": make_node("MaxPool", ["x"], kernel_shape=[0, 0]),
        "a pool of 2^40": make_node("AveragePool", ["x"], kernel_shape=[_VAST, _VAST]),
        "Einsum of all letters": make_node(
            "Einsum", ["x"], equation="".join(map(chr, range(32, 999)))
        ),
        "Einsum of dots": make_node("Einsum", ["x"], equation="." * 9999),
        "no inputs": make_node("Relu", []),
        "300 inputs": make_node("Sum", ["x"] * 300),
        "an operator of escapes": make_node("\x1b]0;x\x07", ["x"]),
        "an operator of 100,000 letters": make_node("R" * 100_000, ["x"]),
        "an attribute twice": _twice(make_node("Softmax", ["x"], axis=1)),
        "an attribute of no type": _of_type(make_node("Softmax", ["x"], axis=1), 99),
    }.items():
        yield make_case("attributes of nodes", name, make_model([node]))


def _twice(node: onnx.NodeProto) -> onnx.NodeProto:
    node.attribute.append(node.attribute[0])
    return node


def _of_type(node: onnx.NodeProto, kind: int) -> onnx.NodeProto:
    """By its wire form: the package would refuse to."""
    node.attribute[0].ClearField("type")
    node.attribute[0].MergeFromString(b"\xa0\x01" + bytes([kind]))
    return node


def _facts() -> Iterator[Case]:
    relu = helper.make_node("Relu", ["x"], ["y"])

    def edited(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
        model = make_model([relu])
        change(model)
        return model

    def opsets(*versions: int) -> Callable[[onnx.ModelProto], None]:
        def change(model: onnx.ModelProto) -> None:
            del model.opset_import[:]
            model.opset_import.extend(helper.make_opsetid("", v) for v in versions)

        return change

    def typed(change: Callable[[Any], object]) -> Callable[[onnx.ModelProto], None]:
        def edit(model: onnx.ModelProto) -> None:
            model.graph.input[0].ClearField("type")
            change(model.graph.input[0].type)

        return edit

    def weight(**values) -> Callable[[onnx.ModelProto], None]:
        def change(model: onnx.ModelProto) -> None:
            tensor = TensorProto(name="w", data_type=1, dims=[4], raw_data=bytes(16))
            for key, value in values.items():
                if isinstance(value, list):
                    tensor.ClearField(key)
                    getattr(tensor, key).extend(value)
                else:
                    setattr(tensor, key, value)
            model.graph.initializer.append(tensor)
            model.graph.node[0].CopyFrom(helper.make_node("Add", ["x", "w"], ["y"]))

        return change

    escapes = NAMES["clear"]
    for name, change in {
        "no operator sets": opsets(),
        **{f"operator set {v}": opsets(v) for v in (0, -1, 99, (1 << 63) - 1)},
        "two operator sets": opsets(1, 17),
        "a file version of 2^62": lambda m: setattr(m, "ir_version", 1 << 62),
        "a producer of escapes": lambda m: setattr(m, "producer_name", escapes),
        "notes of 10 MB": lambda m: setattr(m, "doc_string", "n" * 10_000_000),
        "an extent of escapes": typed(
            lambda t: t.CopyFrom(helper.make_tensor_type_proto(1, [escapes, 4]))
        ),
        "an extent of 2^62": typed(
            lambda t: t.CopyFrom(helper.make_tensor_type_proto(1, [1 << 62, 4]))
        ),
        "a sequence as input": typed(
            lambda t: t.CopyFrom(
                helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [1]))
            )
        ),
        "an optional as input": typed(
            lambda t: t.CopyFrom(
                helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [1]))
            )
        ),
        "an input of no type": typed(lambda t: None),
        "an input of type 99": typed(
            lambda t: t.tensor_type.CopyFrom(onnx.TypeProto.Tensor(elem_type=99))
        ),
        "an input twice": lambda m: m.graph.input.append(m.graph.input[0]),
        "an output twice": lambda m: m.graph.output.append(m.graph.output[0]),
        "an output that is the input": lambda m: setattr(m.graph.output[0], "name", "x"),
        "an output that nothing makes": lambda m: setattr(m.graph.output[0], "name", "no"),
        "no outputs": lambda m: m.graph.ClearField("output"),
        "no nodes": lambda m: m.graph.ClearField("node"),
        "no inputs": lambda m: m.graph.ClearField("input"),
        "a node that reads itself": lambda m: m.graph.node[0].input.__setitem__(0, "y"),
        "a node twice": lambda m: m.graph.node.append(m.graph.node[0]),
        "300,000 nodes that nothing reads": lambda m: m.graph.node.extend(
            helper.make_node("Relu", ["x"], [f"z{i}"]) for i in range(300_000)
        ),
        "weights of type 77": weight(data_type=77),
        "weights of no type": weight(data_type=0),
        "weights of texts": weight(data_type=TensorProto.STRING, raw_data=b"", string_data=[b"a"]),
        "too few weights": weight(raw_data=bytes(3)),
        "too many weights": weight(raw_data=bytes(64)),
        "weights below zero": weight(dims=[-4]),
        "weights beyond": weight(dims=[1 << 62, 4]),
        "weights that overflow to 4": weight(dims=[(1 << 62) + 1, 4]),
        "weights of 5,000 axes": weight(dims=[1] * 5000 + [4]),
        "weights as other numbers": weight(raw_data=b"", int64_data=[1, 2, 3, 4]),
        "weights in pieces": lambda m: (
            weight()(m),
            m.graph.initializer[0].segment.CopyFrom(TensorProto.Segment(begin=5, end=-1)),
        ),
        "weights twice": lambda m: (
            weight()(m),
            m.graph.initializer.append(m.graph.initializer[0]),
        ),
        "weights called as the input": weight(name="x"),
        "sparse weights that lie": lambda m: (
            m.graph.sparse_initializer.append(
                onnx.SparseTensorProto(
                    values=numpy_helper.from_array(np.ones(2, "float32"), "w"),
                    indices=numpy_helper.from_array(np.array([5, 10**15]), "i"),
                    dims=[1 << 50],
                )
            ),
            m.graph.node[0].CopyFrom(helper.make_node("Add", ["x", "w"], ["y"])),
        ),
        "metadata of escapes": lambda m: m.metadata_props.add(key=escapes, value=escapes),
    }.items():
        yield make_case("facts of model files", name, partial(edited, change))
