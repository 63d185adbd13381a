"""The texture pipeline's passes: what they leave, and what they say."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

from adrenoc.compile.steps import context_of
from adrenoc.ir.layout import Memory
from adrenoc.passes.place.copies import expose_layers
from tests.ir.planning import plan
from tests.models import graph


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def _conv_block() -> onnx.ModelProto:
    """conv -> relu -> conv -> add(residual) -> sigmoid."""
    return graph(
        "c0 = Conv <pads = [1, 1, 1, 1]>(x, w0, b0) r0 = Relu(c0) "
        "c1 = Conv <pads = [1, 1, 1, 1]>(r0, w1) s = Add(c1, r0) y = Sigmoid(s)",
        {"x": [1, 6, 8, 8]},
        ["y"],
        {"w0": _weights(6, 6, 3, 3), "b0": _weights(6), "w1": _weights(6, 6, 3, 3)},
    )


def test_epilogues_move_into_the_convolution(golden):
    state = plan(_conv_block(), until="fuse")
    assert [n.op for n in state.graph.nodes] == ["conv2d", "conv2d"]
    assert {"add", "sigmoid"} <= set(state.graph.nodes[1].operators)
    golden(state.graph.text())


def test_a_residual_that_others_read_stays_a_tensor():
    first, second = plan(_conv_block(), until="fuse").graph.nodes
    assert first.output in second.inputs


def test_an_activation_that_reads_its_operand_twice_is_an_epilogue():
    silu = graph(
        "c = Conv <pads = [1, 1, 1, 1]>(x, w) s = Sigmoid(c) m = Mul(c, s) "
        "d = Conv <pads = [1, 1, 1, 1]>(m, w) t = Tanh(d) y = Mul(d, t) z = Exp(t)",
        {"x": [1, 6, 8, 8]},
        ["y", "z"],
        {"w": _weights(6, 6, 3, 3)},
    )
    first, second, *maps = plan(silu, until="fuse").graph.nodes
    assert first.operators == ("conv2d", "sigmoid", "multiply")
    assert second.operators == ("conv2d",), "d is read by y, and by t which z reads too"
    assert all(node.is_map for node in maps)


def test_movement_becomes_index_arithmetic():
    shuffle = graph(
        "a = Reshape(x, s0) b = Transpose <perm = [0, 2, 1, 3, 4]>(a) y = Reshape(b, s1)",
        {"x": [1, 8, 4, 4]},
        ["y"],
        {"s0": np.array([1, 2, 4, 4, 4]), "s1": np.array([1, 8, 4, 4])},
    )
    (node,) = plan(shuffle, until="fuse").graph.nodes
    assert node.operators == ("reshape", "permute_dims", "reshape")


def test_transposes_between_layouts_need_no_kernel():
    model = graph(
        "c = Conv(x, w) t = Transpose <perm = [0, 2, 3, 1]>(c) y = Softmax <axis = -1>(t)",
        {"x": [1, 4, 6, 6]},
        ["y"],
        {"w": _weights(8, 4, 1, 1)},
    )
    state = plan(model, until="elide_copies")
    assert not any("permute_dims" in n.operators for n in state.graph.nodes)
    assert state.graph.aliases


def test_flattening_a_pooled_tensor_needs_no_kernel():
    model = graph(
        "p = GlobalAveragePool(x) f = Flatten(p) y = Gemm <transB = 1>(f, w)",
        {"x": [1, 12, 5, 5]},
        ["y"],
        {"w": _weights(7, 12)},
    )
    state = plan(model, until="elide_copies")
    assert not any("reshape" in n.operators for n in state.graph.nodes)


def test_activations_are_textures(golden):
    state = plan(_conv_block(), until="plan_memory")
    placed = {
        name: p.memory
        for name, p in state.program.graph.placements.items()
        if state.program.graph.tensors[name].value is None
    }
    inner = set(placed) - {"x", *state.program.graph.outputs}
    assert {placed[name] for name in inner} == {Memory.TEXTURE}
    # Weights that work-groups bring to local memory come from buffers.
    kinds = {p.spec.memory for p in state.program.params.values()}
    assert Memory.TEXTURE in kinds
    assert kinds <= {Memory.TEXTURE, Memory.PLAIN}
    golden(state.program.graph.text())


def test_a_tensor_beyond_the_layers_is_folded_into_rows():
    state = plan(_conv_block(), until="assign_memory", image_max_array_layers=1)
    taken = [d for d in state.log if "4c/rows" in d.taken]
    assert taken
    assert "beyond" in taken[0].reason


def test_a_tensor_beyond_every_image_goes_to_a_buffer():
    state = plan(
        _conv_block(), until="assign_memory", image_max_array_layers=1, image2d_max_height_texels=2
    )
    taken = [d for d in state.log if d.taken.startswith("buffer")]
    assert taken
    assert "as rows" in taken[0].reason
    assert Memory.BLOCKED in {p.memory for p in state.graph.placements.values()}


def test_the_buffer_preset_uses_no_texture():
    state = plan(_conv_block(), until="lower", preset="buffer")
    scopes = {scope for k in state.program.kernels.values() for scope in k.scopes}
    assert scopes == {"global"}


def test_only_the_input_is_copied_and_the_log_says_so():
    state = plan(_conv_block(), until="assign_memory")
    copies = [d for d in state.log if d.taken.startswith("copied")]
    assert [d.subject for d in copies] == ["x_NCHW"]
    assert "cannot read x" in copies[0].reason


def _convolutions(number: int) -> onnx.ModelProto:
    nodes = " ".join(f"t{i + 1} = Conv(t{i}, w{i})" for i in range(number))
    constants = {f"w{i}": _weights(8, 8, 1, 1) for i in range(number)}
    return graph(nodes, {"t0": [1, 8, 6, 6]}, [f"t{number}"], constants)


def test_storage_is_reused_between_tensors_of_one_extent():
    state = plan(_convolutions(6), until="plan_memory")
    assert len(state.storage.slot_of) == 6
    assert len(state.storage.plan.slots) == 2


def test_equal_kernels_are_kept_once():
    state = plan(_convolutions(3), until="lower")
    assert len(state.program.steps) == 4  # one copy in, three convolutions
    assert len(state.program.kernels) == 3  # the last convolution writes row-major


def test_layers_kept_are_outputs_under_the_models_names():
    state = plan(_conv_block(), until="fuse")
    assert state.imported is not None
    context = context_of(state)
    kept = expose_layers(state.graph, context)
    assert {context.names[name] for name in kept.outputs} | {"y"} == {"r0", "y"}
    assert set(kept.outputs) >= set(state.graph.outputs)
    assert replace(kept, outputs=state.graph.outputs).nodes == state.graph.nodes


@pytest.mark.parametrize(
    ("attrs", "split"),
    [
        ("pads = [1, 1, 1, 1]", True),
        ("pads = [1, 1, 1, 1], strides = [2, 2]", False),
        ("dilations = [2, 2]", False),
        ("group = 2", False),
    ],
)
def test_winograd_where_it_is_possible_and_wins(attrs, split):
    channels = 64 if "group" in attrs else 128
    nodes = f"r = Relu(x) c = Conv <{attrs}>(r, w) y = Relu(c)"
    model = graph(nodes, {"x": [1, 128, 28, 28]}, ["y"], {"w": _weights(128, channels, 3, 3)})
    state = plan(model, until="split_winograd")
    ops = [node.op for node in state.graph.nodes if node.op.startswith(("conv", "winograd"))]
    if split:
        assert ops == ["winograd_conv"]
        assert any(d.taken.startswith("Winograd F(2 x 2") for d in state.log)
    else:
        assert ops == ["conv2d"]


def test_winograd_in_one_kernel_where_planes_cost_more_than_they_save():
    """Convolutions of ResNet's third stage on a GPU of many threads."""
    nodes = "r = Relu(x) c = Conv <pads = [1, 1, 1, 1]>(r, w) y = Relu(c)"
    model = graph(nodes, {"x": [1, 256, 14, 14]}, ["y"], {"w": _weights(256, 256, 3, 3)})
    state = plan(model, until="lower", device="adreno:750", preset="fp16")
    assert [n.op for n in state.graph.nodes if not n.is_map] == ["winograd_conv"]
    assert [d.taken for d in state.log if d.taken.startswith("Winograd")] == [
        "Winograd F(2 x 2, 3 x 3) in one kernel"
    ]


