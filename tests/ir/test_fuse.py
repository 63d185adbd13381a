"""Fusions by what they gain: excite blocks, norms, attention and the parts of a token's product."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.base.tvmapi import BufferLoad, Expr, Var, decl_buffer, floordiv, floormod, iconst
from adrenoc.compile.decoder_plan import plan_decoder
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.compile.steps import context_of
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.ir.graph import Body, Graph, Node
from adrenoc.ir.options import resolve_options
from adrenoc.kernels.families.excite import EXCITE
from adrenoc.kernels.families.shared.row_product import CENTRED
from adrenoc.kernels.families.shared.rows import MOST_FOLDED, deal_out
from adrenoc.passes.fuse.fuse_attention import place_axes
from adrenoc.passes.fuse.fuse_means import fuse_excite
from adrenoc.target.target import load_target
from tests.host.decoder_bundles import DecoderShape, write_decoder
from tests.host.run_op import Ops
from tests.ir.planning import plan
from tests.models import graph

EXTENTS: dict[str, Any] = {"context": 512, "hidden": 256, "head": 64, "mlp": 512, "layers": 1}


def plan_token(folder: Path, *, launch_us: float | None = None, **shape) -> State:
    """One token's run on an Adreno 750, up to the stage."""
    model = write_decoder(folder, DecoderShape(**{**EXTENTS, **shape}))
    form = find_decoder(model)
    assert form is not None
    plan = plan_decoder(form, None, (16,))
    target = load_target("adreno:750")
    if launch_us is not None:
        told = replace(target.performance, launch_us=launch_us)
        target = replace(target, gpu=replace(target.gpu, performance=told))
    said = {"shapes": plan.buckets[0], "caches": plan.caches}
    options = resolve_options(target, preset="mixed", command_line=said).options
    start = State(model=model, target=target, options=replace(options, check_ir=True))
    return run_stages(start, reporter=SilentReporter(), stop_after="fuse_parts")[0]


def operators(state: State) -> list[str]:
    """Of the planned graph, in order."""
    return [node.op for node in state.graph.nodes]


@pytest.mark.parametrize("form", [{"bits": 4}, {"bits": 8, "zeros": True}, {"bits": 0}])
def test_the_product_of_a_token_joins_its_parts(tmp_path, form):
    state = plan_token(tmp_path, **form)
    made = operators(state)
    assert "join_parts" not in made
    product = state.graph.nodes[made.index("step_attention") + 1]
    assert product.attrs["joined"]
    assert product.inputs[0] == state.graph.nodes[made.index("step_attention")].output


def test_parts_are_joined_by_a_kernel_where_a_launch_takes_nothing(tmp_path):
    state = plan_token(tmp_path, launch_us=0.0)
    assert "join_parts" in operators(state)
    reasons = [d.reason for d in state.log if d.taken == "joins its parts in a kernel"]
    assert len(reasons) == 1
    assert "a launch 0" in reasons[0]


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


def _planned_norms(net: _Net, **asked) -> tuple[Graph, State]:
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
    graph, _ = _planned_norms(net, preset=preset)
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


def _stays(net: _Net, reason: str, **asked) -> None:
    """The norm stays a kernel, for this reason."""
    graph, state = _planned_norms(net, **asked)
    assert not _centred(graph)
    assert reason in _said(state)


@pytest.mark.parametrize(
    "preset, reason", [("fp32", "not stored in halves"), ("fp16", "not centred are in halves")]
)
def test_precisions_in_which_it_stays(preset, reason):
    net = _Net()
    net.output(net.product(net.norm))
    _stays(net, reason, preset=preset)


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
    _stays(net, reason)


def test_few_tokens_and_parts_of_blocks_stay():
    for net, reason in ((_Net(tokens=3), "few tokens"), (_Net(depth=66), "no whole blocks")):
        net.output(net.product(net.norm))
        _stays(net, reason)


@pytest.mark.parametrize("gain, size", [(4000.0, 30.0), (1.0, 1e-5)])
def test_gains_that_halves_do_not_hold_stay(gain, size):
    net = _Net(gain=gain)
    net.output(net.product(net.norm, size=size))
    graph, state = _planned_norms(net)
    assert not _centred(graph)
    assert "halves" in _said(state) or "kept exact" in _said(state)


def test_wide_products_of_a_phone_keep_their_norm():
    """There each of many work-groups would take statistics, which costs more than a launch."""
    net = _Net(tokens=577, depth=1024)
    net.output(net.product(net.norm, columns=4096))
    _stays(net, "clocks in its products", device="adreno:660")


TOKENS, HEADS, WIDTH = 12, 2, 8


