"""A calibration, a validation and a fit: as JSON, and as what terminals and pages show of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adrenoc.base.text.report import (
    Drawing,
    Fields,
    Fold,
    Part,
    Title,
    Verdict,
    page,
    safe,
    tabulate,
)
from adrenoc.base.text.spelling import Figure, figure
from adrenoc.lab.calibrate.session import Calibration
from adrenoc.lab.calibrate.validate.findings import noise_of, overall, share_right
from adrenoc.lab.calibrate.validate.session import Fit, Validation


def calibration_html(done: Calibration | None, validation: Validation | None) -> str:
    """Return the page of what was measured."""
    parts: list[Part] = []
    name = ""
    if validation is not None:
        parts += validation_parts(validation)
        name = validation.device.name
    if done is not None:
        parts += calibration_parts(done)
        name = done.measured.device.name
    return page(f"{name}, measured", *parts, by="device calibrate")


def calibration_to_json(done: Calibration, output: Path) -> dict[str, Any]:
    """Return what `--json` says of a calibration."""
    measured = done.measured
    return {
        "device": measured.device.name,
        "driver": measured.device.driver,
        "source": measured.source,
        "beside": done.listed.name,
        "target_file": str(output),
        "values": [
            {
                "key": value.key,
                "value": value.value,
                "spread": value.spread,
                "how": value.how,
                "from": [row.name for row in value.rows],
            }
            for value in measured.values
        ],
        "differences": done.differences,
        "facts": measured.facts,
        "measures": measured.rows,
    }


def calibration_parts(done: Calibration) -> Iterator[Part]:
    """Tell values and facts beside what is listed; a page has all measures, and the target file."""
    measured = done.measured
    yield Title(text=measured.device.name, detail=f"beside {done.listed.title}")
    yield tabulate(
        done.differences,
        {
            "value": lambda one: one.key,
            "measured": lambda one: figure(one.measured, ".4g"),
            "spread": lambda one: _percent(one.spread),
            "listed": lambda one: figure(one.listed, ".4g"),
            "ratio": lambda one: figure(one.ratio, ".2f"),
            "what it means for choices": lambda one: one.means,
        },
        title="Beside what is listed",
        note=f"{measured.source}; beside {done.listed.title}.",
    )
    yield tabulate(
        measured.facts,
        {
            "fact": lambda one: one.key,
            "measured": lambda one: one.measured,
            "beside": lambda one: one.beside,
            "what it means for choices": lambda one: one.means,
        },
        title="Beside what kernels reckon with",
    )
    measures = tabulate(
        measured.rows,
        {
            "measure": lambda one: one.name,
            "of what": lambda one: one.title,
            "figure": lambda one: one.figure,
            "spread": lambda one: _percent(one.spread) if one.samples > 1 else "",
            "MHz": lambda one: figure(one.clock_mhz or None, ".0f"),
            "°C": lambda one: figure(one.temperature_c or None, ".0f"),
            "": lambda one: f"{one.status}: {one.reason}" if one.reason else "",
        },
    )
    yield Fold(title=f"{len(measured.rows)} measures", parts=[measures])
    yield Drawing(html=f"<pre>{safe(done.toml)}</pre>\n", title="The target file")


def tell_calibration(done: Calibration, output: Path) -> Iterator[Part]:
    """Tell how many measures there are, and where the target file is."""
    rows = done.measured.rows
    measured, failed = (sum(row.status == status for row in rows) for status in _STATUSES)
    whose = "the device's tells of no time, so the host's was taken"
    yield Verdict(passed=True, text=f"{output}: {measured} measured, {failed} failed")
    yield Fields(pairs=[("clock", whose)] if any(row.by_host for row in rows) else [])


_STATUSES = ("measured", "failed")


def _percent(share: float) -> Figure:
    return figure(100 * share, ".0f", " %")


def validation_to_json(done: Validation) -> dict[str, Any]:
    """Return a validation as JSON values."""
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


def validation_parts(done: Validation) -> Iterator[Part]:
    """Tell how well the cost model chooses in each family, what it joins, and the sums."""
    yield Title(text=done.device.name, detail=f"as {done.target.title} chooses")
    yield tabulate(
        done.families,
        {
            "family": lambda one: one.family,
            "kernels": lambda one: one.kernels,
            "regret": lambda one: figure(one.regret, ".2f"),
            "worst": lambda one: figure(one.worst, ".2f"),
            "rank": lambda one: figure(one.rank, ".2f"),
            "what would have to change": lambda one: one.change,
        },
        title="Families",
    )
    yield tabulate(
        done.joins,
        {
            "joined or apart": lambda one: one.layer,
            "the model takes": lambda one: one.takes,
            "joined, us": lambda one: figure(one.joined_us, ".4g"),
            "apart, us": lambda one: figure(one.apart_us, ".4g"),
            "spread": lambda one: _percent(one.spread),
            "": lambda one: ("right" if one.is_right else "wrong") if one.is_clear else "no matter",
        },
        title="Kernels joined or apart",
    )
    kernels = tabulate(
        done.kernels,
        {
            "layer": lambda one: one.layer,
            "kernel": lambda one: one.kernel,
            "schedules": lambda one: f"{one.measured} of {one.offered}",
            "chosen, us": lambda one: figure(one.chosen_us, ".4g"),
            "best, us": lambda one: figure(one.best_us, ".4g"),
            "regret": lambda one: figure(one.regret, ".2f"),
            "rank": lambda one: figure(one.rank, ".2f"),
            "spread": lambda one: _percent(one.spread),
            "": lambda one: "kept out of fits" if one.kept_out else "",
        },
    )
    yield Fold(title=f"{len(done.kernels)} kernels", parts=[kernels])
    right, clear = share_right(done.joins)
    noise = 100 * (noise_of(done.kernels) - 1)
    yield Fields(
        pairs=[
            ("all kernels", str(overall(done.timed, done.target.cost))),
            ("joins", f"{right} right of {clear} that differ by more than a tenth"),
            ("noise", f"two measurements of one schedule differ by {noise:.1f} %"),
            *((layer, f"left out: {reason}") for layer, reason in done.left_out),
        ]
    )


def fit_to_json(done: Fit) -> dict[str, Any]:
    """Return fitted constants as JSON values."""
    return {
        "fitted_to": {"before": done.fitted.before, "after": done.fitted.after},
        "kept_out": {"before": done.fitted.kept_before, "after": done.fitted.kept_after},
        "joins": {
            name: {"right": right, "clear": clear} for name, right, clear in _judge_joins(done)
        },
        "changed": [
            {"key": ".".join(key), "before": before, "after": after}
            for key, before, after in done.changed
        ],
        "decisions": done.decisions,
        "confirmed": done.confirmed,
    }


def fit_parts(done: Fit) -> Iterator[Part]:
    """Tell regret before and after, and what was changed."""
    yield Title(text="fitted", detail="to two thirds of the layers; the others are kept out")
    yield tabulate(
        done.changed,
        {
            "constant": lambda one: ".".join(one[0]),
            "before": lambda one: figure(one[1], ".4g"),
            "after": lambda one: figure(one[2], ".4g"),
        },
    )
    fields = [
        ("fitted layers, before", str(done.fitted.before)),
        ("fitted layers, after", str(done.fitted.after)),
        ("kept out, before", str(done.fitted.kept_before)),
        ("kept out, after", str(done.fitted.kept_after)),
    ]
    fields += [(f"joins, {name}", f"{r} right of {clear}") for name, r, clear in _judge_joins(done)]
    if (ran := done.confirmed) is not None and not ran.failed:
        told = (
            f"{ran.seen:.3f} of the old ones' time on fitted layers, {ran.kept:.3f} on those kept "
            f"out; {ran.others} kernels choose another schedule"
        )
        fields.append(("new choices, run", told))
    fields += [(d.subject, f"{d.taken}: {d.reason}") for d in done.decisions]
    yield Fields(pairs=fields)


def _judge_joins(done: Fit) -> Iterator[tuple[str, int, int]]:
    """Count right decisions of those that count, before and after, of all and of those kept out."""
    times = {"before": done.joins_before, "after": done.joins_after}
    for name, joins in times.items():
        yield f"all, {name}", *share_right(joins)
    for name, joins in times.items():
        yield f"kept out, {name}", *share_right([join for join in joins if join.kept_out])
