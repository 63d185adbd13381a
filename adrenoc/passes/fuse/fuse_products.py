"""Products of few tokens by constant matrices take in the norm before them, and each other.

Before -> after:
    n = rms_norm(x, gains); y = n_bits(n, w)            y = n_bits(x, w, gains), `normed`
    n = rms_norm(x, gains); y = matmul(n, w)            y = matmul(x, w, gains), `normed`
    g = n_bits[n_bits sigmoid multiply](x, w1)
    y = n_bits[n_bits multiply](x, w2, g)               y = n_bits(x, w2, w1), `gated`

Every work-group of such a product reads all of a token's numbers: their squares cost it little.
Of many tokens a norm by itself is cheap, and their weights are read or opened by many work-groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.families.reduce.norm_rule import is_rms_norm
from adrenoc.kernels.families.row_products import is_of_few_tokens, is_row_product
from adrenoc.kernels.families.shared.row_product import GATE, GATED, NORMED, read_form
from adrenoc.passes.analyse.elementwise import reads_elementwise
from adrenoc.passes.analyse.image_clash import image_clash
from adrenoc.passes.analyse.other_uses import other_use, reads_first_alone
from adrenoc.passes.context import Context

_FORM = ("block", "zero", "zeros")
"""Attributes of weights of few bits, which have to be alike where one kernel has both."""


def fuse_products(graph: Graph, context: Context) -> Graph:
    """Join norms with the products that read them, then pairs of products."""
    for node in graph.nodes:
        if is_rms_norm(node):
            graph = _take_norm(graph, context, node)
    for node in graph.nodes:
        if is_row_product(graph, node):
            graph = _take_gate(graph, context, node)
    return graph


def _take_norm(graph: Graph, context: Context, node: Node) -> Graph:
    name, readers = node.output, graph.consumers[node.output]
    if not any(is_row_product(graph, reader) for reader in readers):
        return graph
    joined = {}
    reason = _norm_stays(graph, context, node)
    if reason is None:
        joined = {reader.output: _join_norm(reader, node) for reader in readers}
        clashes = (image_clash(graph, new) for new in joined.values())
        reason = next((clash for clash in clashes if clash), None)
    if reason is not None:
        context.log.add(node.name, "a norm before its products", reason)
        return graph
    context.log.add(name, "computed by its products", f"{len(readers)} read it, of few tokens")
    kept = (joined.get(n.output, n) for n in graph.nodes if n.output != name)
    return graph.replace_nodes(kept)


def _norm_stays(graph: Graph, context: Context, node: Node) -> str | None:
    """Return why products cannot compute a norm."""
    read, made = graph.operand(node.inputs[0]), graph.operand(node.output)
    last = len(made.shape) - 1
    plain = (node.prologue, node.epilogue) == (None, None) and len(node.inputs) == 2
    whole = [axis % (last + 1) for axis in node.attrs["axes"]] == [last]
    readers = graph.consumers[node.output]
    obstacles = {
        "it does more than to norm the channels of a token": not plain or not whole,
        "its gains are computed": graph.tensors[node.inputs[1]].value is None,
        "it is read in another layout": read.roles.roles != made.roles.roles,
        "others read it too": any(
            not is_row_product(graph, reader) or not reads_first_alone(reader, node.output)
            for reader in readers
        ),
        "its numbers are rounded": graph.precision(node.output).rounded,
        "they are of many tokens": not all(
            is_of_few_tokens(graph, reader, context.target.cost) for reader in readers
        ),
        "its tokens are no whole blocks": read.extents.c % LANES > 0,
    }
    found = next((reason for reason, holds in obstacles.items() if holds), None)
    return found or other_use(graph, node)


def _join_norm(reader: Node, norm: Node) -> Node:
    """Return the product on what its norm reads."""
    form = read_form(reader)
    matrices = (name for names in form.matrices for name in names)
    return replace(
        reader,
        inputs=(norm.inputs[0], *matrices, norm.inputs[1], *form.rest),
        attrs={**reader.attrs, NORMED: float(norm.attrs["epsilon"])},
        fused=(*norm.operators, *reader.operators),
    )


def _take_gate(graph: Graph, context: Context, node: Node) -> Graph:
    gate = _gate_of(graph, node)
    if gate is None:
        return graph
    if not is_of_few_tokens(graph, node, context.target.cost):
        context.log.add(gate.name, "a kernel before the product that reads it", "of many tokens")
        return graph
    assert node.epilogue is not None
    mine, its = read_form(node), read_form(gate)
    sources = {
        buffer: Node.BESIDE if name == gate.output else name
        for buffer, name in node.epilogue.sources.items()
    }
    rest = (name for name in (*mine.rest, *its.rest) if name != gate.output)
    joined = replace(
        node,
        inputs=(
            node.inputs[0],
            *mine.matrices[0],
            *its.matrices[0],
            *([mine.gains] if mine.gains else []),
            *dict.fromkeys(rest),
        ),
        attrs={**node.attrs, GATED: True},
        epilogue=replace(node.epilogue, sources=sources),
        parts=_parts(gate.epilogue),
        fused=(*gate.operators, *node.operators),
    )
    if image_clash(graph, joined) is not None:
        return graph
    context.log.add(gate.name, "computed with the product that reads it", "both read the same")
    kept = [n for n in graph.nodes if n.output != gate.output]
    return graph.replace_nodes(joined if n.output == node.output else n for n in kept)


def _parts(epilogue: Body | None) -> Mapping[str, Body]:
    return {} if epilogue is None else {GATE: epilogue}


def _gate_of(graph: Graph, node: Node) -> Node | None:
    """Return the product that the epilogue of another one reads, where one kernel has both."""
    if node.epilogue is None or node.attrs.get(GATED) or node.stores:
        return None
    form = read_form(node)
    for name in form.rest:
        other = graph.producers.get(name)
        if other is None or other.op != node.op or other.attrs.get(GATED):
            continue
        if not is_row_product(graph, other):
            continue
        alike = (
            other.inputs[0] == node.inputs[0]
            and read_form(other).gains == form.gains
            and all(other.attrs.get(key) == node.attrs.get(key) for key in _FORM)
            and other.attrs.get(NORMED) == node.attrs.get(NORMED)
            and graph.tensors[name].shape == graph.tensors[node.output].shape
            and graph.tensors[other.inputs[1]].shape == graph.tensors[node.inputs[1]].shape
        )
        alone = [n.output for n in graph.consumers[name]] == [node.output]
        same = reads_elementwise(node.epilogue, name, graph)
        if alike and alone and same and other_use(graph, other) is None:
            return other
    return None
