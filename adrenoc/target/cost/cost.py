"""The record of all fitted constants: `target.cost.<family>.<name>`."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.target.cost.conv_cost import (
    ConvDotCost,
    ConvLocalCost,
    ConvTextureCost,
    WinogradConvCost,
    WinogradInstructions,
    WinogradTransformCost,
)
from adrenoc.target.cost.depthwise_cost import DepthwiseCost, ExpansionCost, SeparableCost
from adrenoc.target.cost.machine_cost import (
    JoinCost,
    MapCost,
    PipeCost,
    UnstatedCost,
    WorkGroupCost,
)
from adrenoc.target.cost.row_cost import (
    AttentionCost,
    CachedCost,
    GemvCost,
    MatmulCost,
    NBitsCost,
    RecurrentCost,
    RowsCost,
)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What estimates reckon with, a table of `targets/cost/*.toml` each."""

    name: str
    """The name of the file, such as "a7xx"."""
    pipes: PipeCost
    unstated: UnstatedCost
    work_groups: WorkGroupCost
    joins: JoinCost
    map: MapCost
    conv_texture: ConvTextureCost
    conv_local: ConvLocalCost
    conv_dot: ConvDotCost
    winograd_conv: WinogradConvCost
    winograd_slots_half: WinogradInstructions
    """Instructions and empty slots, where arithmetic is in halves."""
    winograd_slots_float: WinogradInstructions
    winograd_alu_half: WinogradInstructions
    """What of them takes the arithmetic pipe."""
    winograd_alu_float: WinogradInstructions
    winograd_transform: WinogradTransformCost
    depthwise: DepthwiseCost
    separable: SeparableCost
    expansion: ExpansionCost
    gemv: GemvCost
    matmul: MatmulCost
    n_bits: NBitsCost
    attention: AttentionCost
    cached: CachedCost
    recurrent: RecurrentCost
    rows: RowsCost