@pytest.mark.parametrize(("pixels", "split"), [(28, False), (56, True)])
def test_winograd_in_three_kernels_where_phones_gain_by_it(pixels, split):
    """Estimated as the faster way for both; but LiteRT found that small images lose by it."""
    nodes = "r = Relu(x) c = Conv <pads = [1, 1, 1, 1]>(r, w) y = Relu(c)"
    shape = [1, 128, pixels, pixels]
    model = graph(nodes, {"x": shape}, ["y"], {"w": _weights(128, 128, 3, 3)})
    state = plan(model, until="split_winograd", preset="fp32")
    found = [n.op for n in state.graph.nodes if n.op.startswith(("conv", "winograd"))]
    three = ["winograd_tiles", "winograd_multiply", "winograd_pixels"]
    assert found == (three if split else ["winograd_conv"])


def test_an_image_is_kept_as_it_was_given():
    """Its rounding to half would be in every layer; a tensor of many channels costs too much."""

    def dtype_of_copy(channels: int, preset: str) -> str:
        nodes = "y = Conv(x, w)"
        constants = {"w": _weights(8, channels, 3, 3)}
        model = graph(nodes, {"x": [1, channels, 6, 6]}, ["y"], constants)
        state = plan(model, until="assign_memory", preset=preset)
        kept = [d for d in state.log if d.subject == "x_NCHW" and d.taken == "float32"]
        dtype = state.graph.placements["x_NCHW"].dtype
        assert bool(kept) == (dtype == "float32" and preset != "fp32")
        return dtype

    for preset in ("mixed", "buffer", "fp32"):
        assert dtype_of_copy(3, preset) == "float32"
    assert dtype_of_copy(5, "mixed") == dtype_of_copy(3, "fp16") == "float16"


