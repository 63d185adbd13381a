"""What a validation found, as the tables that the terminal and pages show."""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.base.text.result_table import ResultTable
from adrenoc.lab.calibrate.validate.findings import FamilyFinding, JoinFinding, KernelFinding


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
