"""1x1 convolutions and the depthwise convolution after them: where they join, and where not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from branches import Net
from planning import plan

from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.expansion.expansion_rule import EXPANSION
from adrenoc.kernels.families.separable.separable_rule import SEPARABLE
from adrenoc.passes.fuse import depthwise_pairs, fuse_expansion, fuse_separable
from adrenoc.passes.lower.measure_work import multiply_adds
from tests.joins import set_joins


def _joined(net: Net, *outputs: str, preset: str = "fp32", **limits: int) -> tuple[Graph, State]:
    state = plan(net.model(*outputs), until="fuse_depthwise", preset=preset, **limits)
    assert state.graph is not None
    return state.graph, state


def _pair(net: Net, wide: int = 16, between: str = "Relu") -> tuple[str, str]:
    """(what the depthwise convolution reads, what it makes)."""
    e = net.op(between, net.conv(net.op("Tanh", "x"), wide))
    return e, net.conv(e, wide, kernel=3, groups=wide)


@pytest.mark.parametrize("preset", ["mixed", "fp16", "buffer"])
def test_a_pair_becomes_one_node(preset: str) -> None:
    net = Net(8)
    _, d = _pair(net)
    found, state = _joined(net, net.op("Softmax", d), preset=preset)
    (node,) = [n for n in found.nodes if n.op == EXPANSION]
    assert node.operators[:3] == ("conv2d", "nn.relu", "conv2d")
    assert len(node.also) == 1
    assert not any(n.op == "conv2d" for n in found.nodes)
    assert any("computes" in decision.taken for decision in state.log)
    assert multiply_adds(found, node) == 64 * 16 * (8 + 9)


def test_another_reader_needs_the_tensor() -> None:
    net = Net(8)
    e, d = _pair(net)
    found, state = _joined(net, net.op("Softmax", d), net.op("GlobalAveragePool", e))
    assert all(n.op != EXPANSION for n in found.nodes)
    assert any("reads it too" in decision.reason for decision in state.log)


def test_an_output_of_the_model_is_kept() -> None:
    net = Net(8)
    e, d = _pair(net)
    found, _ = _joined(net, net.op("Softmax", d), e)
    assert all(n.op != EXPANSION for n in found.nodes)


def test_what_is_no_number_beyond_the_last_channel_stays_out() -> None:
    net = Net(8)
    _, d = _pair(net, wide=18, between="Reciprocal")
    found, state = _joined(net, net.op("Softmax", d))
    assert all(n.op != EXPANSION for n in found.nodes)
    assert any("might not be a number" in decision.reason for decision in state.log)


def test_a_convolution_of_more_taps_is_no_expansion() -> None:
    net = Net(8)
    e = net.conv(net.op("Tanh", "x"), 16, kernel=3)
    found, _ = _joined(net, net.op("Softmax", net.conv(e, 16, kernel=3, groups=16)))
    assert all(n.op != EXPANSION for n in found.nodes)


def test_local_memory_has_to_hold_it() -> None:
    net = Net(8)
    _, d = _pair(net)
    found, state = _joined(net, net.op("Softmax", d), local_mem_bytes=1024)
    assert all(n.op != EXPANSION for n in found.nodes)
    assert any("no schedule fits" in decision.reason for decision in state.log)


def test_the_cost_model_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    set_joins(monkeypatch, pair=1e6)
    net = Net(8)
    _, d = _pair(net)
    found, state = _joined(net, net.op("Softmax", d))
    assert all(n.op != EXPANSION for n in found.nodes)
    assert any("as two kernels" in decision.reason for decision in state.log)


@pytest.mark.parametrize("better", ["expansion", "separable"])
def test_the_pair_that_saves_more_comes_first(better: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A depthwise convolution joins the one before it or the one after it, never both."""
    other = {"expansion": "separable", "separable": "expansion"}[better]
    passes = {"expansion": fuse_expansion, "separable": fuse_separable}
    real = passes[other].score_tiles
    monkeypatch.setattr(
        passes[other], "score_tiles", lambda *of: SimpleNamespace(least=real(*of).least + 1000)
    )
    monkeypatch.setattr(passes[better], "score_tiles", lambda *of: SimpleNamespace(least=1.0))
    set_joins(monkeypatch, pair=0.0)
    net = Net(8)
    _, d = _pair(net)
    found, state = _joined(net, net.op("Softmax", net.conv(net.op("Relu", d), 8)))
    wanted = {"expansion": EXPANSION, "separable": SEPARABLE}
    assert [n.op for n in found.nodes].count(wanted[better]) == 1
    assert all(n.op != wanted[other] for n in found.nodes)
    assert any("saves more" in decision.reason for decision in state.log)


@pytest.mark.parametrize(("middle", "pairs"), [(300.0, 1), (150.0, 2)])
def test_pairs_save_the_most_together(
    middle: float, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1x1, depthwise, 1x1, depthwise: two pairs beat one that alone saves more than each."""

    def apart_clocks(graph: Graph, depthwise: Node, pointwise: Node, _model: Any) -> float:
        return middle if pointwise in graph.consumers[depthwise.output] else 100.0

    monkeypatch.setattr(depthwise_pairs, "apart_clocks", apart_clocks)
    none = SimpleNamespace(least=1.0)
    for place in (fuse_separable, fuse_expansion):
        monkeypatch.setattr(place, "score_tiles", lambda *_: none)
    net = Net(8)
    x = "x"
    for _ in range(2):
        x = net.op("Relu", net.conv(net.op("Relu", net.conv(x, 16)), 16, 3, groups=16))
    found, state = _joined(net, x)
    kinds = [node.op for node in found.nodes if node.op in (EXPANSION, SEPARABLE)]
    assert kinds == ([SEPARABLE] if pairs == 1 else [EXPANSION] * 2)
    assert any("saves more" in decision.reason for decision in state.log)
