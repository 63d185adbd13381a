"""The table of all measures: a budget ends it anywhere, so what matters most comes first.

That is what right results hang on, which takes little time, and then what estimates reckon with.
"""

from __future__ import annotations

from adrenoc.lab.calibrate.measure import Measure
from adrenoc.lab.calibrate.measures import (
    borders,
    extensions,
    features,
    functions,
    latency,
    local_size,
    numbers,
    rates,
)

MEASURES: tuple[Measure, ...] = (
    *borders.MEASURES,
    *numbers.MEASURES,
    *functions.MEASURES,
    *extensions.MEASURES,
    *features.MEASURES,
    *local_size.MEASURES,
    *rates.MEASURES,
    *latency.MEASURES,
)
