"""What a validation found, as sections of a page: tables, and schedules as dots."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adrenoc.base.text.html_page import cell, line, number, part, safe, table
from adrenoc.lab.calibrate.validate.findings import Timed
from adrenoc.lab.calibrate.validate.session import Validation
from adrenoc.target.cost.cost import Cost

_SIDE, _EDGE = 180, 8


def validation_sections(validation: Validation) -> str:
    """What the page shows."""
    cost = validation.target.cost
    drawn = "".join(_drawing(timed, cost) for timed in validation.timed)
    return (
        part(
            "Families",
            _families(validation),
            f"What {validation.target.title} chooses on {validation.device.name}.",
        )
        + part("Kernels joined or apart", _joins(validation))
        + part("Kernels", _kernels(validation))
        + part(
            "Schedules",
            drawn,
            "Estimates to the right, times up, both logarithmic; the ring is what the model chose.",
        )
    )


def _families(validation: Validation) -> str:
    body = "".join(
        line(
            cell(found.family),
            number(str(found.kernels)),
            number(f"{found.regret:.2f}"),
            number(f"{found.worst:.2f}"),
            number(f"{found.rank:.2f}"),
            cell(found.change),
        )
        for found in validation.families
    )
    names = ("family", "kernels", "regret", "worst", "rank", "what would have to change")
    return table(names, body)


def _joins(validation: Validation) -> str:
    body = "".join(
        line(
            cell(found.layer),
            cell(found.takes),
            number(f"{found.joined_us:.4g}"),
            number(f"{found.apart_us:.4g}"),
            number(f"{100 * found.spread:.0f} %"),
            cell(("right" if found.is_right else "wrong") if found.is_clear else "no matter"),
        )
        for found in validation.joins
    )
    return table(("layer", "the model takes", "joined, us", "apart, us", "spread", ""), body)


def _kernels(validation: Validation) -> str:
    body = "".join(
        line(
            cell(found.layer),
            cell(found.kernel),
            number(f"{found.measured} of {found.offered}"),
            number(f"{found.chosen_us:.4g}"),
            number(f"{found.best_us:.4g}"),
            number(f"{found.regret:.2f}"),
            number(f"{found.rank:.2f}"),
            number(f"{100 * found.spread:.0f} %"),
            cell("kept out of fits" if found.kept_out else ""),
        )
        for found in validation.kernels
    )
    names = (
        "layer",
        "kernel",
        "schedules",
        "chosen, us",
        "best, us",
        "regret",
        "rank",
        "spread",
        "",
    )
    return table(names, body)


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
