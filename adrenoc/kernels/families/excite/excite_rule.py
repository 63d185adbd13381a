"""The rule of two products of one vector, a hidden layer between them, as one kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from adrenoc.base.tvmapi import bytes_of
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, Extents
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.excite.hidden_token import (
    HiddenToken,
    MeanToken,
    deal_hidden,
    deal_mean,
    token_bytes,
)
from adrenoc.kernels.families.matmul import gemv_rule
from adrenoc.kernels.families.matmul.gemv import GemvOperands, GemvTile, gemv
from adrenoc.kernels.families.matmul.gemv_rule import GemvWork, estimate_clocks, walk_clocks
from adrenoc.kernels.families.separable.joined import prepare_first_finish
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import transpose_to_oihw
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.kernels.families.shared.local_token import TokenWork
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.walk import MOST_UNROLLED
from adrenoc.kernels.weights import pack_conv
from adrenoc.kernels.work_group import groups_within
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits

EXCITE = "excite"
"""The operator's name in the planning graph."""


def excite_rule(context: RuleContext, node: Node) -> KernelCall:
    """Return the product, by the third input, of a hidden layer, which is that of the first input,
    or of its mean over rows and columns, by the second.

    Attributes are `kernel_layouts`, the order of both weights, and `between`, the hidden layer,
    which no memory holds.
    """
    machine, limits = context.machine, context.limits
    work = excite_work(context.graph, node, context.options)
    tile = context.choose(
        node,
        EXCITE,
        candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    kernel = context.kernel(node, EXCITE)
    image = kernel.input(node.inputs[0])
    first, second = (
        kernel.pack_constant(name, "gemv1", partial(_pack, layout=layout))
        for name, layout in zip(node.inputs[1:3], node.attrs["kernel_layouts"], strict=True)
    )
    finish, _ = prepare_first_finish(kernel)
    x = MeanToken(kernel.builder, image) if image.extents.h * image.extents.w > 1 else image
    channels = node.attrs["between"].extents.c
    hidden = HiddenToken(kernel.builder, x, first, finish, channels, tile.unroll)
    out, epilogue = kernel.output()
    gemv(kernel.builder, tile, GemvOperands(x=hidden, weights=(second,)), out, epilogue)
    return kernel.call()


def _pack(weight: np.ndarray, layout: str) -> np.ndarray:
    """Pack the weights of a 1 x 1 convolution, or a matrix [inputs, outputs]."""
    if weight.ndim == len("IO"):
        return pack_conv(np.ascontiguousarray(weight.T)[:, :, None, None], 1)
    return pack_conv(transpose_to_oihw(weight, layout), 1)


def excite_work(graph: Graph, node: Node, options: CompileOptions) -> GemvWork:
    """Return the extents of the second product, and what each work-group does before it."""
    image, hidden = graph.operand(node.inputs[0]).extents, node.attrs["between"].extents
    storage_bytes = bytes_of(options.storage_dtype)
    weights = image.blocks * hidden.blocks * LANES * LANES
    return GemvWork(
        vectors=1,
        in_blocks=hidden.blocks,
        out_blocks=graph.operand(node.output).extents.blocks,
        storage_bytes=storage_bytes,
        token=TokenWork(
            local_bytes=partial(token_bytes, image, hidden.blocks),
            memory_bytes=weights * storage_bytes,
            clocks=partial(_token_clocks, image, hidden.blocks, storage_bytes),
        ),
    )


def candidates(work: GemvWork, limits: Limits, costs: Cost) -> Iterator[GemvTile]:
    """Those of a product of one vector, by larger work-groups too: each does more."""
    return gemv_rule.candidates(
        work, limits, costs, groups_within(costs.gemv.threads_of_layers, limits)
    )


def excite_clocks(graph: Graph, node: Node, costs: CostModel) -> float:
    """Return the least clocks of both products; infinite where no schedule fits."""
    work, machine = excite_work(graph, node, costs.options), costs.machine
    tiles = candidates(work, costs.limits, machine.cost)
    return min((estimate_clocks(work, tile, machine) for tile in tiles), default=math.inf)


def _token_clocks(
    image: Extents, hidden_blocks: int, storage_bytes: int, threads: int, machine: Machine
) -> tuple[float, float]:
    """Return how long the hidden layer, and the mean before it, keep a wave's busiest pipe, and how
    long they take alone."""
    cost, rates = machine.cost.gemv, machine.cost.pipes
    a_wave = machine.threads_of(threads)
    deal = deal_hidden(image.blocks, hidden_blocks, threads)
    layer = GemvWork(
        vectors=1, in_blocks=image.blocks, out_blocks=hidden_blocks, storage_bytes=storage_bytes
    )
    tile = GemvTile(work_group=(deal.width, 1, 1), unroll=1)
    busiest, serial = (deal.rounds * clocks for clocks in walk_clocks(layer, tile, a_wave, machine))
    if image.h * image.w > 1:
        means, run = deal_mean(image, threads)
        texels = means.steps * run
        slots, folds = texels * (cost.texel_slots + LANES), len(means.folds) * cost.barrier_clocks
        texture = texels / machine.texels_of(storage_bytes)
        busiest += a_wave * max(slots / machine.lanes, texture) + folds / 2
        serial += math.ceil(texels / MOST_UNROLLED) * rates.texture_latency_clocks
        serial += a_wave / rates.threads_a_slot * slots + folds
    return busiest, serial
