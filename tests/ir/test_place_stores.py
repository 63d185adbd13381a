"""Where kernels write: reshapes and slices in place, several images, outputs of the model."""

import re

import numpy as np
import onnx
import pytest

from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import Memory
from adrenoc.kernels.codegen.build import kernel_sources
from tests.host.test_ops_placed import Net as PlacedNet
from tests.ir.branches import Net
from tests.ir.planning import plan
from tests.models import graph


def _planned(net: PlacedNet, until: str = "explain_moves", **limits: int) -> tuple[Graph, State]:
    state = plan(net._model(), until=until, device="adreno:a660", **limits)
    assert state.graph is not None
    return state.graph, state


def _maps(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.is_map and n.output not in graph.outputs]


def _heads(net: PlacedNet, width: int) -> None:
    x = net.norm(net.input(1, 9, 16), 16)
    wide = net.turn(net.reshape(net.dense(x, 16, 6 * width), 1, 9, 3, 2, width), 2, 0, 3, 1, 4)
    parts = [net("Gather", wide, net.const(i, np.int64), axis=0) for i in range(3)]
    for part in parts:
        net.output(net.dense(part, width, 4))


def test_heads_are_written_by_the_product():
    net = PlacedNet()
    _heads(net, 8)
    before, _ = _planned(net, until="split_winograd")
    found, state = _planned(net)
    assert len(_maps(before)) == 3
    assert _maps(found) == []
    (maker,) = (n for n in found.nodes if len(n.stores) == 3)
    assert maker.op == "matmul"
    assert maker.output not in maker.writes
    assert all(s.placing is not None and s.placing.within for s in maker.stores)
    assert sum(d.taken.startswith("written by") for d in state.log) == 3


def test_what_breaks_texels_up_stays_a_kernel():
    net = PlacedNet()
    _heads(net, 6)
    found, state = _planned(net)
    assert len(_maps(found)) == 3
    assert any("put each texel together" in d.reason for d in state.log)


def test_a_kernel_writes_as_many_images_as_the_target_lets_it():
    net = PlacedNet()
    _heads(net, 8)
    found, state = _planned(net, max_write_image_args=2)
    assert len(_maps(found)) == 2
    assert any("would write more than 2 images" in d.reason for d in state.log)


def test_moves_of_moves_are_one():
    """Tokens of an image, of which some become an image again."""
    net = PlacedNet()
    x = net.conv(net.input(1, 8, 4, 6), 8, 8)
    tokens = net.turn(net.reshape(x, 1, 8, 24), 0, 2, 1)
    part = net("Slice", tokens, net.ints(6), net.ints(18), net.ints(1))
    image = net.reshape(net.turn(part, 0, 2, 1), 1, 8, 4, 3)
    net.output(net.dense(net.norm(tokens, 8), 8, 4), net.conv(image, 8, 4, kernel=3))
    found, _ = _planned(net)
    (maker,) = (n for n in found.nodes if n.stores)
    assert len(_maps(found)) == 1
    assert [found.tensors[s.tensor].shape for s in maker.stores] == [(1, 24, 8), (1, 8, 4, 3)]
    assert maker.output not in maker.writes


def test_what_is_also_read_in_place_is_written_there_too():
    net = PlacedNet()
    x = net.conv(net.input(1, 8, 4, 6), 8, 8)
    tokens = net.turn(net.reshape(x, 1, 8, 24), 0, 2, 1)
    net.output(net.dense(net.norm(tokens, 8), 8, 4), net.conv(x, 8, 4, kernel=3))
    found, _ = _planned(net)
    (maker,) = (n for n in found.nodes if n.stores)
    assert maker.writes[0] == maker.output
    assert len(maker.writes) == 2


def test_what_the_model_is_given_is_moved_by_a_kernel():
    net = PlacedNet()
    tokens = net.turn(net.reshape(net.input(1, 8, 4, 6), 1, 8, 24), 0, 2, 1)
    net.output(net.dense(net.norm(tokens, 8), 8, 4))
    found, state = _planned(net)
    assert not any(n.stores for n in found.nodes)
    assert len(_maps(found)) == 1
    assert any("not made by one kernel alone" in d.reason for d in state.log)


