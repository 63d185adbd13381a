"""Maps before convolutions: where they are computed where they are read, and where not."""

from dataclasses import replace

import pytest

from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Graph
from adrenoc.kernels.families.shared import machine
from tests.ir.branches import Net
from tests.ir.planning import plan


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
