"""Layer norms before products: where products compute them, and where not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from planning import plan

from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.shared.row_product import CENTRED

DEPTH, COLUMNS = 64, 32


class _Net:
    """A norm of some tokens and what reads it."""

    def __init__(self, tokens: int = 40, depth: int = DEPTH, gain: float = 1.0) -> None:
        self._random, self._nodes, self._outputs = np.random.default_rng(0), [], []
        self._constants: list[Any] = []
        self._shape = (1, tokens, depth)
        self.x = self.op("Tanh", "x")
        gains = self.constant(gain + self._random.uniform(-0.5, 0.5, depth))
        offsets = self.constant(self._random.uniform(-0.5, 0.5, depth))
        self.norm = self.op("LayerNormalization", self.x, gains, offsets, axis=-1)
        self.output(self.op("Neg", self.x))

    def constant(self, value: np.ndarray) -> str:
        name = f"k{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def op(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def product(self, x: str, columns: int = COLUMNS, size: float = 0.5) -> str:
        matrix = self._random.uniform(-size, size, (self._shape[-1], columns))
        return self.op("MatMul", x, self.constant(matrix))

    def output(self, *names: str) -> None:
        self._outputs += names

    def model(self) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self._shape)
        outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in self._outputs]
        graph = helper.make_graph(self._nodes, "g", [x], outputs, self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _planned(net: _Net, **asked: Any) -> tuple[Graph, State]:
    state = plan(net.model(), until="fuse_norms", **{"preset": "mixed", **asked})
    assert state.graph is not None
    return state.graph, state


def _centred(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if CENTRED in node.attrs]


def _said(state: State) -> str:
    return " / ".join(d.reason for d in state.log if d.taken == "a kernel before its products")


@pytest.mark.parametrize("preset", ["mixed", "buffer"])
@pytest.mark.parametrize("readers", [1, 3])
def test_all_products_that_read_a_norm_compute_it(preset: str, readers: int) -> None:
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
def test_precisions_in_which_it_stays(preset: str, reason: str) -> None:
    net = _Net()
    net.output(net.product(net.norm))
    graph, state = _planned(net, preset=preset)
    assert not _centred(graph)
    assert reason in _said(state)


def test_a_norm_that_others_read_stays() -> None:
    net = _Net()
    net.output(net.product(net.norm), net.op("Sigmoid", net.norm))
    graph, state = _planned(net)
    assert not _centred(graph)
    assert "reads it too" in _said(state)


def test_a_norm_that_is_an_output_stays() -> None:
    net = _Net()
    net.output(net.product(net.norm), net.norm)
    graph, state = _planned(net)
    assert not _centred(graph)
    assert "writes concatenations too" in _said(state)


def test_a_product_that_adds_the_norm_reads_it_twice() -> None:
    net = _Net()
    net.output(net.op("Add", net.product(net.norm, columns=DEPTH), net.norm))
    graph, state = _planned(net)
    assert not _centred(graph)
    assert "beside its own input" in _said(state)


def test_few_tokens_and_parts_of_blocks_stay() -> None:
    for net, reason in ((_Net(tokens=3), "few tokens"), (_Net(depth=66), "no whole blocks")):
        net.output(net.product(net.norm))
        graph, state = _planned(net)
        assert not _centred(graph)
        assert reason in _said(state)


@pytest.mark.parametrize("gain, size", [(4000.0, 30.0), (1.0, 1e-5)])
def test_gains_that_halves_do_not_hold_stay(gain: float, size: float) -> None:
    net = _Net(gain=gain)
    net.output(net.product(net.norm, size=size))
    graph, state = _planned(net)
    assert not _centred(graph)
    assert "halves" in _said(state) or "kept exact" in _said(state)


def test_wide_products_of_a_phone_keep_their_norm() -> None:
    """There each of many work-groups would take statistics, which costs more than a launch."""
    net = _Net(tokens=577, depth=1024)
    net.output(net.product(net.norm, columns=4096))
    graph, state = _planned(net, device="adreno:660")
    assert not _centred(graph)
    assert "clocks in its products" in _said(state)
