"""The model's own image and its rows: who reads it, and where a copy stays."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx
from tvm_ffi.structural import structural_walk

from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Graph
from adrenoc.ir.layout import Extents, Layout, Memory, OperandSpec, rows_along_w
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, Load, LoadReach, RowPlan
from tests.ir.planning import plan
from tests.models import graph, parse_nodes


def _stem(
    before: str = "",
    shape: tuple[int, ...] = (1, 3, 64, 64),
    kernel: int = 3,
    channels: int = 16,
) -> onnx.ModelProto:
    """A convolution of the image, or of what `before` makes of it as `t`."""
    weight = np.ones((channels, 3, kernel, kernel), np.float32)
    source, pads = "t" if before else "x", [kernel // 2] * 4
    nodes = f"{before} c = Conv <pads = {pads}, strides = [2, 2]>({source}, w) y = Relu(c)"
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
    found, _ = _planned(_stem("t = Transpose <perm = [0, 3, 1, 2]>(x)", shape=(1, 64, 64, 3)))
    (conv,) = found.nodes
    assert conv.inputs[0] == "x"


def test_a_transpose_of_rows_and_columns_is_not():
    found, _ = _planned(_stem("t = Transpose <perm = [0, 1, 3, 2]>(x)"))
    (conv,) = [n for n in found.nodes if n.op == "conv2d"]
    assert conv.inputs[0] != "x"


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 1, 3, 3)])
def test_a_diagonal_is_no_image(shape):
    """Two axes of what it reads are one axis of the result."""
    nodes = 'y = Einsum <equation = "...ii->...i">(x)'
    found, _ = _planned(graph(nodes, {"x": list(shape)}, ["y"], opset=18))
    assert [n.inputs for n in found.nodes] == [("x",)]


def test_another_reader_needs_the_copy():
    model = _stem()
    model.graph.node.extend(parse_nodes("p = MaxPool <kernel_shape = [2, 2]>(x)"))
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
    model = _stem("s = Mul(x, scale) t = Add(s, shift)")
    for name in ("scale", "shift"):
        value = np.full((1, 3, 1, 1), 2.0, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    found, _ = _planned(model)
    (conv,) = found.nodes
    assert conv.inputs[0] == "x"
    assert conv.prologue is not None


def test_an_image_that_depends_on_another_input_is_computed_first():
    model = _stem("t = Mul(x, other)")
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


_EXTENT = st.integers(1, 40)


def _image(layout: str, channels: int, width: int) -> OperandSpec:
    extents = {"N": 2, "C": channels, "H": 3, "W": width}
    return OperandSpec(
        shape=tuple(extents[role] for role in layout),
        dtype="float32",
        memory=Memory.PLAIN,
        layout=Layout(layout),
    )


def _given(plan: RowPlan, load: Load, first: int) -> dict[int, int | None]:
    """What the thread whose own pixels begin at `first` gets: places in the row, None for zeros."""
    at = first + load.at
    start = {
        LoadReach.WITHIN: at,
        LoadReach.BEFORE: max(at, 0),
        LoadReach.BEHIND: min(at, plan.last - plan.step + load.at),
        LoadReach.EITHER: min(max(at, 0), plan.width - 1),
    }[load.reach]
    assert 0 <= start <= plan.width - load.count
    inside = load.reach is LoadReach.WITHIN or 0 <= at < plan.width
    return {load.at + i: start + i if inside else None for i in range(load.count)}


@given(
    layout=st.sampled_from(["NCHW", "NHWC", "CHW", "HWC"]),
    channels=st.integers(1, 4),
    width=_EXTENT,
    taps=st.integers(1, 7),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 6),
    behind=st.integers(0, 6),
    pixels=st.integers(1, 7),
)
def test_every_pixel_is_given(
    layout, channels, width, taps, stride, dilation, padding, behind, pixels
):
    spec = _image(layout, channels, width)
    columns = (width + padding + behind - ((taps - 1) * dilation + 1)) // stride + 1
    if columns < 1:
        return
    geometry = ConvGeometry(
        kernel=(1, taps), strides=(1, stride), dilation=(1, dilation), padding=(0, padding)
    )
    plan = RowPlan.from_image(spec, geometry, Extents(2, 8, 3, columns), pixels)
    assert plan.count >= len(list(plan.loads))
    for first in range(0, plan.last + 1, plan.step):
        seen: dict[int, int | None] = {}
        for load in plan.loads:
            seen.update(_given(plan, load, first))
        for column in plan.columns:
            for i in range(plan.pitch):
                at = (column - padding) * plan.pitch + i
                place = first + at
                assert seen[at] == (place if 0 <= place < plan.width else None)


def test_aligned_rows_take_a_load_for_four_numbers():
    geometry = ConvGeometry(kernel=(3, 3), strides=(2, 2), padding=(1, 1))
    plan = RowPlan.from_image(_image("NCHW", 3, 224), geometry, Extents(1, 32, 112, 112), 4)
    reaches = [LoadReach.EITHER, LoadReach.WITHIN, LoadReach.WITHIN]
    assert [load.reach for load in plan.loads] == reaches
    assert (plan.aligned, plan.count) == (True, 9)


def test_rows_of_odd_widths_are_not_aligned():
    geometry = ConvGeometry(kernel=(3, 3), padding=(1, 1))
    plan = RowPlan.from_image(_image("NCHW", 3, 223), geometry, Extents(1, 32, 223, 223), 4)
    assert not plan.aligned


def test_other_orders_have_no_plan():
    geometry = ConvGeometry(kernel=(3, 3), padding=(1, 1))
    out = Extents(2, 8, 3, 8)
    assert RowPlan.from_image(_image("NCWH", 3, 8), geometry, out, 1) is None
    assert RowPlan.from_image(_image("NCHW", 5, 8), geometry, out, 1) is None


def test_places_take_no_conditions():
    widths = np.array([0, 0, 2, 0, 0, 0, 3, 0])
    nodes = 'y = Pad <mode = "reflect">(x, widths)'
    model = graph(nodes, {"x": (1, 3, 4, 6)}, ["y"], {"widths": widths})
    (read,) = plan(model, until="read_graph").graph.nodes
    kinds: list[type] = []
    structural_walk(read.body.value, (tirx.Expr, lambda part: kinds.append(type(part))))
    assert {tirx.Min, tirx.Max} <= set(kinds)
    assert tirx.Select not in kinds
    rows, columns = read.body.value.indices[2:]
    assert str(columns) == str(read.body.axes[3])  # what is not padded is read as it is
    assert {tirx.Min, tirx.Max} <= {type(rows), type(rows.a)}


@pytest.mark.parametrize(
    "shape, roles",
    [
        ((197, 768), "WC"),
        ((197, 1, 768), "W1C"),
        ((1, 197, 768), "NWC"),
        ((4, 197, 768), "NWC"),
        ((4, 197, 1, 768), "HW1C"),
        ((197, 1, 1, 768), "W11C"),
        ((1, 1, 768), "NWC"),
    ],
)
def test_the_last_axis_of_several_runs_along_w(shape, roles):
    assert rows_along_w(shape) == Layout(roles)


def test_moving_the_tokens_first_takes_no_kernel():
    """A transpose of an axis of one moves no texel, for the product reads its tokens along W."""
    matrix = np.ones((32, 24), np.float32)
    nodes = (
        "t = Tanh(x) first = Transpose <perm = [1, 0, 2]>(t) product = MatMul(first, matrix) "
        "second = Transpose <perm = [1, 0, 2]>(product) y = Softmax <axis = -1>(second)"
    )
    made = graph(nodes, {"x": (1, 40, 32)}, ["y"], {"matrix": matrix}, opset=18)
    state = plan(made, until="elide_copies")
    assert [node.op for node in state.graph.nodes] == ["map", "matmul", "softmax"]
    product = next(node for node in state.graph.nodes if node.op == "matmul")
    assert state.graph.operand(product.output).extents.w == 40
