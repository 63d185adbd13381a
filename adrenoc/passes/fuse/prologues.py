"""Maps that a convolution can compute where it reads, and the node that does so.

`fuse_prologues` and `read_images` both build such nodes; which of them pays is theirs to say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adrenoc.base.tvmapi import tvm
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.body_cost import loads_of
from adrenoc.passes.analyse.elementwise import reads_elementwise
from adrenoc.passes.analyse.moved_reads import find_moved_source, mentions


def source_of(graph: Graph, node: Node) -> str | None:
    """Return the tensor that a map changes element by element, or reads at other rows and columns.

    What else it reads is of its channels.
    """
    return find_moved_source(graph, node) or _find_changed_source(graph, node)


def attach_prologue(reader: Node, node: Node, source: str) -> Node:
    """Return the convolution on what a map changes element by element, which it then computes
    itself."""
    others = [n for n in node.inputs if n != source]
    rest = [n for n in reader.inputs if n != node.output]
    return replace(
        reader,
        inputs=tuple(dict.fromkeys((source, *rest, *others))),
        prologue=node.body,
        fused=(*node.fused, *reader.fused),
    )


def _find_changed_source(graph: Graph, node: Node) -> str | None:
    if not node.is_map or node.body is None or node.epilogue is not None or node.body.reduced:
        return None
    if isinstance(node.body.value, tvm.ir.TensorLoad) or node.output in graph.output_names:
        return None
    shape = graph.tensors[node.output].shape
    alike = [n for n in node.inputs if graph.tensors[n].shape == shape]
    computed = [n for n in alike if graph.tensors[n].value is None]
    if len(alike) != 1 or not computed or not reads_elementwise(node.body, alike[0], graph):
        return None
    layout = graph.placements[node.output].layout
    channel = None if layout is None else layout.axis("C")
    others = [load for load in loads_of(node.body.value) if not _is(node.body, load, alike[0])]
    if layout is None or channel is None:
        return None
    moving = [axis for axis, role in zip(node.body.axes, layout.roles, strict=True) if role in "HW"]
    if any(mentions(load.indices, moving) for load in others):
        return None
    return alike[0]


def _is(body: Body, load: Any, name: str) -> bool:
    return body.source_of(load.source) == name
