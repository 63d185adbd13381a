"""Products of tokens by constant matrices take in norms and each other, or round their tokens.

Of few tokens, they take in the norm before them, and each other (`fuse_products`).

Before -> after:
    n = rms_norm(x, gains); y = n_bits(n, w)            y = n_bits(x, w, gains), `normed`
    n = rms_norm(x, gains); y = matmul(n, w)            y = matmul(x, w, gains), `normed`
    g = n_bits[n_bits sigmoid multiply](x, w1)
    y = n_bits[n_bits multiply](x, w2, g)               y = n_bits(x, w2, w1), `gated`

Every work-group of such a product reads all of a token's numbers: their squares cost it little.
Of many tokens a norm by itself is cheap, and their weights are read or opened by many work-groups.

Of many tokens, they take in the layer norm before them (`fuse_norms`).

Before -> after:
    n = layer_norm(x, g, o); y = matmul(n, w)           y = matmul(x, w, g, o), `centred`

The factors go into the weights; what the kernel has to know of a token is its mean and deviation.
Every work-group takes those anew, which has to cost less than the norm's kernel and its launch.
It multiplies x as it is, and takes the mean's part off the sums: right where these are in float
and x lies in halves, whose own rounding is 2^13 times as large.

Of many tokens by weights of few bits, they round these where that is asked for (`round_tokens`).

Before -> after:
    y = n_bits[n_bits add](x, words, scales)
    x.bytes = round_tokens(x); y = n_bits_dot[n_bits add](x.bytes, words, scales)

A dot product multiplies four bytes where a multiply-add has one number.  What several products read
is rounded once.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from adrenoc.ir.graph import Graph, Node, Placement, Tensor
from adrenoc.ir.half import HALF_MAX
from adrenoc.ir.layout import LANES, Memory, TexelOrder
from adrenoc.kernels.families.conv.conv_rules import gained_matrix
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
)
from adrenoc.kernels.families.reduce.operator import is_layer_norm, is_rms_norm, norm_clocks
from adrenoc.kernels.families.shared.row_product import (
    CENTRED,
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
from adrenoc.passes.fuse.fuse_prologues import product_clocks
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
    joined = [_join_norm(reader, node, NORMED) for reader in readers]
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


def _join_norm(reader: Node, norm: Node, form_name: str) -> Node:
    """Return the product on what its norm reads."""
    form = read_form(reader)
    matrices = (name for names in form.matrices for name in names)
    return replace(
        reader,
        inputs=(norm.inputs[0], *matrices, *norm.inputs[1:], *form.rest),
        attrs={**reader.attrs, form_name: float(norm.attrs["epsilon"])},
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
        parts={} if gate.epilogue is None else {GATE: gate.epilogue},
        fused=(*gate.operators, *node.operators),
    )
    if image_clash(graph, joined) is not None:
        return graph
    context.log.add(gate.name, "computed with the product that reads it", "both read the same")
    return graph.exchange([joined], [gate])


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


_LEAST_WEIGHT = 2.0**-12
"""The least weight that halves hold with all their bits, but for two."""


def fuse_norms(graph: Graph, context: Context) -> Graph:
    """Join layer norms with the products that read them, where that takes less time."""
    for node in graph.nodes:
        if is_layer_norm(node):
            graph = _take_layer_norm(graph, context, node)
    return graph


def _take_layer_norm(graph: Graph, context: Context, node: Node) -> Graph:
    readers = graph.consumers[node.output]
    if not any(is_row_product(graph, reader) for reader in readers):
        return graph
    reason = _layer_norm_stays(graph, context, node) or _readers_do_without(graph, context, node)
    joined = [] if reason else [_join_norm(reader, node, CENTRED) for reader in readers]
    reason = reason or find_clash(graph, joined) or _loss(graph, context, node, joined)
    if reason is not None:
        context.log.add(node.name, "a kernel before its products", reason)
        return graph
    context.log.add(node.name, "computed by its products", f"{len(readers)} read it")
    return graph.exchange(joined, [node])


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


def _layer_norm_stays(graph: Graph, context: Context, node: Node) -> str | None:
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
    found = first_obstacle(obstacles)
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
        found = first_obstacle(obstacles)
        if found is not None:
            return f"{reader.name} has {found}"
    return None


def _fits_half(matrix: np.ndarray) -> bool:
    """Return whether each column's largest weight is a half of full precision, or zero."""
    largest = np.abs(matrix).max(axis=0)
    return bool(np.all((largest <= HALF_MAX) & ((largest >= _LEAST_WEIGHT) | (largest == 0.0))))


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
        if not is_of_few_bits(node) or is_of_few_tokens(graph, node, context.target.cost):
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
            layout = graph.operand(source).roles.reorder(TexelOrder.PLANES)
            shape = list(graph.tensors[source].shape)
            shape[-1] = rounding.channels
            placement = Placement(memory=Memory.BYTES, layout=layout, dtype="uint32")
            tensors[name], placements[name] = (
                Tensor(name=name, shape=tuple(shape), dtype="float32"),
                placement,
            )
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
