"""Finding attention in a graph, and what moving an operand through maps says about its index."""

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.base.tvmapi import BufferLoad, Expr, Var, decl_buffer, floordiv, floormod, iconst
from adrenoc.ir.graph import Body, Node
from adrenoc.passes.fuse.index_maps import place_axes
from tests.ir.planning import plan
from tests.models import graph, parse_nodes

TOKENS, HEADS, WIDTH = 12, 2, 8


def vision_block(*, width: int = WIDTH, bias: bool = False) -> onnx.ModelProto:
    """A joint projection, split heads, scaled scores, joined heads, a projection."""
    dim, node = HEADS * width, helper.make_node
    weight = np.random.default_rng(3).standard_normal((dim, 3 * dim)).astype(np.float32)
    nodes = [
        node("MatMul", ["x", "w"], ["qkv"]),
        node("Reshape", ["qkv", "split"], ["s"]),
        node("Transpose", ["s"], ["t"], perm=[2, 0, 3, 1, 4]),
        *(node("Gather", ["t", f"i{i}"], [name], axis=0) for i, name in enumerate("qkv")),
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Mul", ["scores", "scale"], ["scaled"]),
        *([node("Add", ["scaled", "bias"], ["biased"])] if bias else []),
        node("Softmax", ["biased" if bias else "scaled"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "joined"], ["j"]),
        node("MatMul", ["j", "o"], ["y"]),
    ]
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
    nodes = [
        *parse_nodes("t = MatMul(q, k) u = Add(t, m) p = Softmax <axis = -1>(u) b = IsNaN(p)"),
        helper.make_node("Where", ["b", "zero" if guard else "one", "p"], ["w"]),
        helper.make_node("MatMul", ["w", "v"], ["y"]),
    ]
    constants = {"m": mask, "zero": np.float32(0), "one": np.float32(1)}
    shapes = {"q": [1, 2, 8, 16], "k": [1, 2, 16, 8], "v": [1, 2, 8, 16]}
    del constants["one" if guard else "zero"]
    return graph(nodes, shapes, ["y"], constants)


@pytest.mark.parametrize("guard", (True, False))
def test_rows_that_are_guarded_against_masks_are_one_kernel(guard):
    """A guard that makes anything else of what is no number is none."""
    state = plan(_guarded(np.zeros((8, 8), np.float32), guard), until="fuse_attention")
    found = [node for node in state.graph.nodes if node.op == "attention"]
    assert len(found) == guard
    assert all(node.attrs["guarded"] for node in found)