@pytest.mark.parametrize(("depth", "preset"), [(44, "fp16"), (44, "mixed"), (8, "fp16")])
def test_deep_networks_add_up_in_float_at_first(depth, preset):
    """The first layers' errors are handed on by all others; a network of few has none to spare."""
    nodes = "c0 = Conv <pads = [1, 1, 1, 1], strides = [2, 2]>(x, image) "
    nodes += " ".join(f"c{i} = Conv(c{i - 1}, w)" for i in range(1, depth))
    # Of the size that leaves data as large as it is: else much stays in float32 for its range.
    image, weights = _weights(128, 3, 3, 3) / 27**0.5, _weights(128, 128, 1, 1) / 128**0.5
    constants = {"image": image.astype(np.float32), "w": weights.astype(np.float32)}
    model = graph(nodes, {"x": [1, 3, 112, 112]}, [f"c{depth - 1}"], constants)
    state = plan(model, until="lower", preset=preset)
    kept = [d for d in state.log if d.taken == "float32 arithmetic"]
    if depth == 8 or preset == "mixed":
        assert not kept and not any(p.wide_sums for p in state.graph.precisions.values())
        return
    assert len(kept) == 1 and "44" in kept[0].reason
    made = [node.output for node in state.graph.nodes if node.op == "conv2d"]
    wide = {name for name, asked in state.graph.precisions.items() if asked.wide_sums}
    assert 1 <= len(wide) < depth // 4
    assert wide == set(made[: len(wide)])
    assert state.graph.placements["x_NCHW"].dtype == "float32"
    first = state.program.kernels[state.program.steps[1].kernel]
    assert "float16x" not in str(first.func.body), "its sums are in half"
    last = state.program.kernels[state.program.steps[-1].kernel]
    assert "float16x" in str(last.func.body)
