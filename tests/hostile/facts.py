"""Facts of model files that contradict each other, or say what nothing can be."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.hostile.case import Case
from tests.hostile.graph_case import make_case, make_model
from tests.hostile.models import NAMES


def cases() -> Iterator[Case]:
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