def vision_block(*, width: int = WIDTH, bias: bool = False) -> onnx.ModelProto:
    """A joint projection, split heads, scaled scores, joined heads, a projection."""
    dim = HEADS * width
    weight = np.random.default_rng(3).standard_normal((dim, 3 * dim)).astype(np.float32)
    last = "biased" if bias else "scaled"
    nodes = (
        "qkv = MatMul(x, w) s = Reshape(qkv, split) t = Transpose <perm = [2, 0, 3, 1, 4]>(s) "
        "q = Gather <axis = 0>(t, i0) k = Gather <axis = 0>(t, i1) v = Gather <axis = 0>(t, i2) "
        "kt = Transpose <perm = [0, 1, 3, 2]>(k) scores = MatMul(q, kt) "
        f"scaled = Mul(scores, scale) {'biased = Add(scaled, bias)' * bias} "
        f"p = Softmax <axis = -1>({last}) mixed = MatMul(p, v) "
        "back = Transpose <perm = [0, 2, 1, 3]>(mixed) j = Reshape(back, joined) y = MatMul(j, o)"
    )
    constants = {
        "w": weight,
        "o": weight[:, :dim].copy(),
        "split": np.array([1, TOKENS, 3, HEADS, width]),
        "joined": np.array([1, TOKENS, dim]),
        "scale": np.float32(0.25),
        "bias": weight[: TOKENS * HEADS // 2, :1].reshape(1, 1, 1, -1)[..., :TOKENS].copy(),
        **{f"i{i}": np.array(i) for i in range(3)},
    }
    return graph(nodes, {"x": [1, TOKENS, dim]}, ["y"], constants)


def attention_of(model: onnx.ModelProto) -> tuple[Node, list[str]]:
    """The attention node and the operators of the whole graph."""
    found = plan(model, until="fuse").graph
    (node,) = (node for node in found.nodes if node.op == "attention")
    return node, [n.op for n in found.nodes]


def test_heads_are_read_from_the_projection_and_stored_joined():
    node, operators = attention_of(vision_block())
    assert operators == ["matmul", "attention", "matmul"]
    assert len(node.inputs) == 1
    assert node.attrs["q"] == node.attrs["k"] == node.attrs["v"] == (1, HEADS, TOKENS, WIDTH)
    assert node.attrs["scale"] == pytest.approx(0.25)
    assert node.attrs["out"] == ((), (2,), (1, 3))
    assert set(node.parts) == {"q", "k", "v"}


def test_a_bias_is_part_of_the_score():
    node, _ = attention_of(vision_block(bias=True))
    assert Node.RESULT in node.parts["score"].sources.values()
    assert len(node.inputs) == 2


def test_heads_that_break_blocks_up_are_copied_first():
    """Heads of six channels begin within a texel: each gets a tensor of its own."""
    node, operators = attention_of(vision_block(width=6))
    assert operators.count("map") == 4
    assert len(node.inputs) == 3
    assert len(node.attrs["out"]) == 4, "stored as heads, and joined by the fourth map"


def body_reading(shape: tuple[int, ...], axes: tuple[Expr, ...], index: list[Expr]) -> Body:
    buffer = decl_buffer(shape, "float32", name="source")
    return Body(axes=axes, value=BufferLoad(buffer, index), sources={buffer: "source"})


def test_where_elements_of_a_source_go():
    source = (1, 3, 5, 8)
    n, m, c = (Var(name, "int32") for name in "nmc")
    joined = body_reading(source, (n, m, c), [n, floordiv(c, 8), m, floormod(c, 8)])
    assert place_axes(joined, (1, 5, 24), source) == ((), (2,), (1, 3))
    crossed = body_reading(source, (n, m, c), [n, floormod(c, 3), m, floordiv(c, 3)])
    assert place_axes(crossed, (1, 5, 24), source) is None
    shifted = body_reading(source, (n, m, c), [n, floordiv(c, 8), m + iconst(1), floormod(c, 8)])
    assert place_axes(shifted, (1, 5, 24), source) is None


def _guarded(mask: np.ndarray, guard: bool = True) -> onnx.ModelProto:
    """Attention of 8 tokens by itself, masked, as torch's exporter guards masked rows."""
    nodes = (
        "t = MatMul(q, k) u = Add(t, m) p = Softmax <axis = -1>(u) b = IsNaN(p) "
        "w = Where(b, instead, p) y = MatMul(w, v)"
    )
    shapes = {"q": [1, 2, 8, 16], "k": [1, 2, 16, 8], "v": [1, 2, 8, 16]}
    return graph(nodes, shapes, ["y"], {"m": mask, "instead": np.float32(not guard)})


@pytest.mark.parametrize("guard", (True, False))
def test_rows_that_are_guarded_against_masks_are_one_kernel(guard):
    """A guard that makes anything else of what is no number is none."""
    state = plan(_guarded(np.zeros((8, 8), np.float32), guard), until="fuse_attention")
    found = [node for node in state.graph.nodes if node.op == "attention"]
    assert len(found) == guard
    assert all(node.attrs["guarded"] for node in found)
