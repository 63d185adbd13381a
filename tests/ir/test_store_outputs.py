"""Outputs that are copies: written by what makes the tensors that they copy."""

import onnx

from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Graph
from tests.ir.branches import Net
from tests.ir.planning import plan


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
