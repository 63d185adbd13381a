"""What a thread does for the norm that a product takes in, beside the product itself."""

from __future__ import annotations

from typing import NamedTuple

from adrenoc.ir.layout import LANES
from adrenoc.kernels.families.conv.row_statistics import TEXELS_AT_ONCE, Shares
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile
from adrenoc.kernels.families.shared.conv_work import ConvWork
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.tile_columns import Column, round_up


class NormCounts(NamedTuple):
    """Of one thread; nothing where there is no norm."""

    alu: Column = 0
    slots: Column = 0
    texels: Column = 0
    waits: Column = 0


def count_norm(work: ConvWork, tile: ConvTile, machine: Machine) -> NormCounts:
    """Every work-group takes the statistics of its pixels anew, from their own texels."""
    if not work.centred:
        return NormCounts()
    cost, shares = machine.cost.conv_local, Shares.from_tile(tile, work.in_blocks)
    texels = work.in_blocks / shares.members * shares.rounds
    finished = 2 * LANES * tile.pixels * tile.out_blocks
    alu = cost.norm_texel_alu * texels + cost.norm_alu * shares.rounds + finished
    slots = cost.norm_texel_slots * texels + cost.norm_slots * shares.rounds + 2 * finished
    lots = tile.out_blocks * round_up(tile.pixels / LANES)
    return NormCounts(
        alu=alu,
        slots=slots,
        texels=texels + 2 * tile.out_blocks,
        waits=texels / TEXELS_AT_ONCE + lots + cost.norm_waits,
    )
