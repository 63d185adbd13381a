"""Whether a region wins: a roofline of both variants, with the copies that CLML needs.

Per operator: the larger of its arithmetic over the GPU's peak and of its bytes over the memory's,
plus a launch.  Textures fuse what is element-wise, so such an operator costs them only what it
reads beyond its neighbour's result; CLML pays a command and a round through memory for it.  Each
tensor at the border of a region is written row-major by a kernel, and copied into CLML's own
layout (and back): twice through memory and two launches.

The figures are the target's where it has them, else those of `targets/clml.toml`, each with its
source.  Their errors are larger than small gains: CLML has to win by a margin.  They are estimates
until somebody measures: `adrenoc run --profile` shows both variants side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from adrenoc.clml.patterns import Costs, Table
from adrenoc.clml.region import Operand, Operator, Region
from adrenoc.target.gpu import Performance

_FUSED_BY_TEXTURES = {"relu", "relu6", "clip", "binary", "divide", "scale_shift"}
"""Rows that a texture kernel computes on the way."""

_FREE_IN_TEXTURES = {"reshape"}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Estimated times (us) of one region: both variants, and the copies around CLML's."""

    symbol: str
    texture_us: float
    clml_us: float
    copies_us: float
    copies: int
    margin: float

    @property
    def gain(self) -> float:
        """Time in textures over that of CLML with its copies."""
        return self.texture_us / (self.clml_us + self.copies_us)

    @property
    def wins(self) -> bool:
        """Whether CLML is faster after its copies, by the margin."""
        return self.gain >= self.margin

    def text(self) -> str:
        """`estimated 120 us in textures, 85 us in CLML and 24 us for 2 copies: 1.10 times ...`"""
        return (
            f"estimated {self.texture_us:.0f} us in textures, {self.clml_us:.0f} us in CLML and "
            f"{self.copies_us:.0f} us for {self.copies} copies: {self.gain:.2f} times as fast, "
            f"{self.margin} asked"
        )


@dataclass(frozen=True, kw_only=True)
class _Machine:
    """What the GPU does in a microsecond."""

    flops_per_us: float
    bytes_per_us: float
    launch_us: float


def judge(region: Region, table: Table, performance: Performance) -> Verdict:
    """Estimate both variants of a region."""
    machine = _machine(performance, table.costs, half=region.dtype == "float16")
    width = 2 if region.dtype == "float16" else 4
    shapes = dict(region.shapes)
    texture_us = clml_us = 0.0
    for operator in region.operators:
        reads = [_shape(operand, shapes) for operand in operator.inputs]
        flops = flops_of(operator, reads)
        moved = (sum(map(math.prod, reads)) + math.prod(operator.shape)) * width
        whole = max(flops / machine.flops_per_us, moved / machine.bytes_per_us)
        gain = table[operator.row].gain_of(region.dtype, pointwise=_is_pointwise(operator, reads))
        clml_us += whole / gain + table.costs.recorded_us
        if operator.row in _FREE_IN_TEXTURES:
            pass
        elif operator.row in _FUSED_BY_TEXTURES:
            texture_us += sum(map(math.prod, reads[1:])) * width / machine.bytes_per_us
        else:
            texture_us += whole + machine.launch_us
        shapes[operator.output] = operator.shape
    borders = [shapes[name] for name in (*region.inputs, *region.outputs)]
    copied = 4 * sum(map(math.prod, borders)) * width
    return Verdict(
        symbol=region.symbol,
        texture_us=texture_us,
        clml_us=clml_us,
        copies_us=copied / machine.bytes_per_us + 2 * len(borders) * machine.launch_us,
        copies=2 * len(borders),
        margin=table.costs.margin,
    )


def reckoning(
    table: Table, performance: Performance, *, half: bool, launch_source: str
) -> tuple[str, str]:
    """Return what estimates are made with, and where that is from: for the decision log.

    `launch_source` is the target's word on its `performance.launch_us`.
    """
    machine, costs = _machine(performance, table.costs, half=half), table.costs
    what = (
        f"{machine.flops_per_us / 1000:.0f} GFLOPS, {machine.bytes_per_us / 1000:.0f} GB/s, "
        f"{machine.launch_us:.0f} us a launch, {costs.recorded_us:.0f} us an operator of CLML"
    )
    own = performance.fp32_fma_lanes is not None and performance.clock_mhz is not None
    parts = [
        f"{costs.efficiency:g} of the {'target' if own else 'stand-in'}'s peak",
        *(() if own else (costs.sources["gflops"],)),
        *(() if performance.dram_gb_per_s else (f"memory: {costs.sources['gb_per_s']}",)),
        f"efficiency: {costs.sources['efficiency']}",
        f"launch: {launch_source}",
    ]
    return what, "; ".join(parts)


def _is_pointwise(operator: Operator, reads: list[tuple[int, ...]]) -> bool:
    return "conv2d" in operator.row and math.prod(reads[1][2:]) == 1


def flops_of(operator: Operator, reads: list[tuple[int, ...]]) -> float:
    """Additions and multiplications of one operator, each counted."""
    result = math.prod(operator.shape)
    if "conv2d" in operator.row:
        weights = reads[1]
        per_output = math.prod(weights[2:]) * (1 if "depthwise" in operator.row else weights[1])
        if operator.row == "conv2d_transpose":
            per_output /= math.prod(operator.attrs["strides"])
        return 2.0 * result * per_output
    if operator.name in ("nn.dense", "nn.batch_matmul"):
        return 2.0 * result * reads[0][-1]
    if operator.row.endswith("pool2d"):
        window = operator.attrs.get("pool_size") or reads[0][2:]
        return float(result * math.prod(window))
    return float(result)


def _shape(operand: Operand, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(operand.value.shape) if operand.value is not None else shapes[operand.name]


def _machine(performance: Performance, costs: Costs, *, half: bool) -> _Machine:
    gflops = costs.gflops
    if performance.fp32_fma_lanes is not None and performance.clock_mhz is not None:
        gflops = 2 * performance.fp32_fma_lanes * performance.clock_mhz / 1000
    rate = (performance.fp16_rate or 1.0) if half else 1.0
    gb_per_s = performance.dram_gb_per_s or costs.gb_per_s
    return _Machine(
        flops_per_us=gflops * rate * costs.efficiency * 1000,
        bytes_per_us=gb_per_s * 1000,
        launch_us=performance.launch_us or 0.0,
    )
