"""The table of all measures: a budget ends it anywhere, so what matters most comes first.

That is what right results hang on, which takes little time, and then what estimates reckon with.
"""

from __future__ import annotations

from adrenoc.lab.calibrate.measure import Measure
from adrenoc.lab.calibrate.measures import (
    arithmetic,
    borders,
    buffers,
    copies,
    extensions,
    features,
    functions,
    latency,
    launches,
    local,
    local_size,
    memory,
    numbers,
    texels,
    waves,
)

MEASURES: tuple[Measure, ...] = (
    *borders.MEASURES,
    *numbers.MEASURES,
    *functions.MEASURES,
    *extensions.MEASURES,
    *features.MEASURES,
    *local_size.MEASURES,
    *arithmetic.MEASURES,
    *texels.MEASURES,
    *local.MEASURES,
    *launches.MEASURES,
    *memory.MEASURES,
    *latency.MEASURES,
    *buffers.MEASURES,
    *copies.MEASURES,
    *waves.MEASURES,
)
