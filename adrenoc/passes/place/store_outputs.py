"""Write outputs of the model where they are computed, and not by kernels that copy them.

An output lies in a row-major buffer.  One that is also read inside, or that is another tensor
without its axes of one element, is a copy; the kernel that makes its source writes it too.

Before -> after:
    y = conv2d(x); output = copy of y; z = conv2d(y)            conv2d(x) writes y and the output
    y[1, 1000, 1, 1] = mean(x); output[1, 1000] = reshape(y)    mean(x) writes the output
"""

from __future__ import annotations

from adrenoc.base.tvmapi import tvm
from adrenoc.ir.graph import Graph, Node, Store
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import Memory
from adrenoc.passes.context import Context
from adrenoc.passes.place.second_stores import add_stores, can_store

_MOVES = {"layout", "reshape"}


def store_outputs(graph: Graph, context: Context) -> Graph:
    """Let the kernels that make what an output is a copy of write the output."""
    log = context.log
    stores: dict[str, list[Store]] = {}
    gone = set()
    for node in graph.nodes:
        if node.output not in graph.output_names or not _copies(graph, node):
            continue
        if node.output in graph.states:  # others may yet read what lies there
            continue
        (source,) = node.inputs
        maker, first = _maker(graph, source, node.output)
        if maker is None:
            continue
        gone.add(node.output)
        stores.setdefault(maker.output, []).append(Store(tensor=node.output, first=first))
        log.add(node.output, f"written by {maker.name}", f"it is {source} in a row-major buffer")
    if not gone:
        return graph
    kept = [node for node in graph.nodes if node.output not in gone]
    read = {graph.owner(name) for node in kept for name in node.inputs}
    read |= {graph.owner(name) for name in graph.outputs if name not in gone}
    return graph.replace_nodes(add_stores(graph, n, stores.get(n.output), read) for n in kept)


def _copies(graph: Graph, node: Node) -> bool:
    """Return whether a node copies a tensor of the same rows, columns and channels to its
    output."""
    if not node.is_map or node.epilogue is not None or not set(node.operators) <= _MOVES:
        return False
    if node.body is None or not isinstance(node.body.value, tvm.ir.TensorLoad):
        return False
    made, source = graph.operand(node.output), graph.operand(node.inputs[0])
    if made.memory is not Memory.PLAIN or made.layout is None or source.layout is None:
        return False
    same = made.shape == source.shape and made.layout.roles == source.layout.roles
    vectors = made.extents.c == source.extents.c and made.extents[2:] == (1, 1)
    # Rows of channels alone are the same in any shape.
    return made.extents == source.extents and (same or (vectors and made.extents.n == 1))


def _maker(graph: Graph, source: str, output: str) -> tuple[Node | None, int]:
    """Return the node whose kernel can write a copy of a tensor, and the tensor's first block
    there."""
    makers = graph.makers(source)
    if len(makers) != 1 or not can_store(graph, makers[0]):
        return None, 0
    (maker,) = makers
    whole, part = graph.operand(maker.output).extents, graph.operand(output).extents
    (owner, at), (place, start) = graph.place(source), graph.place(maker.output)
    first = at - start
    ends = first * LANES + part.c
    fits = owner == place and first >= 0 and (ends == whole.c or part.c % LANES == 0)
    return (maker, first) if fits and ends <= whole.c else (None, 0)
