"""Means that depthwise convolutions make of what they make: where on a phone, and where not."""

import numpy as np
import onnx
import pytest
from planning import plan

from adrenoc.base.decision import Decision
from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Node
from adrenoc.kernels.families.shared.row_product import MEAN_PARTS
from tests.models import graph, parse_nodes


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
