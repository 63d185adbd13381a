"""The rule of a depthwise convolution and the 1x1 convolution that reads it, as one kernel."""

from __future__ import annotations

from functools import partial

from adrenoc.graph import Graph, Node
from adrenoc.kernels.body_cost import body_instructions
from adrenoc.kernels.computed import is_of_channels
from adrenoc.kernels.conv2d import ConvGeometry
from adrenoc.kernels.epilogue import Finished
from adrenoc.kernels.separable import pack_turns, separable
from adrenoc.kernels.weights import pack_local
from adrenoc.layout import LANES
from adrenoc.options import CompileOptions
from adrenoc.rules.context import KernelCall, RuleContext
from adrenoc.rules.conv2d import as_oihw, conv_work, geometry_of
from adrenoc.rules.machine import Machine
from adrenoc.rules.separable_tile import SeparableWork, scored

SEPARABLE = "separable_conv2d"
"""The operator's name in the planning graph."""
FINISH = "finish"
"""The part of its node that is applied to the sums of the depthwise half."""


def separable_rule(context: RuleContext, node: Node) -> KernelCall:
    """A depthwise convolution of the first input by the second, then a 1x1 one by the third.

    `attrs` are those of the depthwise convolution, with `pointwise_layout`, the order of the other
    weights, and `between`, the tensor between the two, which no memory holds.
    """
    work = separable_work(context.graph, node, context.options)
    machine = Machine.of(context.performance)
    tiles = scored(work, context.limits, machine)
    tile = context.choose(node, SEPARABLE, tiles, tiles)
    kernel = context.kernel(node, SEPARABLE, half=work.pointwise.half)
    x = kernel.input(node.inputs[0])
    taps = kernel.flat(
        node.inputs[1],
        f"separable{tile.turn}",
        lambda w: pack_turns(as_oihw(w, str(node.attrs["kernel_layout"])), tile.turn),
        dtype="float32",
    )
    oihw = partial(as_oihw, layout=str(node.attrs["pointwise_layout"]))
    weight = kernel.flat(
        node.inputs[2],
        f"conv2d_local{tile.packed_as}",
        lambda w: pack_local(oihw(w), *tile.packing),
    )
    finish, between = node.parts.get(FINISH), node.attrs["between"]
    of_channels = {}
    for buffer, name in finish.sources.items() if finish is not None else ():
        if name != Node.RESULT:
            access = kernel.input(name)
            if finish is not None and is_of_channels(finish, buffer, access, between):
                of_channels[name] = access
    finished = Finished(kernel.builder, finish, kernel.accesses, between)
    out, epilogue = kernel.output()
    separable(
        kernel.builder, work.depthwise, tile, x, taps, weight, finished, of_channels, out, epilogue
    )
    return kernel.call()


def separable_work(graph: Graph, node: Node, options: CompileOptions) -> SeparableWork:
    """What a cost model needs of such a node."""
    letters = str(node.attrs["kernel_layout"])
    by_letter = dict(zip(letters, graph.tensors[node.inputs[1]].shape, strict=True))
    finish = node.parts.get(FINISH)
    return SeparableWork(
        depthwise=geometry_of(node.attrs, (by_letter["H"], by_letter["W"])),
        source=graph.operand(node.inputs[0]).extents,
        pointwise=conv_work(graph, node, ConvGeometry(kernel=(1, 1)), options),
        finish_work=LANES * body_instructions(finish) if finish is not None else 0,
    )
