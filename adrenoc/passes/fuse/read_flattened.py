"""Let products of one vector read it from the planes that it is the elements of.

A flattened image is the same elements in another order of channels; weights in the order in which
the image lies in memory make the copy needless.

Before -> after:
    f[1, 9216] = reshape(x[1, 256, 6, 6]); y = matmul(f, w)
    y = matmul(x, w), `flattened` among its attributes
"""

from __future__ import annotations

import math
from dataclasses import replace

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.operand import Memory
from adrenoc.kernels.families.matmul.gemv_rule import FLATTENED
from adrenoc.kernels.families.operators import can
from adrenoc.kernels.families.shared.operator import Fusion
from adrenoc.passes.analyse.image_clash import image_clash
from adrenoc.passes.analyse.other_uses import other_use, reads_first_alone
from adrenoc.passes.context import Context


def read_flattened(graph: Graph, context: Context) -> Graph:
    """Leave out flattening reshapes that only products of one vector by constants read."""
    log = context.log
    changed: dict[str, Node] = {}
    gone = set()
    for node in graph.nodes:
        if not _flattens(graph, node):
            continue
        readers = graph.consumers[node.output]
        other = next((n for n in readers if not _is_product(graph, n, node.output)), None)
        if other is not None:
            log.add(node.output, "flattened by a kernel", f"{other.op} {other.name} reads it")
            continue
        direct = [_reading(reader, node) for reader in readers]
        clash = next((c for reader in direct if (c := image_clash(graph, reader))), None)
        if clash is not None:
            log.add(node.output, "flattened by a kernel", clash)
            continue
        gone.add(node.output)
        changed.update((reader.output, reader) for reader in direct)
    if not gone:
        return graph
    return graph.replace_nodes(
        changed.get(n.output, n) for n in graph.nodes if n.output not in gone
    )


def _reading(reader: Node, node: Node) -> Node:
    """Return the product on what is flattened."""
    inputs = (node.inputs[0], *reader.inputs[1:])
    fused = (*node.operators, *reader.operators)
    return replace(reader, inputs=inputs, attrs={**reader.attrs, FLATTENED: True}, fused=fused)


def _flattens(graph: Graph, node: Node) -> bool:
    """Return whether a node makes one vector of an image that lies in blocks, in its own order."""
    if not node.is_map or node.operators != ("reshape",) or node.epilogue is not None:
        return False
    name, (source,) = node.output, node.inputs
    if graph.precision(name).is_special:
        return False
    made, held = graph.operand(name), graph.operand(source)
    return (
        held.memory in (Memory.TEXTURE, Memory.BLOCKED)
        and held.layout is not None
        and held.extents.n == 1
        and other_use(graph, node) is None
        and made.shape == (1, math.prod(held.shape))
    )


def _is_product(graph: Graph, reader: Node, name: str) -> bool:
    """Return whether a node is a product of one vector, this one, by a constant matrix."""
    if not can(reader, Fusion.FLATTENED) or not reads_first_alone(reader, name):
        return False
    weight, out = graph.tensors[reader.inputs[1]], graph.operand(reader.output)
    return (
        weight.value is not None
        and len(weight.shape) == 2
        and out.extents.c == math.prod(out.shape)
        and reader.prologue is None
    )
