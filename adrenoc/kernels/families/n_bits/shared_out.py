"""How the threads of a work-group share out the weights that they open for each other."""

from __future__ import annotations

from collections.abc import Iterator

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst, minimum
from adrenoc.ir.layout import LANES
from adrenoc.kernels.families.conv.local_conv import LocalConv


def share_out(kernel: LocalConv, items: int) -> Iterator[Expr]:
    """Give each thread its numbers of so many items; what is emitted meanwhile is for one."""
    builder, threads = kernel.b, kernel.threads
    for done in range(0, items, threads):
        item = builder.let(kernel.thread + iconst(done), "item")
        with builder.when(item < iconst(items) if items - done < threads else None):
            yield item


def find_block(kernel: LocalConv, of_group: Expr) -> Expr:
    """Output block number `of_group` of the work-group; the last one where there is none."""
    blocks, builder = kernel.tile.out_blocks * kernel.tile.bands, kernel.b
    block = builder.let(kernel.channel_group * iconst(blocks) + of_group, "block")
    if kernel.plan.channel_groups * blocks > kernel.grid.blocks:
        block = builder.let(minimum(block, iconst(kernel.grid.blocks - 1)), "block")
    return block


def place_weights(kernel: LocalConv, of_group: Expr) -> Expr:
    """Return where its weights begin among those of an input block in local memory."""
    blocks = kernel.tile.out_blocks
    band = floordiv(of_group, blocks) * iconst(LANES * blocks)
    return band + floormod(of_group, blocks)
