"""The product of a token joins the parts in which attention leaves it, where that is faster.

Before -> after:
    y = join_parts(parts); z = n_bits(y, w)             z = n_bits(parts, w), `joined`
    y = join_parts(parts); z = matmul(y, w)             z = matmul(parts, w), `joined`

Every work-group of such a product mixes all numbers of the token anew: it wins where that takes
less than one more kernel in the queue.
"""

from __future__ import annotations

from dataclasses import replace

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.cache.step_rules import joins_parts
from adrenoc.kernels.families.row_products import (
    is_of_few_tokens,
    is_row_product,
    row_product_clocks,
    whole_inputs,
)
from adrenoc.kernels.families.shared.row_product import JOINED, SUNK, read_form
from adrenoc.passes.analyse.image_clash import image_clash
from adrenoc.passes.analyse.other_uses import other_use, reads_first_alone
from adrenoc.passes.context import Context


def fuse_parts(graph: Graph, context: Context) -> Graph:
    """Join parts of attention in the products that read them."""
    for node in graph.nodes:
        if joins_parts(node):
            graph = _join(graph, context, node)
    return graph


def _join(graph: Graph, context: Context, node: Node) -> Graph:
    readers = graph.consumers[node.output]
    if len(readers) != 1 or not is_row_product(graph, readers[0]):
        context.log.add(node.name, "joins its parts in a kernel", "no product alone reads them")
        return graph
    (reader,) = readers
    joined = _product_of_parts(reader, node)
    reason = _refusal(graph, context, node, reader) or image_clash(graph, joined)
    if reason is None:
        alone, together = (row_product_clocks(graph, n, context.costs) for n in (reader, joined))
        gained = context.costs.machine.launch_clocks
        if together >= alone + gained:
            reason = (
                f"mixing them in each work-group takes {together - alone:.0f} clocks more, a "
                f"launch {gained:.0f}"
            )
    if reason is not None:
        context.log.add(node.name, "joins its parts in a kernel", reason)
        return graph
    context.log.add(node.name, "joined by the product that reads it", "one launch less")
    kept = (joined if n.output == reader.output else n for n in graph.nodes)
    return graph.replace_nodes(n for n in kept if n.output != node.output)


def _product_of_parts(reader: Node, node: Node) -> Node:
    """Return the product on the parts themselves."""
    form = read_form(reader)
    matrices = (name for names in form.matrices for name in names)
    gains = (form.gains,) if form.gains else ()
    return replace(
        reader,
        inputs=(node.inputs[0], *matrices, *gains, *node.inputs[1:], *form.rest),
        attrs={**reader.attrs, JOINED: True, SUNK: bool(node.attrs["sunk"])},
        fused=(*node.operators, *reader.operators),
    )


def _refusal(graph: Graph, context: Context, node: Node, reader: Node) -> str | None:
    """Return why the product cannot join the parts, whatever it takes."""
    made = graph.operand(node.output)
    obstacles = {
        "it does more than to join them": node.epilogue is not None,
        "they are of several tokens": made.extents.n * made.extents.h * made.extents.w != 1,
        "the product reads many tokens": not is_of_few_tokens(graph, reader, context.target.cost),
        "the product reads them twice": not reads_first_alone(reader, node.output),
        "its numbers are rounded": graph.precision(node.output).rounded,
        "they end within a word of weights": made.extents.c % whole_inputs(reader) > 0,
    }
    found = next((reason for reason, holds in obstacles.items() if holds), None)
    return found or other_use(graph, node)
