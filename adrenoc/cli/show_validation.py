"""How `adrenoc calibrate --validate` is told: tables for people, the same as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adrenoc.calibrate.validate.session import Validation


def say_layer(layer: str, said: str) -> None:
    """A line for each layer as it ends."""
    from adrenoc.cli import console

    console.print_fields([(layer, said)])


def plain_validation(done: Validation) -> dict[str, Any]:
    """As JSON values."""
    from adrenoc.calibrate.validate.findings import noise_of, overall, share_right

    cost = done.target.cost
    right, clear = share_right(done.joins)
    return {
        "device": done.device.name,
        "driver": done.device.driver,
        "target": done.target.name,
        "preset": done.options.preset,
        "date": done.date.isoformat(),
        "time_s": done.time_s,
        "noise": noise_of(done.kernels),
        "all": overall(done.timed, cost),
        "fitted_to": overall(done.timed, cost, kept_out=False),
        "kept_out": overall(done.timed, cost, kept_out=True),
        "families": done.families,
        "joins_right": right,
        "joins_clear": clear,
        "joins": [{**vars(join), "ratio": join.ratio} for join in done.joins],
        "kernels": done.kernels,
        "left_out": [{"layer": layer, "reason": reason} for layer, reason in done.left_out],
    }


def show_validation(done: Validation) -> None:
    """Tables of families and of joins, and the sums."""
    from adrenoc.calibrate.validate.findings import noise_of, overall, share_right
    from adrenoc.cli import console

    console.blank()
    console.print_title(done.device.name, f"as {done.target.title} chooses")
    console.print_table(
        ("family", "kernels", "regret", "worst", "rank", "what would have to change"),
        [
            (
                found.family,
                str(found.kernels),
                f"{found.regret:.2f}",
                f"{found.worst:.2f}",
                f"{found.rank:.2f}",
                found.change,
            )
            for found in done.families
        ],
        right=("kernels", "regret", "worst", "rank"),
    )
    if done.joins:
        console.print_table(
            ("joined or apart", "the model takes", "joined, us", "apart, us", "spread", ""),
            [
                (
                    join.layer,
                    join.takes,
                    f"{join.joined_us:.4g}",
                    f"{join.apart_us:.4g}",
                    f"{100 * join.spread:.0f} %",
                    ("right" if join.is_right else "wrong") if join.is_clear else "no matter",
                )
                for join in done.joins
            ],
            right=("joined, us", "apart, us", "spread"),
        )
    right, clear = share_right(done.joins)
    noise = noise_of(done.kernels)
    console.print_fields(
        [
            ("all kernels", str(overall(done.timed, done.target.cost))),
            ("joins", f"{right} right of {clear} that differ by more than a tenth"),
            ("noise", f"two measurements of one schedule differ by {100 * (noise - 1):.1f} %"),
            *((layer, f"left out: {reason}") for layer, reason in done.left_out),
        ]
    )
