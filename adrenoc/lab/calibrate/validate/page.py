"""What a validation found, as sections of a page: tables, and schedules as dots."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adrenoc.base.text.html_page import part, safe, show_table
from adrenoc.lab.calibrate.validate.findings import Timed
from adrenoc.lab.calibrate.validate.session import Validation
from adrenoc.lab.calibrate.validate.tables import list_families, list_joins, list_kernels
from adrenoc.target.cost.cost import Cost

_SIDE, _EDGE = 180, 8


def validation_sections(validation: Validation) -> str:
    """What the page shows."""
    cost = validation.target.cost
    drawn = "".join(_drawing(timed, cost) for timed in validation.timed)
    return (
        part(
            "Families",
            show_table(list_families(validation.families)),
            f"What {validation.target.title} chooses on {validation.device.name}.",
        )
        + part("Kernels joined or apart", show_table(list_joins(validation.joins)))
        + part("Kernels", show_table(list_kernels(validation.kernels)))
        + part(
            "Schedules",
            drawn,
            "Estimates to the right, times up, both logarithmic; the ring is what the model chose.",
        )
    )


def _drawing(timed: Timed, cost: Cost) -> str:
    """A dot a schedule."""
    kernel = timed.measured
    estimates = kernel.estimates_ms(cost)
    known = [
        (math.log(estimate), math.log(time))
        for estimate, time in zip(estimates, kernel.times_ms, strict=True)
        if 0 < estimate < math.inf
    ]
    if len(known) < 2:
        return ""
    across, up = (_scale_to_side([place[axis] for place in known]) for axis in (0, 1))
    chosen = min(range(len(known)), key=lambda n: known[n][0])
    dots = "".join(
        f"<circle cx='{x:.1f}' cy='{_SIDE - y:.1f}' r='2.5' fill='#0969da' fill-opacity='0.6'/>"
        for x, y in zip(across, up, strict=True)
    )
    ring = (
        f"<circle cx='{across[chosen]:.1f}' cy='{_SIDE - up[chosen]:.1f}' r='6' fill='none' "
        "stroke='#cf222e' stroke-width='2'/>"
    )
    return (
        f"<figure><figcaption>{safe(kernel.layer)}</figcaption>"
        f"<svg class='drawn' width='{_SIDE}' height='{_SIDE}' role='img'>"
        f"<rect width='{_SIDE}' height='{_SIDE}' fill='#f6f8fa'/>{dots}{ring}</svg></figure>\n"
    )


def _scale_to_side(values: Sequence[float]) -> list[float]:
    """Along one side of a drawing."""
    low, wide = min(values), (max(values) - min(values)) or 1.0
    return [_EDGE + (_SIDE - 2 * _EDGE) * (value - low) / wide for value in values]
