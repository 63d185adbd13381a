"""The schedules of a convolution: every route of its weights, and what each costs.

The model counts, for one wave, the clocks that each pipe of a micro shader processor is busy:
arithmetic, texture reads, buffer loads, local memory.  The busiest pipe gives the throughput;
registers give how many waves hide each other's latency.

Source: shared rate tables of the GPUs (`targets/gpu/*.toml`); the same model as the analyser
that `scripts/bench_kernels` asks, so that its figures can be held against each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from adrenoc.gpu import Limits
from adrenoc.kernels.conv2d import ConvTile, Route
from adrenoc.kernels.conv2d_local import WIDEST_ROW
from adrenoc.rules.conv_tile_local import local_candidates, local_clocks
from adrenoc.rules.conv_tile_texture import texture_candidates, texture_clocks
from adrenoc.rules.conv_work import ConvWork
from adrenoc.rules.machine import Machine


def candidates(work: ConvWork, limits: Limits) -> Iterator[ConvTile]:
    """The tiles that suit the extents of a convolution."""
    if work.geometry.groups == 1 and work.geometry.kernel[1] <= WIDEST_ROW:
        yield from local_candidates(work, limits)
    yield from texture_candidates(work, limits)


def estimate_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> float:
    """Clocks of the whole convolution on the target."""
    clocks = local_clocks if tile.route is Route.LOCAL else texture_clocks
    return clocks(work, tile, machine)
