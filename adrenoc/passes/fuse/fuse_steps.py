"""Attention of one token over caches writes the new rows itself, in parts where that is faster.

Before -> after:
    keys' = append_rows(keys, qkv); values' = append_rows(values, qkv)
    y = cached_attention(qkv, keys', values')

    parts, keys', values' = step_attention(qkv, keys, values)
    y = join_parts(parts)

Heads of keys alone leave a GPU idle, so that the rows are taken in several parts.

The product of such a token joins the parts itself (`fuse_parts`).

Before -> after:
    y = join_parts(parts); z = n_bits(y, w)             z = n_bits(parts, w), `joined`
    y = join_parts(parts); z = matmul(y, w)             z = matmul(parts, w), `joined`

Every work-group of such a product mixes all numbers of the token anew: it wins where that takes
less than one more kernel in the queue.
"""

from dataclasses import replace

from adrenoc.importers.relax.own import KEYS, OF_ATTENTION, OF_ROWS, VALUES, head_of, name_constants
from adrenoc.ir.graph import Graph, Node, Placement, Tensor
from adrenoc.ir.layout import Memory, channels_last
from adrenoc.kernels.families.cache.operator import (
    JOIN,
    STEP,
    attends_one_token,
    count_splits,
    fits_step,
    joins_parts,
    parts_shape,
)
from adrenoc.kernels.families.operators import (
    changed_input,
    is_of_few_tokens,
    is_row_product,
    row_product_clocks,
    whole_inputs,
)
from adrenoc.kernels.families.shared.row_product import JOINED, SUNK, read_form
from adrenoc.passes.analyse.reads import first_obstacle, image_clash, other_use, reads_first_alone
from adrenoc.passes.context import Context

_OTHERS = VALUES + 1
_X, _FIRST = 1, 3
"""Of what adds rows: the input that holds them, and the first behind their number."""


def fuse_steps(graph: Graph, context: Context) -> Graph:
    """Join attentions of one token with what adds its rows."""
    for node in graph.nodes:
        if not attends_one_token(graph, node):
            continue
        appends = [graph.producers.get(node.inputs[at]) for at in (KEYS, VALUES)]
        rows = [one for one in appends if one is not None and changed_input(one) is not None]
        reason = _refusal(graph, context, node, rows)
        if reason is not None:
            context.log.add(node.name, "new rows written by kernels of their own", reason)
            continue
        graph = _join(graph, context, node, (rows[0], rows[1]))
    return graph


def _refusal(graph: Graph, context: Context, node: Node, rows: list[Node]) -> str | None:
    """Return why an attention cannot write the new rows."""
    if len(rows) < 2 or rows[0] is rows[1]:
        return "keys or values are not made by adding rows"
    order = {one.output: number for number, one in enumerate(graph.nodes)}
    early = [
        reader
        for row in rows
        for reader in graph.consumers[row.output]
        if order[reader.output] < order[node.output]
    ]
    if early:
        return f"{early[0].name} reads them before it"
    _, kept, _, width = graph.tensors[node.inputs[KEYS]].shape
    head = head_of(width, int(node.attrs["bits"]))
    group = int(node.attrs["heads"]) // kept
    return _refusal_of_forms(node, *rows) or fits_step(
        head, group, context.limits, context.costs.machine
    )


def _refusal_of_forms(node: Node, keys: Node, values: Node) -> str | None:
    """Return why the three are no form that one kernel has."""
    held = name_constants(OF_ATTENTION, node.attrs, node.inputs[_OTHERS:])
    turned, scales = held["tables"], held["scales"]
    obstacles = {
        "they count rows by other numbers": {keys.inputs[2], values.inputs[2]} != {node.inputs[1]},
        "values are rotated or normed": values.attrs["rotated"] or values.attrs["normed"],
        "they keep numbers in other ways": [
            (one.attrs["bits"], *name_constants(OF_ROWS, one.attrs, one.inputs[_FIRST:])["scales"])
            for one in (keys, values)
        ]
        != [(node.attrs["bits"], *scales[at : at + 1]) for at in range(2)],
        "keys and queries turn by other tables": tuple(
            name_constants(OF_ROWS, keys.attrs, keys.inputs[_FIRST:])["tables"]
        )
        != tuple(turned),
        "keys and queries are made ready in other ways": any(
            keys.attrs[name] != node.attrs[name]
            for name in ("rotated", "interleaved", "normed", "epsilon")
        ),
    }
    return first_obstacle(obstacles)


