"""Products of many tokens by constant matrices take in the layer norm before them.

Before -> after:
    n = layer_norm(x, g, o); y = matmul(n, w)           y = matmul(x, w, g, o), `centred`

The factors go into the weights; what the kernel has to know of a token is its mean and deviation.
Every work-group takes those anew, which has to cost less than the norm's kernel and its launch.
It multiplies x as it is, and takes the mean's part off the sums: right where these are in float
and x lies in halves, whose own rounding is 2^13 times as large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import HALF_MAX
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import Memory
from adrenoc.kernels.families.conv.centred_rule import gained_matrix
from adrenoc.kernels.families.reduce.norm_rule import is_layer_norm, norm_clocks
from adrenoc.kernels.families.row_products import is_of_few_bits, is_of_few_tokens, is_row_product
from adrenoc.kernels.families.shared.row_product import CENTRED, read_form
from adrenoc.passes.analyse.image_clash import image_clash
from adrenoc.passes.analyse.other_uses import other_use, reads_first_alone
from adrenoc.passes.context import Context
from adrenoc.passes.fuse.kernel_price import product_clocks

_LEAST_WEIGHT = 2.0**-12
"""The least weight that halves hold with all their bits, but for two."""


def fuse_norms(graph: Graph, context: Context) -> Graph:
    """Join layer norms with the products that read them, where that takes less time."""
    for node in graph.nodes:
        if is_layer_norm(node):
            graph = _take_norm(graph, context, node)
    return graph


def _take_norm(graph: Graph, context: Context, node: Node) -> Graph:
    readers = graph.consumers[node.output]
    if not any(is_row_product(graph, reader) for reader in readers):
        return graph
    joined: dict[str, Node] = {}
    reason = _norm_stays(graph, context, node) or _readers_do_without(graph, context, node)
    if reason is None:
        joined = {reader.output: _join_norm(reader, node) for reader in readers}
        clashes = (image_clash(graph, new) for new in joined.values())
        reason = next((clash for clash in clashes if clash), None)
    if reason is None:
        reason = _loss(graph, context, node, tuple(joined.values()))
    if reason is not None:
        context.log.add(node.name, "a kernel before its products", reason)
        return graph
    context.log.add(node.name, "computed by its products", f"{len(readers)} read it")
    kept = (joined.get(n.output, n) for n in graph.nodes if n.output != node.output)
    return graph.replace_nodes(kept)


def _loss(graph: Graph, context: Context, node: Node, joined: Sequence[Node]) -> str | None:
    """Return why it would take longer, whether or not the width of reads of local memory counts."""
    costs = context.costs
    norm = norm_clocks(graph, node, costs)
    before = [product_clocks(graph, reader, costs) for reader in graph.consumers[node.output]]
    after = [product_clocks(graph, new, costs) for new in joined]
    for of_both, of_joined in zip(zip(*before, strict=True), zip(*after, strict=True), strict=True):
        alone, together = norm + sum(of_both), sum(of_joined)
        if costs.machine.cost.joins.prologue * together >= alone:
            return f"estimated {together:.0f} clocks in its products, {alone:.0f} as a kernel"
    return None


def _norm_stays(graph: Graph, context: Context, node: Node) -> str | None:
    """Return why products cannot compute a norm, whatever they are."""
    read, made = graph.operand(node.inputs[0]), graph.operand(node.output)
    last = len(made.shape) - 1
    whole = [axis % (last + 1) for axis in node.attrs["axes"]] == [last]
    plain = (node.prologue, node.epilogue) == (None, None) and len(node.inputs) == 3
    stated = node.attrs.get("scale", True) and node.attrs.get("center", True)
    obstacles = {
        "it does more than to norm the channels of a token": not plain or not whole,
        "it has no gains or no offsets": not stated,
        "its gains are computed": any(
            graph.tensors[name].value is None for name in node.inputs[1:]
        ),
        "sums of what is not centred are in halves": context.options.compute_dtype != "float32",
        "what it reads is not stored in halves": read.dtype != "float16",
        "it lies neither in texels nor in blocks": read.memory
        not in (Memory.TEXTURE, Memory.BLOCKED),
        "it is read in another layout": read.roles.roles != made.roles.roles
        or read.roles.order is not made.roles.order,
        "its tokens are no whole blocks": read.extents.c % LANES > 0,
        "its numbers are kept exact": graph.precision(node.output).is_special,
    }
    found = next((reason for reason, holds in obstacles.items() if holds), None)
    return found or other_use(graph, node)


def _readers_do_without(graph: Graph, context: Context, node: Node) -> str | None:
    """Return why not all that read a norm can compute it."""
    gains = graph.tensors[node.inputs[1]].value
    for reader in graph.consumers[node.output]:
        if not is_row_product(graph, reader) or is_of_few_bits(reader):
            return f"{reader.op} {reader.name} reads it too"
        if not reads_first_alone(reader, node.output):
            return f"{reader.name} reads it beside its own input"
        matrix = graph.tensors[reader.inputs[1]].value
        if matrix is None or gains is None:
            return f"{reader.name} has a computed matrix"
        obstacles = {
            "few tokens": is_of_few_tokens(graph, reader, context.target.cost),
            "a norm or a gate already": len(read_form(reader).matrices) > 1
            or bool(read_form(reader).gains),
            "a result that is kept exact": graph.precision(reader.output).is_special,
            "weights that halves do not hold with the gains": not _fits_half(
                gained_matrix(matrix, gains)
            ),
        }
        found = next((reason for reason, holds in obstacles.items() if holds), None)
        if found is not None:
            return f"{reader.name} has {found}"
    return None


def _fits_half(matrix: np.ndarray) -> bool:
    """Return whether each column's largest weight is a half of full precision, or zero."""
    largest = np.abs(matrix).max(axis=0)
    return bool(np.all((largest <= HALF_MAX) & ((largest >= _LEAST_WEIGHT) | (largest == 0.0))))


def _join_norm(reader: Node, norm: Node) -> Node:
    """Return the product on what its norm reads."""
    return replace(
        reader,
        inputs=(norm.inputs[0], reader.inputs[1], *norm.inputs[1:], *reader.inputs[2:]),
        attrs={**reader.attrs, CENTRED: float(norm.attrs["epsilon"])},
        fused=(*norm.operators, *reader.operators),
    )