@pytest.mark.parametrize(("times", "left"), [(2, 0), (3, 1)])
def test_an_enlarged_image_is_written_a_few_times(times, left):
    net = PlacedNet()
    x = net("Relu", net.conv(net.input(1, 8, 4, 6), 8, 8))
    other = net("Relu", net.conv(net.input(1, 4, 4 * times, 6 * times), 4, 4))
    whole = net("Concat", net.doubled(x, times, times), other, axis=1)
    net.output(net.conv(net("Relu", net.conv(whole, 12, 8)), 8, 4, kernel=3))
    before, _ = _planned(net, until="split_winograd")
    found, _ = _planned(net)
    assert [len(_resizes(graph)) for graph in (before, found)] == [1, left]
    copies = [s.placing.copies for n in found.nodes for s in n.stores if s.placing is not None]
    assert copies == ([(2, 2)] if not left else [])


def test_parts_side_by_side_are_written_by_their_makers():
    """One tensor of two kernels, another of one kernel that writes two parts of it."""
    net = PlacedNet()
    left, right = (net.dense(net.norm(net.input(1, n, 8), 8), 8, 8) for n in (5, 4))
    whole = net("Concat", left, right, axis=1)
    net.output(net.dense(net.norm(net.roll(net.norm(whole, 8), 1, 2), 8), 8, 4))
    before, _ = _planned(net, until="split_winograd")
    found, state = _planned(net)
    assert [len(_maps(graph)) for graph in (before, found)] == [2, 0]
    kinds = [[s.tensor for s in n.stores] for n in found.nodes if n.stores]
    (first,), (second,), (once, again) = kinds
    assert first == second
    assert once == again
    assert any(" and " in d.taken for d in state.log if d.subject == first)


def test_a_part_that_no_kernel_makes_leaves_the_kernel():
    net = PlacedNet()
    tokens = net.dense(net.norm(net.input(1, 5, 8), 8), 8, 8)
    whole = net("Concat", net.weight(1, 1, 8), tokens, axis=1)
    net.output(net.dense(net.norm(whole, 8), 8, 4))
    found, _ = _planned(net)
    assert len(_maps(found)) == 1
    assert not any(n.stores for n in found.nodes)


@pytest.mark.parametrize(("start", "end", "step"), [(0, 9, 2), (8, -10, -1)])
def test_steps(start, end, step):
    """Every second row is no box of rows; rows that go back are."""
    net = PlacedNet()
    x = net.norm(net.dense(net.norm(net.input(1, 9, 8), 8), 8, 8), 8)
    how = [net.ints(start), net.ints(end), net.ints(1), net.ints(step)]
    net.output(net.dense(net.norm(net("Slice", x, *how), 8), 8, 4), net.dense(x, 8, 4))
    found, _ = _planned(net)
    assert len(_maps(found)) == (1 if step == 2 else 0)


def _resizes(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if "image.resize2d" in n.operators]


def test_a_window_partition_says_who_reads_it():
    """Windows of pixels become rows of a product of two activations."""

    constants = {"split": [1, 8, 2, 4, 2, 4], "rows": [4, 16, 8]}
    nodes = (
        "r = Relu(x) s = Reshape(r, split) t = Transpose <perm = [0, 2, 4, 3, 5, 1]>(s) "
        "w = Reshape(t, rows) back = Transpose <perm = [0, 2, 1]>(w) scores = MatMul(w, back) "
        "y = Softmax(scores)"
    )

    held = {name: np.array(value, "int64") for name, value in constants.items()}
    model = graph(nodes, {"x": (1, 8, 8, 8)}, ["y"], held)
    state = plan(model, until="explain_moves")
    moves = [n for n in state.graph.nodes if set(n.operators) <= {"reshape", "permute_dims"}]
    said = [d for d in state.log if d.taken == "a kernel that only moves elements"]
    assert moves and {n.name for n in moves} == {d.subject for d in said}
    assert all("matmul" in d.reason for d in said)