def _join(graph: Graph, context: Context, node: Node, rows: tuple[Node, Node]) -> Graph:
    keys, values = rows
    _, kept, count, width = graph.tensors[node.inputs[KEYS]].shape
    head = head_of(width, int(node.attrs["bits"]))
    splits = count_splits(kept, count, context.costs.machine)
    queries = int(node.attrs["heads"])
    shape = parts_shape(splits, queries, head)
    parts = Tensor(name=f"{node.output}_parts", shape=shape, dtype="float32")
    held = name_constants(OF_ATTENTION, node.attrs, node.inputs[_OTHERS:])
    gains = (*held["gains"], *name_constants(OF_ROWS, keys.attrs, keys.inputs[_FIRST:])["gains"])
    step = Node(
        name=f"{node.name}_parts",
        op=STEP,
        inputs=(
            *node.inputs[:2],
            keys.inputs[0],
            values.inputs[0],
            keys.inputs[_X],
            values.inputs[_X],
            *held["tables"],
            *gains,
            *held["bias"],
            *held["scales"],
        ),
        output=parts.name,
        attrs={
            **node.attrs,
            "firsts": tuple(int(one.attrs["first"]) for one in (node, keys, values)),
        },
        fused=(*keys.operators, *values.operators, *node.operators),
        also_writes=(keys.output, values.output),
    )
    epilogue = set() if node.epilogue is None else set(node.epilogue.sources.values())
    joined = replace(
        node,
        op=JOIN,
        inputs=(parts.name, *held["sinks"], *(name for name in node.inputs if name in epilogue)),
        attrs={"sunk": node.attrs["sunk"]},
        fused=(JOIN,),
    )
    context.log.add(
        node.name,
        f"writes its new rows, over {splits} parts of the rows",
        f"{kept} heads of keys, {context.costs.machine.processors} processors",
    )
    made = {node.output: (step, joined), keys.output: (), values.output: ()}
    nodes = [new for old in graph.nodes for new in made.get(old.output, (old,))]
    placed = Placement(memory=Memory.BLOCKED, layout=channels_last(len(shape)), dtype=parts.dtype)
    graph = replace(graph, placements={**graph.placements, parts.name: placed})
    return graph.replace_nodes(nodes, [parts])


def fuse_parts(graph: Graph, context: Context) -> Graph:
    """Join parts of attention in the products that read them."""
    for node in graph.nodes:
        if joins_parts(node):
            graph = _join_parts(graph, context, node)
    return graph


def _join_parts(graph: Graph, context: Context, node: Node) -> Graph:
    readers = graph.consumers[node.output]
    if len(readers) != 1 or not is_row_product(graph, readers[0]):
        context.log.add(node.name, "joins its parts in a kernel", "no product alone reads them")
        return graph
    (reader,) = readers
    form = read_form(reader)
    matrices = (name for names in form.matrices for name in names)
    gains = (form.gains,) if form.gains else ()
    joined = replace(
        reader,
        inputs=(node.inputs[0], *matrices, *gains, *node.inputs[1:], *form.rest),
        attrs={**reader.attrs, JOINED: True, SUNK: bool(node.attrs["sunk"])},
        fused=(*node.operators, *reader.operators),
    )
    reason = _parts_refusal(graph, context, node, reader) or image_clash(graph, joined)
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
    return graph.exchange([joined], [node])


def _parts_refusal(graph: Graph, context: Context, node: Node, reader: Node) -> str | None:
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
    found = first_obstacle(obstacles)
    return found or other_use(graph, node)
