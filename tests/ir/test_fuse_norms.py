"""Layer norms before products: where products compute them, and where not."""

from typing import Any

import pytest

from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.shared.row_product import CENTRED
from tests.host.run_op import Ops
from tests.ir.planning import plan

DEPTH, COLUMNS = 64, 32


class _Net(Ops):
    """A norm of some tokens and what reads it."""

    def __init__(self, tokens: int = 40, depth: int = DEPTH, gain: float = 1.0) -> None:
        super().__init__()
        self._depth = depth
        self.x = self("Tanh", self.input(1, tokens, depth))
        gains, offsets = self.weight(depth, around=gain), self.weight(depth)
        self.norm = self("LayerNormalization", self.x, gains, offsets, axis=-1)
        self.output(self("Neg", self.x))

    def product(self, x: str, columns: int = COLUMNS, size: float = 0.5) -> str:
        return self("MatMul", x, self.const(2 * size * self.values(self._depth, columns)))


def _planned(net: _Net, **asked: Any) -> tuple[Graph, State]:
    state = plan(net._model(), until="fuse_norms", **{"preset": "mixed", **asked})
    assert state.graph is not None
    return state.graph, state


def _centred(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if CENTRED in node.attrs]


def _said(state: State) -> str:
    return " / ".join(d.reason for d in state.log if d.taken == "a kernel before its products")


@pytest.mark.parametrize("preset", ["mixed", "buffer"])
@pytest.mark.parametrize("readers", [1, 3])
def test_all_products_that_read_a_norm_compute_it(preset, readers):
    net = _Net()
    for _ in range(readers):
        net.output(net.product(net.norm))
    graph, _ = _planned(net, preset=preset)
    found = _centred(graph)
    assert len(found) == readers
    for node in found:
        assert node.operators == ("layer_norm", "matmul")
        assert node.inputs[0] == net.x
        assert [graph.tensors[name].shape for name in node.inputs[1:]] == [
            (DEPTH, COLUMNS),
            (DEPTH,),
            (DEPTH,),
        ]


@pytest.mark.parametrize(
    "preset, reason", [("fp32", "not stored in halves"), ("fp16", "not centred are in halves")]
)
def test_precisions_in_which_it_stays(preset, reason):
    net = _Net()
    net.output(net.product(net.norm))
    graph, state = _planned(net, preset=preset)
    assert not _centred(graph)
    assert reason in _said(state)


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        (lambda net: [net.product(net.norm), net("Sigmoid", net.norm)], "reads it too"),
        (lambda net: [net.product(net.norm), net.norm], "t1_out2 reads it too"),
        (
            lambda net: [net("Add", net.product(net.norm, columns=DEPTH), net.norm)],
            "beside its own input",
        ),
    ],
)
def test_a_norm_that_something_else_reads_stays(outputs, reason):
    net = _Net()
    net.output(*outputs(net))
    graph, state = _planned(net)
    assert not _centred(graph)
    assert reason in _said(state)


def test_few_tokens_and_parts_of_blocks_stay():
    for net, reason in ((_Net(tokens=3), "few tokens"), (_Net(depth=66), "no whole blocks")):
        net.output(net.product(net.norm))
        graph, state = _planned(net)
        assert not _centred(graph)
        assert reason in _said(state)


@pytest.mark.parametrize("gain, size", [(4000.0, 30.0), (1.0, 1e-5)])
def test_gains_that_halves_do_not_hold_stay(gain, size):
    net = _Net(gain=gain)
    net.output(net.product(net.norm, size=size))
    graph, state = _planned(net)
    assert not _centred(graph)
    assert "halves" in _said(state) or "kept exact" in _said(state)


def test_wide_products_of_a_phone_keep_their_norm():
    """There each of many work-groups would take statistics, which costs more than a launch."""
    net = _Net(tokens=577, depth=1024)
    net.output(net.product(net.norm, columns=4096))
    graph, state = _planned(net, device="adreno:660")
    assert not _centred(graph)
    assert "clocks in its products" in _said(state)
