"""Convolutions that read the model's own image: where they do, and where a copy stays."""

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Graph
from tests.ir.planning import plan
from tests.models import graph


def _stem(
    *before: onnx.NodeProto,
    source: str = "x",
    shape: tuple[int, ...] = (1, 3, 64, 64),
    kernel: int = 3,
    channels: int = 16,
) -> onnx.ModelProto:
    weight = np.ones((channels, 3, kernel, kernel), np.float32)
    conv = helper.make_node("Conv", [source, "w"], ["c"], pads=[kernel // 2] * 4, strides=[2, 2])
    nodes = [*before, conv, helper.make_node("Relu", ["c"], ["y"])]
    return graph(nodes, {"x": list(shape)}, ["y"], {"w": weight}, opset=18)


def _planned(model: onnx.ModelProto, **more: str) -> tuple[Graph, State]:
    state = plan(model, until="read_images", **more)
    assert state.graph is not None
    return state.graph, state


@pytest.mark.parametrize("preset", ["mixed", "fp16", "fp32", "buffer"])
def test_the_first_convolution_reads_the_image(preset):
    found, state = _planned(_stem(), preset=preset)
    (conv,) = found.nodes
    assert (conv.op, conv.inputs[0]) == ("conv2d", "x")
    assert any("reads x as it is given" in d.taken and "estimated" in d.reason for d in state.log)


def test_a_transpose_before_it_is_part_of_the_read():
    transpose = helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])
    found, _ = _planned(_stem(transpose, source="t", shape=(1, 64, 64, 3)))
    (conv,) = found.nodes
    assert conv.inputs[0] == "x"


def test_a_transpose_of_rows_and_columns_is_not():
    transpose = helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2])
    found, _ = _planned(_stem(transpose, source="t"))
    (conv,) = [n for n in found.nodes if n.op == "conv2d"]
    assert conv.inputs[0] != "x"


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 1, 3, 3)])
def test_a_diagonal_is_no_image(shape):
    """Two axes of what it reads are one axis of the result."""
    diagonal = helper.make_node("Einsum", ["x"], ["y"], equation="...ii->...i")
    found, _ = _planned(graph([diagonal], {"x": list(shape)}, ["y"], opset=18))
    assert [n.inputs for n in found.nodes] == [("x",)]


def test_another_reader_needs_the_copy():
    model = _stem()
    model.graph.node.append(helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2]))
    model.graph.output.append(onnx.ValueInfoProto(name="p"))
    found, state = _planned(model)
    assert any(n.op == "map" for n in found.nodes)
    assert any("reads it too" in d.reason for d in state.log)


def test_wide_kernels_are_no_rows_in_registers():
    found, state = _planned(_stem(kernel=9))
    assert any(n.op == "map" for n in found.nodes)
    assert any("a row of 9 taps" in d.reason for d in state.log)


def test_the_cost_model_decides():
    """Seven rows of seven taps read more than a copy costs on the Adreno 660."""
    found, state = _planned(
        _stem(kernel=7, shape=(1, 3, 224, 224), channels=64), device="adreno:a660", preset="fp16"
    )
    assert any(n.op == "map" for n in found.nodes)
    assert any("with a copy in texels" in d.reason for d in state.log)


def test_what_normalises_the_image_goes_along():
    model = _stem(
        helper.make_node("Mul", ["x", "scale"], ["s"]),
        helper.make_node("Add", ["s", "shift"], ["t"]),
        source="t",
    )
    for name in ("scale", "shift"):
        value = np.full((1, 3, 1, 1), 2.0, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    found, _ = _planned(model)
    (conv,) = found.nodes
    assert conv.inputs[0] == "x"
    assert conv.prologue is not None


def test_an_image_that_depends_on_another_input_is_computed_first():
    model = _stem(helper.make_node("Mul", ["x", "other"], ["t"]), source="t")
    shape = onnx.helper.make_tensor_value_info("other", onnx.TensorProto.FLOAT, [1, 3, 1, 1])
    model.graph.input.append(shape)
    found, _ = _planned(model)
    assert [n.op for n in found.nodes][-1] == "conv2d"
    assert "x" not in found.nodes[-1].inputs


def test_an_image_that_is_added_to_the_result_is_copied():
    """The epilogue reads it too."""
    weight = np.ones((3, 3, 3, 3), np.float32)
    nodes = "c = Conv <pads = [1, 1, 1, 1]>(x, w) y = Add(c, x)"
    found, state = _planned(graph(nodes, {"x": [1, 3, 64, 64]}, ["y"], {"w": weight}, opset=18))
    assert [n.op for n in found.nodes] == ["map", "conv2d"]
    assert any("reads it too" in d.reason for d in state.log)


@pytest.mark.parametrize(("channels", "size"), [(1, 16), (3, 1)])
def test_kernels_of_other_families_read_no_image(channels, size):
    """One channel is depthwise, one pixel a vector: their kernels know of nothing before them."""
    nodes = "s = Sigmoid(x) y = Conv(s, w)"
    weight = np.ones((channels, channels, 1, 1), np.float32)
    model = graph(nodes, {"x": [1, channels, size, size]}, ["y"], {"w": weight}, opset=18)
    found, _ = _planned(model)
    assert [n.op for n in found.nodes] == ["map", "conv2d"]
