"""Hostile graphs: a few bytes that stand for much, attributes that are none, tables shared."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from ai_edge_litert import schema_py_generated as schema
from onnx import TensorProto, helper, numpy_helper

from tests.hostile.case import Case, Make
from tests.hostile.firmware import edited_tflite
from tests.hostile.models import NAMES, put
from tests.models import graph

_OK = frozenset({0, *range(11, 40)})
_X = {"x": (1, 4, 8, 8)}
_VAST = 1 << 40
_LIST = 10 << 2
"""A list of flexbuffers, whose offsets are bytes."""


def cases() -> Iterator[Case]:
    yield from _functions()
    yield from _blow_ups()
    yield from _attributes()
    yield from _files()
    yield from _weights()
    yield from _shared_tables()


def _model(nodes: list[onnx.NodeProto], **more: Any) -> onnx.ModelProto:
    return graph(nodes, more.pop("inputs", _X), ["y"], more.pop("constants", None), **more)


def _node(kind: str, inputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, ["y"], **attributes)


def _case(family: str, name: str, model: onnx.ModelProto, *, check: bool = True) -> Case:
    return Case(
        family=family,
        name=name,
        make=put("m.onnx", model.SerializeToString()),
        command=("check", "m.onnx") if check else ("compile", "m.onnx", "-o", "out"),
        codes=_OK,
        makes=("out",),
    )


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
        model = _model([helper.make_node(name, ["x"], ["y"], domain="f")], domains=["f"])
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
        yield _case("functions of models", name, model)


def _blow_ups() -> Iterator[Case]:
    def value(*numbers: int) -> np.ndarray:
        return np.array(numbers, "int64")

    made: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray]]] = {
        "ConstantOfShape": ([_node("ConstantOfShape", ["s"])], {"s": value(_VAST)}),
        "ConstantOfShape, overflowing": (
            [_node("ConstantOfShape", ["s"])],
            {"s": value(1 << 32, 1 << 32)},
        ),
        "ConstantOfShape below zero": ([_node("ConstantOfShape", ["s"])], {"s": value(-4)}),
        "Range": (
            [_node("Range", ["a", "b", "c"])],
            {"a": np.array(0), "b": np.array(_VAST), "c": np.array(1)},
        ),
        "Range by zero": (
            [_node("Range", ["a", "b", "c"])],
            {"a": np.array(0), "b": np.array(9), "c": np.array(0)},
        ),
        "Expand": ([_node("Expand", ["k", "s"])], {"k": value(1), "s": value(_VAST)}),
        "Expand of the input": ([_node("Expand", ["x", "s"])], {"s": value(1 << 20, 4, 8, 8)}),
        "Tile": ([_node("Tile", ["x", "s"])], {"s": value(1 << 20, 1 << 20, 1, 1)}),
        "Tile below zero": ([_node("Tile", ["x", "s"])], {"s": value(-1, 1, 1, 1)}),
        "Pad": ([_node("Pad", ["x", "s"])], {"s": value(0, 0, 0, 0, 0, 0, 0, _VAST)}),
        "Pad that takes all": ([_node("Pad", ["x", "s"])], {"s": value(0, 0, -9, 0, 0, 0, 0, 0)}),
        "OneHot": (
            [_node("OneHot", ["i", "d", "v"])],
            {"i": value(1), "d": np.array(_VAST), "v": np.array([0, 1], "float32")},
        ),
        "Resize": (
            [_node("Resize", ["x", "", "f"])],
            {"f": np.array([1, 1, 1e6, 1e6], "float32")},
        ),
        "Resize by NaN": (
            [_node("Resize", ["x", "", "f"])],
            {"f": np.array([1, 1, np.nan, np.inf], "float32")},
        ),
        "EyeLike of much": ([_node("EyeLike", ["k"])], {"k": np.zeros((1, 1), "float32")}),
        "a Reshape to much": ([_node("Reshape", ["x", "s"])], {"s": value(_VAST, -1)}),
        "a Reshape with two -1": ([_node("Reshape", ["x", "s"])], {"s": value(-1, -1)}),
        "a Slice by 0": (
            [_node("Slice", ["x", "a", "b", "c", "d"])],
            {"a": value(0), "b": value(9), "c": value(2), "d": value(0)},
        ),
        "a Slice from -2^63": (
            [_node("Slice", ["x", "a", "b"])],
            {"a": value(-(1 << 63)), "b": value((1 << 63) - 1)},
        ),
        "a Gather beyond": ([_node("Gather", ["x", "i"])], {"i": value(10**18)}),
        "a Split of nothing": (
            [helper.make_node("Split", ["x", "s"], ["y", "z"], axis=1)],
            {"s": value(0, 4)},
        ),
        "a Split of too much": (
            [helper.make_node("Split", ["x", "s"], ["y", "z"], axis=1)],
            {"s": value(_VAST, 4)},
        ),
        "TopK of 2^40": ([helper.make_node("TopK", ["x", "s"], ["y", "z"])], {"s": value(_VAST)}),
        "constants that grow 2^60": (_doubling(60), {"k0": np.ones(1, "float32")}),
    }
    for name, (nodes, constants) in made.items():
        yield _case("blow-ups of graphs", name, _model(nodes, constants=constants))
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["d"]),
            helper.make_node("Add", ["v", "v"], ["w"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, _X["x"]),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, _X["x"]),
        ],
    )
    for count in (10**9, (1 << 63) - 1, -1, 0):
        loop = _node("Loop", ["n", "go", "x"], body=body)
        constants = {"n": np.array(count), "go": np.array(True)}
        model = _model([loop], constants=constants)
        yield _case("blow-ups of graphs", f"a Loop of {count}", model)


def _doubling(times: int) -> list[onnx.NodeProto]:
    """Constants, each twice as long as the one before."""
    nodes = [
        helper.make_node("Concat", [f"k{i}", f"k{i}"], [f"k{i + 1}"], axis=0) for i in range(times)
    ]
    return [*nodes, _node("Add", ["x", f"k{times}"])]


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
        model = _model([_node("Conv", ["x", "w"], **attributes)], constants=weights)
        yield _case("attributes of nodes", name, model)
    for name, node in {
        "axis 10^18": _node("Softmax", ["x"], axis=10**18),
        "axis -2^63": _node("Softmax", ["x"], axis=-(1 << 63)),
        "axis as a text": _node("Softmax", ["x"], axis="1"),
        "perm twice the same": _node("Transpose", ["x"], perm=[0, 0, 1, 2]),
        "perm beyond": _node("Transpose", ["x"], perm=[0, 1, 2, 10**18]),
        "perm of 10,000": _node("Transpose", ["x"], perm=list(range(10_000))),
        "Cast to 99": _node("Cast", ["x"], to=99),
        "Cast to nothing": _node("Cast", ["x"]),
        "LRN of 2^40": _node("LRN", ["x"], size=_VAST),
        "LRN of 0": _node("LRN", ["x"], size=0),
        "blocksize 0": _node("DepthToSpace", ["x"], blocksize=0),
        "blocksize 2^40": _node("SpaceToDepth", ["x"], blocksize=_VAST),
        "a pool of 0": _node("MaxPool", ["x"], kernel_shape=[0, 0]),
        "a pool of 2^40": _node("AveragePool", ["x"], kernel_shape=[_VAST, _VAST]),
        "Einsum of all letters": _node("Einsum", ["x"], equation="".join(map(chr, range(32, 999)))),
        "Einsum of dots": _node("Einsum", ["x"], equation="." * 9999),
        "no inputs": _node("Relu", []),
        "300 inputs": _node("Sum", ["x"] * 300),
        "an operator of escapes": _node("\x1b]0;x\x07", ["x"]),
        "an operator of 100,000 letters": _node("R" * 100_000, ["x"]),
        "an attribute twice": _twice(_node("Softmax", ["x"], axis=1)),
        "an attribute of no type": _of_type(_node("Softmax", ["x"], axis=1), 99),
    }.items():
        yield _case("attributes of nodes", name, _model([node]))


def _twice(node: onnx.NodeProto) -> onnx.NodeProto:
    node.attribute.append(node.attribute[0])
    return node


def _of_type(node: onnx.NodeProto, kind: int) -> onnx.NodeProto:
    """By its wire form: the package would refuse to."""
    node.attribute[0].ClearField("type")
    node.attribute[0].MergeFromString(b"\xa0\x01" + bytes([kind]))
    return node


def _files() -> Iterator[Case]:
    relu = helper.make_node("Relu", ["x"], ["y"])

    def edited(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
        model = _model([relu])
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

    def weight(**values: Any) -> Callable[[onnx.ModelProto], None]:
        def change(model: onnx.ModelProto) -> None:
            tensor = TensorProto(name="w", data_type=1, dims=[4], raw_data=bytes(16))
            for key, value in values.items():
                if isinstance(value, list):
                    tensor.ClearField(key)  # type: ignore[arg-type]
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
        yield _case("facts of model files", name, edited(change))


def _weights() -> Iterator[Case]:
    def model(entries: dict[str, str], count: int = 1, extent: int = 4) -> bytes:
        names = [f"w{i}" for i in range(count)]
        proto = graph([helper.make_node("Sum", ["x", *names], ["y"])], {"x": (extent,)}, ["y"])
        for name in names:
            tensor = TensorProto(name=name, data_type=1, dims=(extent,))
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
            proto.graph.initializer.append(tensor)
        return proto.SerializeToString()

    def beside(entries: dict[str, str], make: Make, **more: int) -> Make:
        def both(folder: Path) -> None:
            (folder / "m.onnx").write_bytes(model(entries, **more))
            make(folder)

        return both

    def zeros(name: str, count: int = 16) -> Make:
        return lambda folder: (folder / name).write_bytes(bytes(count))

    def hard(folder: Path) -> None:
        (folder / "w.bin").hardlink_to(folder / "m.onnx")

    def many(folder: Path) -> None:
        with (folder / "w.bin").open("wb") as file:
            for _ in range(32):
                file.write(b"\1" * (1 << 20))

    for name, make in {
        "below a link to the root": beside(
            {"location": "d/etc/hostname"}, lambda f: (f / "d").symlink_to("/")
        ),
        "below a link to here, 200 times": beside(
            {"location": "d/" * 200 + "w.bin"},
            lambda f: ((f / "d").symlink_to("."), zeros("w.bin")(f)),
        ),
        "below a folder that links to itself": beside(
            {"location": "d/w.bin"}, lambda f: (f / "d").symlink_to("d")
        ),
        "the model by another name": beside({"location": "w.bin"}, hard),
        "a checksum of escapes": beside(
            {"location": "w.bin", "checksum": "\x1b[2J"}, zeros("w.bin")
        ),
        "an unknown key": beside({"location": "w.bin", "\x1b[2J": "x"}, zeros("w.bin")),
        "no place": beside({"offset": "0"}, zeros("w.bin")),
        "an address": beside({"location": "file:///etc/passwd"}, zeros("w.bin")),
        "a place of Windows": beside({"location": "..\\w.bin"}, zeros("w.bin")),
        "a place of escapes": beside({"location": "\x1b]0;x\x07"}, zeros("w.bin")),
        "8 GiB by the same 32 MiB": beside({"location": "w.bin"}, many, count=256, extent=8 << 20),
        "30,000 files that are not there": beside({"location": "no.bin"}, zeros("x"), count=30_000),
    }.items():
        yield Case(
            family="weights elsewhere",
            name=name,
            make=make,
            command=("check", "m.onnx"),
            codes=_OK,
        )


def _shared_tables() -> Iterator[Case]:
    """TFLite files whose vectors name one table many times: small files, vast models."""
    for name, counts in {
        "a graph a million times": (1_000_000, 1),
        "a graph 9 times with 100,000 operators": (9, 100_000),
        "an operator a million times": (1, 1_000_000),
    }.items():
        yield Case(
            family="tables that are shared",
            name=name,
            make=put("m.tflite", _shared(*counts)),
            command=("check", "m.tflite"),
            codes=_OK,
        )
    for name, stored in {
        "2^40 lists": _doubled(40),
        "lists within lists": _doubled(15),
        "lengths beyond": b"\xff" * 64,
        "300,000 bytes": bytes(300_000),
    }.items():
        yield Case(
            family="tables that are shared",
            name=f"options of {name}",
            make=_with_options(stored),
            command=("check", "m.tflite"),
            codes=_OK,
        )


def _doubled(levels: int) -> bytes:
    """Options in flexbuffers: lists of two, both of them the same list of the level below."""
    out, at = bytearray(b"\0"), 1
    for _ in range(levels):
        out += b"\2"
        first = len(out)
        out += bytes([first - at, first + 1 - at, _LIST, _LIST])
        at = first
    return bytes(out + bytes([len(out) - at, _LIST, 1]))


def _with_options(stored: bytes) -> Make:
    """A TFLite file whose only operator is a custom one with these options."""

    def change(model: Any) -> None:
        code = schema.OperatorCodeT()
        code.builtinCode, code.customCode = 32, b"TFLite_Detection_PostProcess"
        model.operatorCodes = [code]
        operator = model.subgraphs[0].operators[0]
        operator.opcodeIndex, operator.customOptions = 0, np.frombuffer(stored, "uint8")
        operator.builtinOptionsType, operator.builtinOptions = 0, None
        model.subgraphs[0].operators = [operator]
        model.subgraphs[0].outputs = operator.outputs

    return edited_tflite(change)


def _shared(graphs: int, operators: int) -> bytes:
    """A model by hand: offsets are from where they stand, and may all lead to one place."""

    def table(fields: dict[int, int], size: int) -> tuple[bytes, dict[int, int]]:
        """A vtable and a table of offsets to fill in; where each field stands."""
        last = max(fields, default=-1)
        places = {field: 4 + 4 * n for n, field in enumerate(fields)}
        entries = [places.get(field, 0) for field in range(last + 1)]
        vtable = struct.pack(f"<HH{len(entries)}H", 4 + 2 * len(entries), 4 + 4 * size, *entries)
        vtable += bytes(-len(vtable) % 4)
        return vtable, places

    out = bytearray(b"\0\0\0\0TFL3")

    def put_table(fields: list[int]) -> tuple[int, dict[int, int]]:
        vtable, places = table(dict.fromkeys(fields, 0), len(fields))
        start = len(out)
        out.extend(vtable)
        at = len(out)
        out.extend(struct.pack("<i", at - start) + bytes(4 * len(fields)))
        return at, {field: at + place for field, place in places.items()}

    # Offsets of tables in vectors are unsigned: the tables lie behind their vectors.
    root, fields = put_table([0, 1, 2, 4])
    struct.pack_into("<I", out, 0, root)
    struct.pack_into("<I", out, fields[0], 3)
    vectors: list[tuple[int, int]] = []

    def later(at: int, count: int) -> int:
        struct.pack_into("<I", out, at, len(out) - at)
        out.extend(struct.pack("<I", count))
        vectors.append((len(out), count))
        out.extend(bytes(4 * count))
        return len(vectors) - 1

    def fill(index: int, target: int) -> None:
        first, count = vectors[index]
        numbers = np.uint32(target) - (np.uint32(first) + 4 * np.arange(count, dtype="uint32"))
        out[first : first + 4 * count] = numbers.astype("<u4").tobytes()

    codes, subgraphs, buffers = (later(fields[f], n) for f, n in ((1, 1), (2, graphs), (4, 1)))
    code, _ = put_table([])
    fill(codes, code)
    subgraph, inner = put_table([3])
    fill(subgraphs, subgraph)
    held = later(inner[3], operators)
    operator, _ = put_table([])
    fill(held, operator)
    buffer, _ = put_table([])
    fill(buffers, buffer)
    return bytes(out)
