"""The layers of a compiled network: which of the model's convolutions each launch computes."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fitting.mnn_kernels import Convolution

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

COPY = "layout"
"""What a copy between two memories is called."""
OF_WINOGRAD = (".tiles", ".planes")
"""What the names of the first two of Winograd's three kernels end with."""


def convolutions_of(graph: Any) -> dict[str, Convolution]:
    """The convolutions, and products by weights, of a graph in which none was joined yet."""
    from adrenoc.kernels.families.operators import can, is_kind
    from adrenoc.kernels.families.shared.operator import Fusion, Kind

    found = {}
    for node in graph.nodes:
        if can(node, Fusion.PAIR):
            found[node.name] = _convolution(graph, node)
        elif is_kind(node, Kind.PRODUCT) and graph.tensors[node.inputs[1]].value is not None:
            found[node.name] = _product(graph, node)
    return found


def layers_of(program: Any) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The nodes that were one layer each, and the kernels that compute them, in order.

    A copy of what the model is given belongs to the layer that reads it.
    """
    graph = program.graph
    copied: dict[str, str] = {}
    names: dict[str, tuple[str, ...]] = {}
    kernels: dict[str, list[str]] = {}
    for step in program.steps:
        node = graph.producers.get(step.writes[0])
        if step.place != "gpu" or node is None:
            continue
        if _copies_input(graph, node):
            copied[node.output] = step.kernel
        name = next((node.name.removesuffix(e) for e in OF_WINOGRAD if node.name.endswith(e)), "")
        name = name or node.name
        copies = [copied.pop(tensor) for tensor in node.inputs if tensor in copied]
        kernels.setdefault(name, []).extend((*copies, step.kernel))
        names[name] = tuple(dict.fromkeys((*names.get(name, ()), *node.also, name)))
    for name, of_layer in kernels.items():
        yield names[name], tuple(of_layer)


def _convolution(graph: Any, node: Any) -> Convolution:
    from adrenoc.kernels.families.shared.conv_geometry import conv_geometry

    geometry = conv_geometry(graph, node)
    source, result = (graph.operand(name).extents for name in (node.inputs[0], node.output))
    return Convolution(
        channels=source.c,
        out_channels=result.c,
        size=(source.h, source.w),
        out_size=(result.h, result.w),
        kernel=geometry.kernel,
        strides=geometry.strides,
        dilation=geometry.dilation,
        groups=geometry.groups,
        images=source.n,
        given=_is_given(graph, node),
    )


def _is_given(graph: Any, node: Any) -> bool:
    """Whether it reads what the model is given, or a copy of that."""
    source = node.inputs[0]
    maker = graph.producers.get(source)
    return source in graph.input_names or (maker is not None and _copies_input(graph, maker))


def _copies_input(graph: Any, node: Any) -> bool:
    """Whether a node only brings what the model is given into another memory."""
    return node.operators == (COPY,) and not graph.input_names.isdisjoint(node.inputs)


def _product(graph: Any, node: Any) -> Convolution:
    """A row of the left operand is a pixel of a convolution, in a column of them as MNN has it."""
    *rows, depth = graph.tensors[node.inputs[0]].shape
    columns = graph.tensors[node.inputs[1]].shape[-1]
    pixels = (math.prod(rows), 1)
    return Convolution(
        channels=depth, out_channels=columns, size=pixels, out_size=pixels, product=True
    )
