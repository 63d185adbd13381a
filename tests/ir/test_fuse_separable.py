"""Depthwise convolutions and the 1x1 convolution after them: where they join, and where not."""

from __future__ import annotations

import pytest
from branches import Net
from planning import plan

from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Graph
from adrenoc.kernels.families.separable.separable_rule import SEPARABLE
from tests.joins import set_joins


def _joined(net: Net, *outputs: str, preset: str = "fp32") -> tuple[Graph, State]:
    state = plan(net.model(*outputs), until="fuse_depthwise", preset=preset)
    assert state.graph is not None
    return state.graph, state


def _pair(net: Net, between: str = "Relu") -> tuple[str, str, str]:
    """(what the depthwise convolution makes, what is made of it, the 1x1 convolution)."""
    d = net.conv(net.conv("x", 16), 16, kernel=3, groups=16)
    after = net.op(between, d)
    return d, after, net.conv(after, 8)


@pytest.mark.parametrize("preset", ["mixed", "fp16", "buffer"])
def test_a_pair_becomes_one_node(preset: str) -> None:
    net = Net(4)
    _, _, y = _pair(net)
    found, state = _joined(net, net.op("Tanh", y), preset=preset)
    (node,) = [n for n in found.nodes if n.op == SEPARABLE]
    assert node.operators[:3] == ("conv2d", "nn.relu", "conv2d")
    assert len(node.also) == 1
    assert not any(n.op == "conv2d" and n.attrs["groups"] > 1 for n in found.nodes)
    assert any("computes" in decision.taken for decision in state.log)


def test_another_reader_needs_the_tensor() -> None:
    net = Net(4)
    _, after, y = _pair(net)
    pooled = net.op("GlobalAveragePool", after)
    found, state = _joined(net, net.op("Tanh", y), pooled)
    assert all(n.op != SEPARABLE for n in found.nodes)
    assert any("reads it too" in d.reason for d in state.log)


def test_an_output_of_the_model_is_kept() -> None:
    net = Net(4)
    _, after, y = _pair(net)
    found, _ = _joined(net, net.op("Tanh", y), after)
    assert all(n.op != SEPARABLE for n in found.nodes)


def test_what_is_no_number_beyond_the_last_channel_stays_out() -> None:
    net = Net(4)
    d = net.conv(net.conv("x", 6), 6, kernel=3, groups=6)
    found, state = _joined(net, net.op("Tanh", net.conv(net.op("Reciprocal", d), 8)))
    assert all(n.op != SEPARABLE for n in found.nodes)
    assert any("might not be a number" in d.reason for d in state.log)


def test_a_convolution_of_more_taps_reads_it_from_memory() -> None:
    net = Net(4)
    d = net.conv(net.conv("x", 16), 16, kernel=3, groups=16)
    found, _ = _joined(net, net.op("Tanh", net.conv(d, 8, kernel=3)))
    assert all(n.op != SEPARABLE for n in found.nodes)


def test_the_cost_model_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    set_joins(monkeypatch, pair=1e6)
    net = Net(4)
    _, _, y = _pair(net)
    found, state = _joined(net, net.op("Tanh", y))
    assert all(n.op != SEPARABLE for n in found.nodes)
    assert any("estimated" in d.reason and "as two kernels" in d.reason for d in state.log)
