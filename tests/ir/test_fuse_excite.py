"""Squeeze-and-excite blocks: what one kernel computes on a phone, and what not."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

from adrenoc.compile.pipeline import State
from adrenoc.compile.pipeline.steps import context_of
from adrenoc.ir.graph import Node
from adrenoc.kernels.families.excite import EXCITE, MOST_FOLDED, deal_out
from adrenoc.passes.fuse.fuse_excite import fuse_excite
from tests.ir.planning import plan
from tests.models import graph


def _model(
    channels: int, hidden: int, side: int, *, outputs: tuple[str, ...] = ()
) -> onnx.ModelProto:
    """An image times what two 1x1 convolutions make of its mean; `outputs` are given too."""
    random = np.random.default_rng(0)
    sizes = {"w1": (hidden, channels, 1, 1), "w2": (channels, hidden, 1, 1)}
    constants = {
        name: random.uniform(-0.5, 0.5, size).astype(np.float32) for name, size in sizes.items()
    }
    nodes = (
        "x = Tanh(image) mean = GlobalAveragePool(x) s = Conv(mean, w1) hidden = Relu(s) "
        "e = Conv(hidden, w2) gate = Sigmoid(e) y = Mul(x, gate)"
    )
    inputs = {"image": (1, channels, side, side)}
    return graph(nodes, inputs, ("y", *outputs), constants, opset=18)


def _planned(model: onnx.ModelProto, device: str = "adreno:830") -> tuple[list[Node], State]:
    state = plan(model, until="fuse_excite", preset="fp16", device=device)
    return [n for n in state.graph.nodes if n.op in (EXCITE, "mean", "conv2d")], state


@pytest.mark.parametrize("device", ("adreno:830", "adreno:660"))
def test_a_small_block_is_one_kernel(device):
    (node,), state = _planned(_model(96, 24, 7), device)
    assert node.op == EXCITE and len(node.also) == 2
    told = [d for d in state.log if d.taken == f"computed by {node.name}"]
    assert {d.subject for d in told} == {*node.also}


def test_the_mean_of_a_large_image_stays_a_kernel():
    nodes, _ = _planned(_model(32, 8, 112))
    assert [node.op for node in nodes] == ["mean", EXCITE]


def test_large_products_stay_kernels_with_the_reason():
    nodes, state = _planned(_model(1024, 1024, 1))
    assert [node.op for node in nodes] == ["mean", "conv2d", "conv2d"]
    assert any(
        d.taken.startswith("a kernel before") and "as kernels of their own" in d.reason
        for d in state.log
    )


@pytest.mark.parametrize(
    "output, left", [("hidden", ["mean", "conv2d", "conv2d"]), ("mean", ["mean", EXCITE])]
)
def test_what_others_read_too_has_a_kernel(output, left):
    nodes, state = _planned(_model(96, 24, 7, outputs=(output,)))
    assert [node.op for node in nodes] == left
    assert any(d.taken.startswith("a kernel before") for d in state.log)


def test_numbers_of_a_block_that_are_pinned_apart_are_not_joined():
    state = plan(_model(96, 24, 7), until="fuse_prologues", preset="fp16", device="adreno:830")
    first = next(n for n in state.graph.nodes if n.op == "conv2d")
    pinned = state.graph.change_precision([first.output], float32=True)
    graph = fuse_excite(pinned, context_of(replace(state, graph=pinned)))
    assert EXCITE not in {node.op for node in graph.nodes}


@pytest.mark.parametrize("threads", (1, 2, 64, 128, 512))
@pytest.mark.parametrize("blocks", (1, 5, 36, 144, 600))
@pytest.mark.parametrize("parts", (1, 7, 14, 49, 300))
def test_threads_share_sums(threads, blocks, parts):
    """Folds add up just what is there, and partial sums take no more vectors than threads."""
    deal = deal_out(blocks, parts, threads, lambda _: 4)
    left = deal.width
    for fold in deal.folds:
        assert left % fold == 0 and left // fold <= MOST_FOLDED
        left = fold
    assert left == 1 and deal.width <= parts and deal.vectors <= threads
    assert deal.steps <= -(-blocks // threads) * parts
