"""The table of all measures, those that estimates reckon with first: a budget ends it anywhere."""

from __future__ import annotations

from adrenoc.calibrate.measure import Measure
from adrenoc.calibrate.measures import (
    arithmetic,
    buffers,
    extensions,
    latency,
    launches,
    local,
    memory,
    numbers,
    texels,
    waves,
)

MEASURES: tuple[Measure, ...] = (
    *arithmetic.MEASURES,
    *texels.MEASURES,
    *local.MEASURES,
    *launches.MEASURES,
    *memory.MEASURES,
    *latency.MEASURES,
    *buffers.MEASURES,
    *numbers.MEASURES,
    *extensions.MEASURES,
    *waves.MEASURES,
)