def _model(nodes: str, extent: int, weights: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    """Nodes from `r` to `c`, between others that no convolution computes."""
    rng = np.random.default_rng(2)
    channels = 24 if "taps" in weights else 64
    pool = "MaxPool <kernel_shape = [1, 1]>"
    nodes = f"r = {pool}(x) {nodes} y = {pool}(c)"
    constants = {n: rng.standard_normal(s).astype(np.float32) for n, s in weights.items()}
    return graph(nodes, {"x": [1, channels, extent, extent]}, ["y"], constants)


def _depthwise(source: str, result: str, channels: int = 24) -> str:
    return f"{result} = Conv <pads = [1, 1, 1, 1], group = {channels}>({source}, taps)"


MODELS = {
    "depthwise": _model(_depthwise("r", "c"), 16, {"taps": (24, 1, 3, 3)}),
    "separable": _model(
        f"{_depthwise('r', 'd')} c = Conv(d, w)",
        112,
        {"taps": (24, 1, 3, 3), "w": (16, 24, 1, 1)},
    ),
    "expansion": _model(
        f"d = Conv(r, w) {_depthwise('d', 'c', 96)}",
        56,
        {"taps": (96, 1, 3, 3), "w": (96, 24, 1, 1)},
    ),
    "winograd": _model("c = Conv <pads = [1, 1, 1, 1]>(r, w)", 56, {"w": (64, 64, 3, 3)}),
}
OPERATORS = {
    "depthwise": "conv2d",
    "separable": "separable_conv2d",
    "expansion": "expand_depthwise_conv2d",
    "winograd": "winograd_conv",
}


@pytest.mark.parametrize("family", MODELS)
def test_they_are_textures(family):
    state = plan(MODELS[family], until="build", device="adreno:660", preset="fp16")
    assert OPERATORS[family] in [node.op for node in state.graph.nodes]
    (text,) = [t for name, t in kernel_sources(state.executable).items() if "conv2d" in name]
    assert not re.search(r"__global (float|half|uint)", text), "no constant lies in a buffer"
    assert re.search(r"read_image[fh]\(in[12]_ptr", text)


@pytest.mark.parametrize("family", MODELS)
def test_each_that_no_image_holds_is_a_decision(family):
    """All images are narrower than rows of constants."""
    state = plan(
        MODELS[family],
        until="build",
        device="adreno:660",
        preset="fp16",
        image2d_max_width_texels=60,
    )
    flat = [p for p in state.program.params.values() if p.spec.memory is Memory.BLOCKED]
    said = [d for d in state.log if d.taken == "weights in a buffer"]
    assert said
    assert len(flat) == len(said)
    assert all(" x " in d.reason for d in said)


def _stored(model: onnx.ModelProto) -> tuple[Graph, State]:
    state = plan(model, until="place_stores")
    assert state.graph is not None
    return state.graph, state


def test_an_output_that_is_read_inside_is_written_beside_it():
    net = Net(4)
    made = net.conv("x", 8)
    found, state = _stored(net.model(made, net.conv(made, 4)))
    copy = found.outputs[0]
    assert [n.operators for n in found.nodes] == [("conv2d",), ("conv2d",)]
    assert found.producers[made].writes == (made, copy)
    assert any(d.subject == copy and "written by" in d.taken for d in state.log)


def test_an_output_that_is_read_inside_of_a_concatenation_is_written_beside_it():
    net = Net(4)
    parts = net.conv("x", 8), net.conv("x", 8)
    whole = net.concat(*parts)
    found, _ = _stored(net.model(parts[1], net.conv(whole, 4)))
    assert not any(n.is_map for n in found.nodes)
    assert found.producers[parts[1]].writes == (parts[1], found.outputs[0])
    assert found.place(parts[1]) == (whole, 2)


def test_what_several_kernels_make_or_none_is_copied():
    net = Net(4)
    whole = net.concat(net.conv("x", 8), net.conv("x", 8))
    found, _ = _stored(net.model(whole, net.conv(whole, 4)))
    assert found.producers[found.outputs[0]].is_map
    net = Net(4)
    found, _ = _stored(net.model("x", net.conv("x", 4)))
    assert found.producers[found.outputs[0]].is_map
