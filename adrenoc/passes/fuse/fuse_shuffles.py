"""Let convolutions write pixel shuffles, where the cost model says that it wins.

A convolution whose channels become a rectangle of pixels each is a transposed convolution of that
stride: each of its phases makes the channels of one pixel, from the same rows and columns.

Before -> after:
    c[1, 256, h, w] = conv2d(x, w of 3 x 3); y[1, 64, 2 h, 2 w] = depth_to_space(c)
    y = conv2d_transpose(x, the same weights as 6 x 6, strides 2)

What the convolution adds to its channels is then of channels and phases: a small image, read at
the row and column within the rectangle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import BufferLoad, decl_buffer, floormod, iconst, tvm
from adrenoc.ir.graph import Body, Graph, Node, Placement, Tensor
from adrenoc.ir.layout import Layout, Memory
from adrenoc.kernels.body_cost import loads_of
from adrenoc.kernels.families.conv.local_conv import WIDEST_ROW
from adrenoc.kernels.families.conv_transpose import least_phase_clocks
from adrenoc.kernels.families.operators import can
from adrenoc.kernels.families.shared.conv_geometry import (
    ConvGeometry,
    conv_geometry,
    is_depthwise,
    transpose_to_oihw,
)
from adrenoc.kernels.families.shared.operator import Fusion
from adrenoc.passes.analyse.reads import image_clash, other_use
from adrenoc.passes.context import Context
from adrenoc.passes.fuse.fuse_maps import inline
from adrenoc.passes.fuse.fuse_prologues import conv_clocks, map_clocks
from adrenoc.passes.fuse.index_maps import pixel_shuffle
from adrenoc.passes.fuse.split_winograd import winograd_clocks

TRANSPOSED = "conv2d_transpose"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fused:
    """The transposed convolution, with the constants that it needs."""

    node: Node
    tensors: Mapping[str, Tensor]
    placements: Mapping[str, Placement]


def fuse_shuffles(graph: Graph, context: Context) -> Graph:
    """Let convolutions write the pixels that their channels become."""
    costs, log = context.costs, context.log
    for node in graph.nodes:
        found = _find_shuffle(graph, node)
        if found is None:
            continue
        conv, channels = found
        reason = _refusal(graph, node, conv)
        if reason is None:
            fused = _join_pair(graph, node, conv, channels)
            joined = _replace_pair(graph, fused, gone=conv.output)
            reason = image_clash(joined, fused.node)
        if reason is None:
            together = least_phase_clocks(joined, fused.node, costs)
            apart = map_clocks(graph, node, conv.output, costs.machine) + min(
                conv_clocks(graph, conv, conv.inputs[0], costs), winograd_clocks(graph, conv, costs)
            )
            reason = f"estimated {together:.0f} clocks, {apart:.0f} as two kernels"
            if together < apart:
                log.add(conv.name, f"writes the pixels of {node.name}", reason)
                graph = joined
                continue
        log.add(node.name, "a kernel after its convolution", reason)
    return graph


def _find_shuffle(graph: Graph, node: Node) -> tuple[Node, np.ndarray] | None:
    """Return the convolution whose channels a map makes pixels of, and which: `[C, rows,
    columns]`."""
    body, layout = node.body, graph.placements[node.output].layout
    if not node.is_map or body is None or body.reduced or node.epilogue is not None:
        return None
    if layout is None:
        return None
    for name in node.inputs:
        conv = graph.producers.get(name)
        if conv is None or not can(conv, Fusion.SHUFFLE) or conv.output != name:
            continue
        theirs = graph.placements[name].layout
        if theirs is None or theirs.roles != layout.roles:
            continue
        loads = [load for load in loads_of(body.value) if body.name_of(load) == name]
        shapes = graph.tensors[name].shape, graph.tensors[node.output].shape
        found = pixel_shuffle(body, loads, layout, *shapes)
        if found is not None:
            return conv, found
    return None


def _refusal(graph: Graph, node: Node, conv: Node) -> str | None:
    """Return why the convolution cannot write the pixels."""
    geometry, source = conv_geometry(graph, conv), graph.operand(conv.inputs[0])
    pads = conv.attrs["padding"]
    inside = all(pad < k for pad, k in zip(pads, (*geometry.kernel, *geometry.kernel), strict=True))
    shared = len(graph.consumers[conv.output]) > 1 or conv.output in graph.output_names
    used = other_use(graph, conv)
    blocked = (Memory.TEXTURE, Memory.BLOCKED)
    obstacles = {
        f"{conv.output} is also read as it is": shared or conv.inputs.count(conv.output) > 0,
        f"{conv.output}: {used}": used is not None,
        f"{conv.name} has strides, dilation or groups": geometry
        != ConvGeometry(kernel=geometry.kernel, padding=geometry.padding)
        or is_depthwise(graph, conv),
        f"{conv.name} has a row of {geometry.kernel[1]} taps": geometry.kernel[1] > WIDEST_ROW,
        f"{conv.name} has more padding than taps": not inside,
        f"{conv.name} computes what it reads": conv.prologue is not None,
        f"{conv.name} reads {source.memory.value}": source.memory not in blocked,
        "one of them is kept in float32, or is whole numbers": any(
            graph.precision(name).is_special for name in (conv.output, node.output)
        )
        or graph.operand(node.output).memory is Memory.BYTES,
        f"{conv.name} adds another tensor to its channels": not _adds_constants(graph, conv),
    }
    return next((reason for reason, found in obstacles.items() if found), None)


def _adds_constants(graph: Graph, conv: Node) -> bool:
    """Return whether all that follows a convolution is of its channels, and constant."""
    body, layout = conv.epilogue, graph.placements[conv.output].layout
    if body is None:
        return True
    axis = None if layout is None else layout.axis("C")
    for load in loads_of(body.value):
        name = body.name_of(load)
        if name == Node.RESULT:
            continue
        tensor = graph.tensors[name]
        moving = [i for i, extent in zip(load.indices, tensor.shape, strict=True) if extent > 1]
        if tensor.value is None or axis is None or len(moving) > 1:
            return False
        if any(not index.same_as(body.axes[axis]) for index in moving):
            return False
    return True


def _join_pair(graph: Graph, node: Node, conv: Node, channels: np.ndarray) -> _Fused:
    """Return the transposed convolution that does what both do."""
    steps = channels.shape[1:]
    weight = conv.inputs[1]
    oihw = transpose_to_oihw(_value(graph, weight), str(conv.attrs["kernel_layout"]))
    tensors: dict[str, Tensor] = {}
    placements: dict[str, Placement] = {}

    def constant(like: str, value: np.ndarray, layout: Layout) -> str:
        name = f"{like}.of.{node.output}"
        tensors[name] = replace(graph.tensors[like], name=name, shape=value.shape, value=value)
        placements[name] = replace(graph.placements[like], layout=layout)
        return name

    weights = constant(weight, _weights(oihw, channels), Layout("NCHW"))
    epilogue, read = _epilogue(graph, node, conv, channels, constant)
    top, left, bottom, right = conv.attrs["padding"]
    (sh, sw), (kh, kw) = steps, oihw.shape[2:]
    pads = [(kh - 1 - top) * sh, (kw - 1 - left) * sw, (kh - 1 - bottom) * sh]
    attrs = {
        "strides": list(steps),
        "padding": [*pads, (kw - 1 - right) * sw],
        "output_padding": [0, 0],
        "dilation": [1, 1],
        "groups": 1,
        "data_layout": conv.attrs["data_layout"],
        "kernel_layout": "IOHW",
        "out_layout": conv.attrs["out_layout"],
    }
    fused = replace(
        node,
        op=TRANSPOSED,
        inputs=(conv.inputs[0], weights, *read),
        attrs=attrs,
        body=None,
        epilogue=epilogue,
        fused=(*conv.operators, *node.operators),
        also=(*conv.names, *node.also),
    )
    return _Fused(node=fused, tensors=tensors, placements=placements)


def _value(graph: Graph, name: str) -> np.ndarray:
    value = graph.tensors[name].value
    if value is None:
        raise ValueError(f"{name} is no constant")
    return value


def _weights(oihw: np.ndarray, channels: np.ndarray) -> np.ndarray:
    """Weights `[I, O, rows * KH, columns * KW]` of the transposed convolution."""
    count, rows, columns = channels.shape
    _, inputs, kh, kw = oihw.shape
    by_phase = oihw[channels][..., ::-1, ::-1]  # [O, rows, columns, I, KH, KW], taps going back
    ordered = by_phase.transpose(3, 0, 4, 1, 5, 2)
    return np.ascontiguousarray(ordered).reshape(inputs, count, kh * rows, kw * columns)


def _epilogue(
    graph: Graph, node: Node, conv: Node, channels: np.ndarray, constant: Any
) -> tuple[Body | None, list[str]]:
    """Return what follows the transposed convolution, and the tensors that it reads."""
    body, layout = node.body, graph.operand(node.output).roles
    if body is None:
        raise ValueError(f"{node.name} has no body")
    of_conv = conv.epilogue
    if of_conv is None:
        renamed = {b: Node.RESULT if n == conv.output else n for b, n in body.sources.items()}
        whole = replace(body, sources=renamed)
    else:
        whole = inline(body, conv.output, of_conv)
    own = [] if of_conv is None else [b for b, n in of_conv.sources.items() if n != Node.RESULT]
    steps = {"H": channels.shape[1], "W": channels.shape[2]}
    at = [
        floormod(axis, steps[role]) if role in steps else (axis if role == "C" else iconst(0))
        for role, axis in zip(layout.roles, body.axes, strict=True)
    ]
    sources: dict[Any, str] = {}
    made: dict[str, Any] = {}

    def rewritten(load: Any) -> Any:
        name = whole.name_of(load)
        if name == Node.RESULT:
            sources[load.source] = name
            return BufferLoad(load.source, list(body.axes))
        if not any(load.source.same_as(buffer) for buffer in own):
            sources[load.source] = name
            return load
        if name not in made:
            value = _arrange_rectangle(_value(graph, name), channels, layout)
            new = constant(name, value, layout)
            made[name] = decl_buffer(value.shape, str(load.source.dtype), name=new)
            sources[made[name]] = new
        return BufferLoad(made[name], at)

    value = structural_map(whole.value, (tvm.ir.TensorLoad, rewritten))
    read = [name for name in dict.fromkeys(sources.values()) if name != Node.RESULT]
    if isinstance(value, tvm.ir.TensorLoad) and not read:
        return None, []
    return replace(whole, value=value, sources=sources), read


def _arrange_rectangle(value: np.ndarray, channels: np.ndarray, layout: Layout) -> np.ndarray:
    """Return what is of a convolution's channels, as a small image of a rectangle of pixels."""
    chw = np.broadcast_to(value.reshape(-1), (channels.size,))[channels]
    nchw = np.expand_dims(chw, 0)
    return np.ascontiguousarray(nchw.transpose(["NCHW".index(role) for role in layout.roles]))


def _replace_pair(graph: Graph, fused: _Fused, *, gone: str) -> Graph:
    """Return the graph with the transposed convolution in place of what it does."""
    placed = replace(
        graph,
        tensors={**graph.tensors, **fused.tensors},
        placements={**graph.placements, **fused.placements},
    )
    kept = (
        fused.node if node.output == fused.node.output else node
        for node in graph.nodes
        if node.output != gone
    )
    return placed.replace_nodes(kept)
