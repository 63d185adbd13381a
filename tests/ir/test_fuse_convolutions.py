"""Maps before convolutions, depthwise ones joined or with means: where, and where not."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

from adrenoc.base.decision import Decision
from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.expansion.expansion_rule import EXPANSION
from adrenoc.kernels.families.separable import SEPARABLE
from adrenoc.kernels.families.shared import machine
from adrenoc.kernels.families.shared.row_product import MEAN_PARTS
from adrenoc.passes.fuse import fuse_depthwise
from adrenoc.passes.lower.measure_work import multiply_adds
from tests.decided import estimate_pairs, set_joins, slow_host
from tests.ir.branches import Net
from tests.ir.planning import plan
from tests.models import graph, parse_nodes


def _fused(net: Net, *outputs: str, preset: str = "mixed") -> tuple[Graph, State]:
    state = plan(net.model(*outputs), until="fuse_prologues", preset=preset)
    assert state.graph is not None
    return state.graph, state


def _maps(found: Graph) -> list[tuple[str, ...]]:
    return [n.operators for n in found.nodes if n.is_map and n.operators != ("layout",)]


def _said(state: State, name: str) -> str:
    return " / ".join(d.reason for d in state.log if d.subject == name and "before" in d.taken)


@pytest.mark.parametrize("preset", ["mixed", "buffer"])
def test_a_norm_is_computed_where_it_is_read(preset):
    net = Net(4)
    x = net.conv("x", 8)
    y = net.conv(net.norm(x), 8)
    found, _ = _fused(net, y, net.op("Sigmoid", x), preset=preset)
    assert _maps(found) == [("sigmoid",)]
    node = found.producers[y]
    assert node.operators == ("multiply", "add", "nn.relu", "conv2d")
    assert node.inputs[0] == x
    assert set(node.prologue.sources.values()) == {x, *node.inputs[2:]}


def test_the_textures_of_a_region_gain_too():
    """They run where a device has no CLML."""
    net = Net(4)
    x = net.conv("x", 8)
    y = net.conv(net.norm(x), 8)
    state = plan(net.model(y, net.op("Sigmoid", x)), until="fuse_prologues", clml="all")
    (region,) = state.region_graphs.values()
    assert any(node.prologue is not None for node in region.nodes)


def test_each_of_several_readers_computes_it():
    net = Net(4)
    x = net.conv("x", 8)
    read = net.norm(x)
    one, other = net.conv(read, 8), net.conv(read, 4)
    found, _ = _fused(net, one, other, net.op("Sigmoid", x))
    assert _maps(found) == [("sigmoid",)]
    assert all(found.producers[name].prologue is not None for name in (one, other))


def test_a_norm_after_a_whole_reads_the_range_that_it_needs():
    net = Net(4)
    a, b = net.conv("x", 8), net.conv("x", 4)
    whole = net.concat(a, b)
    y = net.conv(net.norm(whole), 8)
    found, _ = _fused(net, y)
    assert _maps(found) == []
    assert found.producers[y].inputs[0] == whole
    assert found.owner(a) == whole


@pytest.mark.parametrize(
    ("readers", "said"),
    [
        (lambda net, read: [net.conv(read, 8, kernel=3)], "has padding"),
        (lambda net, read: [net.conv(read, 8), net.op("GlobalAveragePool", read)], "reads it too"),
        (lambda net, read: [net.conv(read, 8, groups=2)], "groups"),
    ],
)
def test_readers_that_need_the_tensor(readers, said):
    net = Net(4)
    x = net.conv("x", 8)
    read = net.norm(x)
    found, state = _fused(net, *readers(net, read), net.op("Sigmoid", x))
    assert len(_maps(found)) == 2
    assert said in _said(state, read)


def test_a_map_of_two_whole_tensors_stays_a_kernel():
    net = Net(4)
    a, b = net.op("Relu", "x"), net.conv("x", 4)
    outputs = (net.conv(net.op("Mul", a, b), 8), net.op("Sigmoid", b), net.op("Sigmoid", a))
    found, _ = _fused(net, *outputs)
    assert any("multiply" in operators for operators in _maps(found))


@pytest.mark.parametrize(("channels", "fused"), [(8, True), (6, False)])
def test_what_is_no_number_beyond_the_last_channel_stays_out(channels, fused):
    net = Net(4)
    x = net.conv("x", channels)
    read = net.op("Reciprocal", x)
    found, state = _fused(net, net.conv(read, 8), net.op("Sigmoid", x))
    assert (len(_maps(found)) == 1) is fused
    assert ("not be a number" in _said(state, read)) is not fused


def test_the_cost_model_decides(monkeypatch):
    known = machine.Machine.from_performance
    monkeypatch.setattr(
        machine.Machine, "from_performance", lambda *of: replace(known(*of), launch_clocks=-1e9)
    )
    net = Net(4)
    x = net.conv("x", 8)
    read = net.norm(x)
    found, state = _fused(net, net.conv(read, 8), net.op("Sigmoid", x))
    assert len(_maps(found)) == 2
    assert "estimated" in _said(state, read)


def test_a_reduction_computes_squares_where_it_reads_them():
    """In mixed precision, lest they leave the range of half; it has neither window nor padding."""
    net = Net(4)
    square = net.op("Mul", "x", "x")
    state = plan(net.model(net.op("ReduceMean", square)), until="lower", preset="mixed")
    assert state.graph is not None and state.program is not None
    assert [(n.op, n.prologue is not None) for n in state.graph.nodes] == [("mean", True)]


def test_a_norm_that_is_part_of_a_whole_is_written():
    """Its one reader could compute it, but others read it as a part of the whole."""
    net = Net(4)
    x = net.conv("x", 8)
    read = net.norm(x)
    y = net.conv(read, 8)
    whole = net.concat(read, net.conv(y, 8, kernel=3))
    found, state = _fused(net, net.conv(whole, 8, kernel=3), net.op("Sigmoid", x))
    assert found.owner(read) == whole
    assert found.producers[y].prologue is None
    assert "which others read" in _said(state, read)


def test_no_kernel_comes_to_read_the_image_that_it_writes():
    net = Net(4)
    x = net.conv("x", 8)
    whole = net.concat(x, net.conv(net.norm(x), 8))
    found, state = _fused(net, net.conv(whole, 8, kernel=3))
    assert len(_maps(found)) == 1
    assert any("the image that it writes" in d.reason for d in state.log)


FORMS = (EXPANSION, SEPARABLE)
"""The 1x1 convolution before, the one after."""
each = pytest.mark.parametrize("form", FORMS)


def _joined(net: Net, *outputs: str, preset: str = "fp32", **limits: int) -> tuple[Graph, State]:
    state = plan(net.model(*outputs), until="fuse_depthwise", preset=preset, **limits)
    assert state.graph is not None
    return state.graph, state


def _apart(net: Net, form: str, reason: str, *outputs: str, **limits: int) -> None:
    """The pair stays two kernels, and a decision says why."""
    found, state = _joined(net, *outputs, **limits)
    assert all(node.op != form for node in found.nodes)
    assert any(reason in decision.reason for decision in state.log)


def _pair(
    net: Net, form: str = EXPANSION, wide: int = 16, between: str = "Relu", kernel: int = 1
) -> tuple[str, str]:
    """(what the second convolution reads, what is made of its result)."""
    if form == EXPANSION:
        read = net.op(between, net.conv(net.op("Tanh", "x"), wide, kernel=kernel))
        return read, net.op("Softmax", net.conv(read, wide, kernel=3, groups=wide))
    read = net.op(between, net.conv(net.conv("x", wide), wide, kernel=3, groups=wide))
    return read, net.op("Tanh", net.conv(read, 8, kernel=kernel))


@each
@pytest.mark.parametrize("preset", ["mixed", "fp16", "buffer"])
def test_a_pair_becomes_one_node(form, preset):
    net = Net(8)
    found, state = _joined(net, _pair(net, form)[1], preset=preset)
    (node,) = [n for n in found.nodes if n.op == form]
    assert node.operators[:3] == ("conv2d", "nn.relu", "conv2d")
    assert len(node.also) == 1
    assert not any(n.op == "conv2d" and n.attrs["groups"] > 1 for n in found.nodes)
    assert any("computes" in decision.taken for decision in state.log)
    products = {EXPANSION: 64 * 16 * (8 + 9), SEPARABLE: 64 * 16 * (9 + 8)}
    assert multiply_adds(found, node) == products[form]


@each
@pytest.mark.parametrize(
    ("reason", "kind", "also"),
    [
        ("reads it too", {}, lambda net, read: [net.op("GlobalAveragePool", read)]),
        ("", {}, lambda net, read: [read]),
        ("might not be a number", {"wide": 18, "between": "Reciprocal"}, lambda net, read: []),
        ("", {"kernel": 3}, lambda net, read: []),
    ],
    ids=["another reader", "an output", "no number beyond the last channel", "more taps"],
)
def test_what_keeps_pairs_apart(form, reason, kind, also):
    net = Net(8)
    read, y = _pair(net, form, **kind)
    _apart(net, form, reason, y, *also(net, read))


@each
def test_the_cost_model_decides_of_pairs(form, monkeypatch):
    set_joins(monkeypatch, pair=1e6)
    net = Net(8)
    _apart(net, form, "as two kernels", _pair(net, form)[1])


def test_what_the_host_saves_counts(monkeypatch):
    estimate_pairs(monkeypatch, dict.fromkeys(FORMS, lambda least: least + 1e6))
    net = Net(8)
    pair = _pair(net)[1]
    _apart(net, EXPANSION, "as two kernels", pair)
    slow_host(monkeypatch, 1e5)
    assert EXPANSION in {node.op for node in _joined(net, pair)[0].nodes}


def test_local_memory_has_to_hold_it():
    net = Net(8)
    _apart(net, EXPANSION, "no schedule fits", _pair(net)[1], local_mem_bytes=1024)


@pytest.mark.parametrize(("better", "other"), [FORMS, FORMS[::-1]])
def test_the_pair_that_saves_more_comes_first(better, other, monkeypatch):
    """A depthwise convolution joins the one before it or the one after it, never both."""
    estimate_pairs(monkeypatch, {other: lambda least: least + 1000, better: lambda _: 1.0})
    set_joins(monkeypatch, pair=0.0)
    net = Net(8)
    d = net.conv(net.op("Relu", net.conv(net.op("Tanh", "x"), 16)), 16, kernel=3, groups=16)
    found, state = _joined(net, net.op("Softmax", net.conv(net.op("Relu", d), 8)))
    assert [n.op for n in found.nodes].count(better) == 1
    assert all(n.op != other for n in found.nodes)
    assert any("saves more" in decision.reason for decision in state.log)


@pytest.mark.parametrize(("middle", "pairs"), [(300.0, 1), (150.0, 2)])
def test_pairs_save_the_most_together(middle, pairs, monkeypatch):
    """1x1, depthwise, 1x1, depthwise: two pairs beat one that alone saves more than each."""

    def apart_clocks(graph: Graph, depthwise: Node, pointwise: Node, _model) -> float:
        return middle if pointwise in graph.consumers[depthwise.output] else 100.0

    monkeypatch.setattr(fuse_depthwise, "apart_clocks", apart_clocks)
    estimate_pairs(monkeypatch, dict.fromkeys(FORMS, lambda _: 1.0))
    net = Net(8)
    x = "x"
    for _ in range(2):
        x = net.op("Relu", net.conv(net.op("Relu", net.conv(x, 16)), 16, 3, groups=16))
    found, state = _joined(net, x)
    kinds = [node.op for node in found.nodes if node.op in (EXPANSION, SEPARABLE)]
    assert kinds == ([SEPARABLE] if pairs == 1 else [EXPANSION] * 2)
    assert any("saves more" in decision.reason for decision in state.log)


def _model(channels: int, side: int, *, batch: int = 1) -> onnx.ModelProto:
    """A depthwise convolution, and what is made of its mean."""
    random = np.random.default_rng(0)
    sizes = {"taps": (channels, 1, 3, 3), "w1": (8, channels, 1, 1), "w2": (channels, 8, 1, 1)}
    constants = {
        name: random.uniform(-0.5, 0.5, size).astype(np.float32) for name, size in sizes.items()
    }
    nodes = parse_nodes(
        f"c = Conv<group = {channels}, pads = [1, 1, 1, 1]>(image, taps) d = Relu(c) "
        "m = GlobalAveragePool(d) s = Conv(m, w1) h = Relu(s) e = Conv(h, w2) g = Sigmoid(e) "
        "y = Mul(d, g)"
    )
    inputs = {"image": (batch, channels, side, side)}
    return graph(nodes, inputs, ("y",), constants, opset=17)


def _planned(model: onnx.ModelProto) -> tuple[list[Node], list[Decision], State]:
    state = plan(model, until="fuse_means", preset="fp16", device="adreno:830")
    said = [d for d in state.log if "work-groups" in d.taken or "of all that" in d.taken]
    return [n for n in state.graph.nodes if n.also_writes], said, state


@pytest.mark.parametrize("side, one", [(7, True), (14, True), (112, False)])
def test_a_mean_is_what_work_groups_add_up(side: int, one: bool) -> None:
    (maker,), (said,), state = _planned(_model(64, side))
    rows, columns = maker.attrs[MEAN_PARTS]
    assert (
        said.taken == f"of what work-groups of {maker.name} add up" and "estimated" in said.reason
    )
    assert one == ((rows, columns) == (1, 1)) == (said.subject in maker.also)
    parts = state.graph.operand(maker.also_writes[0])
    assert (parts.extents.c, parts.extents.h, parts.extents.w) == (64, rows, columns)
    assert parts.memory is state.graph.operand(maker.output).memory


def test_a_convolution_of_bytes_makes_no_mean():
    """Its kernel is another one."""
    random = np.random.default_rng(0)
    constants = {
        "step": np.float32(0.02),
        "zero": np.uint8(128),
        "fine": np.full(64, 0.01, np.float32),
        "even": np.zeros(64, np.int8),
        "taps": random.integers(-100, 100, (64, 1, 3, 3)).astype(np.int8),
        "w": random.uniform(-0.5, 0.5, (8, 64, 1, 1)).astype(np.float32),
    }
    nodes = parse_nodes(
        "q = QuantizeLinear(image, step, zero) x = DequantizeLinear(q, step, zero) "
        "t = DequantizeLinear<axis = 0>(taps, fine, even) "
        "c = Conv<group = 64, pads = [1, 1, 1, 1]>(x, t) cq = QuantizeLinear(c, step, zero) "
        "d = DequantizeLinear(cq, step, zero) m = GlobalAveragePool(d) y = Conv(m, w)"
    )
    model = graph(nodes, {"image": (1, 64, 14, 14)}, ("y",), constants, opset=17)
    state = plan(model, until="build", preset="mixed", device="adreno:750")
    assert "depthwise_dot" in {kernel.family for kernel in state.program.kernels.values()}
    assert not any(node.also_writes for node in state.graph.nodes)


def test_what_one_work_group_makes_is_no_mean_of_parts() -> None:
    state = plan(_model(64, 7), until="lower", preset="fp16", device="adreno:830")
    kernels = {kernel.family for kernel in state.program.kernels.values()}
    assert {"depthwise_mean", "excite"} <= kernels and "mean" not in kernels


@pytest.mark.parametrize(
    "model",
    [_model(64, 14, batch=2), _model(64, 1)],
    ids=["of two images", "of one pixel"],
)
def test_other_means_are_left_alone(model: onnx.ModelProto) -> None:
    made, _, _ = _planned(model)
    assert not made
