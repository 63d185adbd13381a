"""The schedules of a convolution: every route of its weights, and what each costs.

The model counts, for one wave, the clocks that each pipe of a micro shader processor is busy:
arithmetic, texture reads, buffer loads, local memory.  The busiest pipe gives the throughput;
registers give how many waves hide each other's latency.

Source: shared rate tables of the GPUs (`targets/gpu/*.toml`); the same model as the analyser
that `scripts/bench_kernels` asks, so that its figures can be held against each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from adrenoc.ir.graph import Node
from adrenoc.kernels.families.conv.conv2d_local import WIDEST_ROW_OF_TEXELS
from adrenoc.kernels.families.conv.conv_tile_local import local_candidates, local_clocks
from adrenoc.kernels.families.conv.conv_tile_texture import texture_candidates, texture_clocks
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile, Route
from adrenoc.kernels.families.shared.conv_work import ConvWork
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.scored import MOST_KNOWN, Scored
from adrenoc.kernels.families.shared.tile_columns import Column, TileTables
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits

MOST_TILES = 32
"""Tiles that are tried again for a convolution with a prologue."""


def candidates(work: ConvWork, limits: Limits, costs: Cost) -> TileTables[ConvTile]:
    """Return the tiles that suit the extents of a convolution."""
    tables = []
    if work.geometry.groups == 1 and work.geometry.kernel[1] <= WIDEST_ROW_OF_TEXELS:
        tables.append(local_candidates(work, limits, costs))
    if work.image is None and not work.centred:
        tables.append(texture_candidates(work, limits, costs))
    return TileTables(*tables)


@lru_cache(maxsize=MOST_KNOWN)
def score_tiles(work: ConvWork, limits: Limits, machine: Machine) -> Scored[ConvTile]:
    """Return the tiles that suit a convolution, each with its estimate."""
    return Scored(
        lambda: candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )


def conv_clocks(_node: Node, work: ConvWork, costs: CostModel) -> float:
    """Return the least estimate of a convolution's work by the tiles that suit it."""
    return score_tiles(work, costs.limits, costs.machine).least


def least_clocks(work: ConvWork, limits: Limits, machine: Machine) -> float:
    """Return the least estimate of a convolution as one kernel; infinite where no tile suits it.

    With a prologue, of the tiles that suit it best without: what it costs differs little.
    """
    plain = replace(work, texel_work=0, block_texels=0)
    tiles = _best_tiles(plain, limits, machine)
    return min((estimate_clocks(work, tile, machine) for tile in tiles), default=math.inf)


@lru_cache(maxsize=512)
def _best_tiles(work: ConvWork, limits: Limits, machine: Machine) -> Sequence[ConvTile]:
    """Return the tiles of the least estimates; a network repeats the same few convolutions."""
    return tuple(islice(score_tiles(work, limits, machine).rank(), MOST_TILES))


def estimate_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> Column:
    """Clocks of the whole convolution on the target."""
    clocks = local_clocks if tile.route is Route.LOCAL else texture_clocks
    return clocks(work, tile, machine)
