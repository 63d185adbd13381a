"""Products of many tokens by weights of few bits round their tokens, where that is asked for.

Before -> after:
    y = n_bits[n_bits add](x, words, scales)
    x.bytes = round_tokens(x); y = n_bits_dot[n_bits add](x.bytes, words, scales)

A dot product multiplies four bytes where a multiply-add has one number.  What several products read
is rounded once.
"""

from __future__ import annotations

from dataclasses import replace

from adrenoc.ir.graph import Graph, Node, Placement, Tensor
from adrenoc.ir.layout import TexelOrder
from adrenoc.ir.operand import Memory
from adrenoc.kernels.families.n_bits.n_bits_dot_rule import (
    ROUNDING,
    dot_work,
    least_matrix_clocks,
    round_clocks,
    rounding_of,
    score_dot_tiles,
)
from adrenoc.kernels.families.n_bits.rounded import Rounding, explain_not_rounded
from adrenoc.kernels.families.row_products import is_of_few_bits, may_round_tokens
from adrenoc.kernels.families.shared.row_product import N_BITS_DOT, ROUND_TOKENS
from adrenoc.passes.context import Context
from adrenoc.target.avoid import DOT_PRODUCTS

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
