"""Products of tokens by constant matrices take in norms and each other, or round their tokens.

Of few tokens, they take in the norm before them, and each other (`fuse_products`).

Before -> after:
    n = rms_norm(x, gains); y = n_bits(n, w)            y = n_bits(x, w, gains), `normed`
    n = rms_norm(x, gains); y = matmul(n, w)            y = matmul(x, w, gains), `normed`
    g = n_bits[n_bits sigmoid multiply](x, w1)
    y = n_bits[n_bits multiply](x, w2, g)               y = n_bits(x, w2, w1), `gated`

Every work-group of such a product reads all of a token's numbers: their squares cost it little.
Of many tokens a norm by itself is cheap, and their weights are read or opened by many work-groups.
A kernel that took a layer norm into products of many tokens was estimated slower than two for every
norm of CLIP's text, Whisper's and Depth Anything's encoders on a 750, and faster by 2 us at best
for ViT-tiny's.

Of many tokens by weights of few bits, they round these where that is asked for (`round_tokens`).

Before -> after:
    y = n_bits[n_bits add](x, words, scales)
    x.bytes = round_tokens(x); y = n_bits_dot[n_bits add](x.bytes, words, scales)

A dot product multiplies four bytes where a multiply-add has one number.  What several products read
is rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from adrenoc.ir.graph import Body, Graph, Node, Placement, Tensor
from adrenoc.ir.layout import LANES, Memory, TexelOrder
from adrenoc.kernels.families.n_bits.n_bits_dot import (
    ROUNDING,
    Rounding,
    dot_work,
    explain_not_rounded,
    least_matrix_clocks,
    round_clocks,
    rounding_of,
    score_dot_tiles,
)
from adrenoc.kernels.families.operators import (
    is_of_few_bits,
    is_of_few_tokens,
    is_row_product,
    may_round_tokens,
)
from adrenoc.kernels.families.reduce.norm import is_rms_norm
from adrenoc.kernels.families.shared.row_product import (
    GATE,
    GATED,
    N_BITS_DOT,
    NORMED,
    ROUND_TOKENS,
    read_form,
)
from adrenoc.passes.analyse.reads import (
    find_clash,
    first_obstacle,
    image_clash,
    other_use,
    reads_elementwise,
    reads_first_alone,
)
from adrenoc.passes.context import Context
from adrenoc.target.gpu import DOT_PRODUCTS

_FORM = ("block", "zero", "zeros")
"""Attributes of weights of few bits, which have to be alike where one kernel has both."""


def fuse_products(graph: Graph, context: Context) -> Graph:
    """Join norms with the products that read them, then pairs of products."""
    for node in graph.nodes:
        if is_rms_norm(node):
            graph = _take_rms_norm(graph, context, node)
    for node in graph.nodes:
        if is_row_product(graph, node):
            graph = _take_gate(graph, context, node)
    return graph


def _take_rms_norm(graph: Graph, context: Context, node: Node) -> Graph:
    name, readers = node.output, graph.consumers[node.output]
    if not any(is_row_product(graph, reader) for reader in readers):
        return graph
    joined = [_join_rms_norm(reader, node) for reader in readers]
    reason = _rms_norm_stays(graph, context, node) or find_clash(graph, joined)
    if reason is not None:
        context.log.add(node.name, "a norm before its products", reason)
        return graph
    context.log.add(name, "computed by its products", f"{len(readers)} read it, of few tokens")
    return graph.exchange(joined, [node])


def _rms_norm_stays(graph: Graph, context: Context, node: Node) -> str | None:
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
    found = first_obstacle(obstacles)
    return found or other_use(graph, node)


def _join_rms_norm(reader: Node, norm: Node) -> Node:
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
    return graph.exchange([joined], [gate])


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


NO_DOT_PRODUCTS = "no driver seen of this GPU has a dot product of bytes in its OpenCL C"


def round_tokens(graph: Graph, context: Context) -> Graph:
    """Split each such product into the rounding of its tokens and a product of bytes."""
    if not any(map(is_of_few_bits, graph.nodes)):
        reason = "no product by weights of 2, 4 or 8 bits"
        context.log.add("int8 prompts", "nothing is rounded", reason)
    nodes: list[Node] = []
    tensors: dict[str, Tensor] = {}
    placements = dict(graph.placements)
    for node in graph.nodes:
        if not may_round_tokens(graph, node, context.target.cost):
            nodes.append(node)
            continue
        rounding = rounding_of(graph, node)
        reason = _stays(graph, context, node, rounding)
        if reason:
            context.log.add(node.name, "tokens are not rounded", reason)
            nodes.append(node)
            continue
        source = node.inputs[0]
        name = f"{source}.bytes{rounding.group}x{rounding.bits}less{rounding.zero}"
        attrs = {**node.attrs, ROUNDING: rounding}
        if name not in tensors:
            tensors[name], placements[name] = _make_tensor(graph, source, name, rounding)
            nodes.append(
                Node(
                    name=f"{node.name}.bytes",
                    op=ROUND_TOKENS,
                    inputs=(source,),
                    output=name,
                    attrs=attrs,
                )
            )
        nodes.append(replace(node, op=N_BITS_DOT, inputs=(name, *node.inputs[1:]), attrs=attrs))
    placed = replace(graph, tensors={**graph.tensors, **tensors}, placements=placements)
    return placed.replace_nodes(nodes) if tensors else graph


def _stays(graph: Graph, context: Context, node: Node, rounding: Rounding) -> str:
    """Return why a product keeps its tokens as they are; empty where they are rounded."""
    if not context.target.has_dot_products:
        return context.target.avoided.get(DOT_PRODUCTS, NO_DOT_PRODUCTS)
    # What lies in float32 for its range alone, as gated tokens do, is rounded as others are.
    names = {node.output, context.names.get(node.output, "")}
    if graph.precision(node.output).rounded or names & set(context.options.float32_tensors):
        return "it is kept in float32"
    zeros = bool(node.attrs["zeros"])
    if not zeros and not float(node.attrs["zero"]).is_integer():
        return f"a zero point of {node.attrs['zero']}, expected a whole number"
    reason = explain_not_rounded(rounding.inputs, rounding.block)
    if reason:
        return reason
    costs = context.costs
    work = dot_work(graph, node, rounding, costs)
    tiles = score_dot_tiles(work, costs.limits, costs.machine)
    rounded = tiles.least + round_clocks(work, costs.machine)
    plain = least_matrix_clocks(graph, node, costs)
    told = f"estimated {rounded:.0f} clocks, {plain:.0f} as they are"
    if rounded >= plain:
        return told
    context.log.add(
        node.name, f"tokens rounded to bytes, {rounding.group} numbers with a scale", told
    )
    return ""


def _make_tensor(
    graph: Graph, source: str, name: str, rounding: Rounding
) -> tuple[Tensor, Placement]:
    """Return the tokens of a tensor as bytes, and where these lie."""
    layout = graph.operand(source).roles.reorder(TexelOrder.PLANES)
    shape = list(graph.tensors[source].shape)
    shape[-1] = rounding.channels
    placement = Placement(memory=Memory.BYTES, layout=layout, dtype="uint32")
    return Tensor(name=name, shape=tuple(shape), dtype="float32"), placement
