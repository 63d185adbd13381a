"""Put a copy wherever a region of CLML reads a tensor that textures read too.

A region reads row-major memory.  What only regions read is written so by its producer; what other
kernels read as well stays in a texture, and the region gets a copy.

The library's tensors lie in buffers.  Memory that is a buffer and an image at once
(cl_khr_image2d_from_buffer) would need no copy, but such an image is an `image2d_t` alone, and the
kernels that TVM's code generator prints read and write `image2d_array_t`.

Before -> after:
    y -> relu, y -> clml[conv2d]        y -> relu, y -> layout -> y_rows -> clml[conv2d]
"""

from __future__ import annotations

from dataclasses import replace

from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.node_kinds import ALLOC, CLML, CPU
from adrenoc.passes.context import Context
from adrenoc.passes.place.copy_node import copy_node


def bridge_regions(graph: Graph, _context: Context) -> Graph:
    """Insert the copies that regions of OpenCL ML read, and those of what they make."""
    if not any(node.is_region for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    copied: dict[str, str] = {}
    for node in graph.nodes:
        if not node.is_region:
            nodes.append(node)
            continue
        for name in node.inputs:
            if name not in copied and _needs_copy(graph, name):
                rows = replace(graph.tensors[name], name=f"{name}_rows", value=None)
                tensors.append(rows)
                nodes.append(copy_node(name, rows, "layout"))
                copied[name] = rows.name
        nodes.append(_rename_arguments(node, copied))
    return graph.replace_nodes(nodes, tensors)


def _needs_copy(graph: Graph, name: str) -> bool:
    if graph.tensors[name].value is not None:
        return True
    if name in graph.input_names:
        return False
    maker = graph.producers[name].op
    if maker in (CLML, ALLOC):
        return False
    return (
        maker == CPU
        or name in graph.output_names
        or any(not reader.is_region for reader in graph.consumers[name])
    )


def _rename_arguments(node: Node, copied: dict[str, str]) -> Node:
    arguments = tuple(copied.get(n, n) for n in node.attrs["arguments"])
    inputs = (*dict.fromkeys(arguments), *node.attrs["results"][1:])
    return replace(node, inputs=inputs, attrs={**node.attrs, "arguments": arguments})
