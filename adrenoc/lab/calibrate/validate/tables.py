"""What a validation found, as tables of the terminal and of a page, with schedules as dots."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adrenoc.base.text.html_page import part, safe, show_table
from adrenoc.base.text.result_table import ResultTable
from adrenoc.lab.calibrate.validate.findings import FamilyFinding, JoinFinding, KernelFinding, Timed
from adrenoc.lab.calibrate.validate.session import Validation
from adrenoc.target.cost.cost import Cost


def list_families(found: Sequence[FamilyFinding]) -> ResultTable:
    """List how well the cost model chooses in each family of kernels."""
    return ResultTable(
        columns=("family", "kernels", "regret", "worst", "rank", "what would have to change"),
        rows=tuple(
            (
                one.family,
                str(one.kernels),
                f"{one.regret:.2f}",
                f"{one.worst:.2f}",
                f"{one.rank:.2f}",
                one.change,
            )
            for one in found
        ),
        figures=("kernels", "regret", "worst", "rank"),
    )


def list_joins(found: Sequence[JoinFinding]) -> ResultTable:
    """List what the model joins or leaves apart beside the times of both."""
    return ResultTable(
        columns=("joined or apart", "the model takes", "joined, us", "apart, us", "spread", ""),
        rows=tuple(
            (
                one.layer,
                one.takes,
                f"{one.joined_us:.4g}",
                f"{one.apart_us:.4g}",
                f"{100 * one.spread:.0f} %",
                ("right" if one.is_right else "wrong") if one.is_clear else "no matter",
            )
            for one in found
        ),
        figures=("joined, us", "apart, us", "spread"),
    )


def list_kernels(found: Sequence[KernelFinding]) -> ResultTable:
    """List the schedule that the model chooses of each kernel beside the best."""
    columns = ("layer", "kernel", "schedules", "chosen, us", "best, us", "regret", "rank", "spread")
    return ResultTable(
        columns=(*columns, ""),
        rows=tuple(
            (
                one.layer,
                one.kernel,
                f"{one.measured} of {one.offered}",
                f"{one.chosen_us:.4g}",
                f"{one.best_us:.4g}",
                f"{one.regret:.2f}",
                f"{one.rank:.2f}",
                f"{100 * one.spread:.0f} %",
                "kept out of fits" if one.kept_out else "",
            )
            for one in found
        ),
        figures=columns[2:],
    )


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
