"""One kernel for a depthwise convolution and the 1x1 convolution after it, where that is faster.

A depthwise convolution waits for memory and writes as much as it reads.  What it writes need not
exist if the 1x1 convolution that reads it computes it (`adrenoc/kernels/separable.py`).

Before -> after:
    d = conv2d[conv2d add clip](x, w1, b1); y = conv2d[conv2d add](d, w2, b2)
    y = separable_conv2d[conv2d add clip conv2d add](x, w1, w2, b1, b2), finish clip(r + b1)
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from adrenoc.decision import DecisionLog
from adrenoc.gpu import Limits, Performance
from adrenoc.graph import Graph, Node
from adrenoc.kernels.body_cost import loads_of
from adrenoc.kernels.conv2d import ConvGeometry
from adrenoc.layout import LANES, agree
from adrenoc.operand import Memory
from adrenoc.options import CompileOptions
from adrenoc.passes.fuse import MAX_INPUTS
from adrenoc.passes.fuse_prologues import finite_at_zero
from adrenoc.passes.moved_reads import mentions
from adrenoc.rules import depthwise
from adrenoc.rules.conv2d import conv_geometry, conv_work, is_depthwise
from adrenoc.rules.conv_tile import least_clocks
from adrenoc.rules.conv_work import ConvWork
from adrenoc.rules.gemv import suits_gemv
from adrenoc.rules.machine import Machine
from adrenoc.rules.separable import FINISH, SEPARABLE, separable_work
from adrenoc.rules.separable_tile import SeparableWork, candidates, estimate_clocks
from adrenoc.tvmapi import bits_of

WORTH = 1.1
"""By how much it has to win: for the error of the estimates."""


def fuse_separable(
    graph: Graph,
    options: CompileOptions,
    limits: Limits,
    performance: Performance,
    log: DecisionLog,
) -> Graph:
    """Join each such pair that gains by it, in the place of its second half."""
    machine = Machine.of(performance)
    gone: set[str] = set()
    changed: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op != "conv2d" or not is_depthwise(graph, node):
            continue
        readers = graph.consumers[node.output]
        if not any(_is_pointwise(graph, reader) for reader in readers):
            continue
        reason = _refusal(graph, node, readers)
        if reason is None:
            (reader,) = readers
            fused = _joined(graph, node, reader)
            apart = _apart(graph, node, reader, options, limits, machine)
            together = _together(separable_work(graph, fused, options), limits, machine)
            estimates = f"estimated {together:.0f} clocks, {apart:.0f} as two kernels"
            if WORTH * together < apart:
                log.add(reader.name, f"computes {node.name} too", estimates)
                gone.add(node.output)
                changed[reader.output] = fused
                continue
            reason = estimates
        log.add(node.name, "a kernel before its 1x1 convolution", reason)
    kept = (changed.get(n.output, n) for n in graph.nodes if n.output not in gone)
    return graph.with_nodes(kept) if gone else graph


def _is_pointwise(graph: Graph, node: Node) -> bool:
    """Whether a convolution mixes the channels of each pixel and does nothing else."""
    return node.op == "conv2d" and conv_geometry(graph, node) == ConvGeometry(kernel=(1, 1))


def _refusal(graph: Graph, node: Node, readers: tuple[Node, ...]) -> str | None:
    """Why a depthwise convolution cannot be computed where it is read."""
    name, source = node.output, graph.operand(node.inputs[0])
    mine, reader = graph.operand(name), readers[0]
    if len(readers) > 1 or not _is_pointwise(graph, reader):
        other = next(n for n in readers if not _is_pointwise(graph, n) or n is not reader)
        return f"{other.op} {other.name} reads it too"
    out = graph.operand(reader.output)
    blocks = (Memory.TEXTURE, Memory.BLOCKED)
    apart = graph.exact | graph.rounded
    obstacles = {
        "an output of the model": name in graph.outputs,
        "it lies in a larger tensor": graph.owner(name) != name or bool(node.stores),
        f"{reader.name} reads it beside its own input": reader.inputs.count(name) != 1
        or reader.inputs[0] != name
        or _reads(reader, name),
        "a prologue": node.prologue is not None or reader.prologue is not None,
        "one of them is kept in float32, or is whole numbers": bool(
            {node.inputs[0], name, reader.output} & apart
        )
        or out.memory is Memory.BYTES,
        "not in blocks of four channels": source.memory not in blocks or mine.memory not in blocks,
        f"other axes than {reader.name}": not agree(mine.roles, out.roles, (2,) * len(mine.shape)),
        f"{reader.name} makes few vectors, each thread of which reads all": suits_gemv(out.extents),
        f"more than {MAX_INPUTS} tensors": len({*node.inputs, *reader.inputs} - {name})
        > MAX_INPUTS,
        "what follows it is not of its channels alone": not _of_channels(graph, node),
        "beyond the last channel it might not be a number": mine.extents.c % LANES > 0
        and node.epilogue is not None
        and not finite_at_zero(node.epilogue),
    }
    return next((reason for reason, found in obstacles.items() if found), None)


def _reads(reader: Node, name: str) -> bool:
    """Whether an expression of the node reads the tensor."""
    return any(name in body.sources.values() for body in reader.bodies)


def _of_channels(graph: Graph, node: Node) -> bool:
    """Whether the epilogue reads no more than the result, and numbers of each channel."""
    if node.epilogue is None:
        return True
    body, roles = node.epilogue, graph.operand(node.output).roles
    moving = [axis for axis, role in zip(body.axes, roles.roles, strict=True) if role in "HW"]
    results = [b for b, name in body.sources.items() if name == Node.RESULT]
    others = [
        load for load in loads_of(body.value) if not any(b.same_as(load.source) for b in results)
    ]
    return not any(mentions(load.indices, moving) for load in others)


def _joined(graph: Graph, node: Node, reader: Node) -> Node:
    """One node for both."""
    _, weights, *others = node.inputs
    _, more_weights, *rest = reader.inputs
    attrs = {
        **node.attrs,
        "pointwise_layout": reader.attrs["kernel_layout"],
        "between": graph.operand(node.output),
    }
    parts = {} if node.epilogue is None else {FINISH: node.epilogue}
    return replace(
        reader,
        op=SEPARABLE,
        inputs=(node.inputs[0], weights, *dict.fromkeys((more_weights, *others, *rest))),
        attrs=attrs,
        parts=parts,
        fused=(*node.operators, *reader.operators),
        also=(node.name,),
    )


def _apart(
    graph: Graph,
    node: Node,
    reader: Node,
    options: CompileOptions,
    limits: Limits,
    machine: Machine,
) -> float:
    """Clocks of two kernels, the launch of one of them included."""
    first, second = (conv_work(graph, n, conv_geometry(graph, n), options) for n in (node, reader))
    moved = sum(
        math.prod(graph.operand(name).alone.physical) * bits_of(graph.operand(name).dtype) // 8
        for name in (node.inputs[0], node.output)
    )
    alone = max(_depthwise_clocks(first, limits, machine), machine.memory_clocks(moved))
    return machine.launch_clocks + alone + least_clocks(second, limits, machine)


@lru_cache(maxsize=256)
def _depthwise_clocks(work: ConvWork, limits: Limits, machine: Machine) -> float:
    tiles = depthwise.candidates(work, limits)
    return min(depthwise.estimate_clocks(work, tile, machine) for tile in tiles)


@lru_cache(maxsize=256)
def _together(work: SeparableWork, limits: Limits, machine: Machine) -> float:
    """Clocks of one kernel; infinite if none fits the target."""
    return min(
        (estimate_clocks(work, tile, machine, limits) for tile in candidates(work, limits)),
        default=math.inf,
    )
