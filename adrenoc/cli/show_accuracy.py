"""How errors of rounding, their floor and policies against them are shown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adrenoc.check.accuracy.decoder_layers import DecoderLayer
    from adrenoc.check.accuracy.result import (
        AccuracyPlan,
        AccuracyReport,
        Floor,
        PolicyPoint,
        PresetAccuracy,
        TokenScore,
    )

_WORTH_A_LOOK = 1.2
"""So many times the floor is still rounding, as far as noise can be compared."""
_NO_ERROR = 1e-6
"""Of the range: where both are less, there is nothing to explain."""
_MOST_PARTS = 4


def finite(value: Any) -> Any:
    """The same data with None for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def floor_text(floor: Floor) -> str:
    """What ideal rounding alone gives, and how the kernels compare with it."""
    from adrenoc.cli import console

    tensors = console.count_of(floor.tensors, "tensor")
    if math.isinf(floor.float32_error):
        return (
            "none: float32 with nothing rounded to half gives numbers that are not finite where "
            "the reference's are, or the other way round; do the inputs hold such numbers?"
        )
    if math.isinf(floor.rms):
        return f"not finite: half cannot hold all of the {tensors} that are stored in it"
    if not floor.is_of_rounding and floor.float32_rms > _NO_ERROR:
        return (
            f"none: float32 with nothing rounded to half is off by {floor.float32_error:.1e} "
            f"itself, and by {floor.error:.1e} with the {tensors} that are stored in half"
        )
    said = "rounding alone" if floor.ratio <= _WORTH_A_LOOK else "more than rounding"
    return (
        f"{floor.error:.1e} by ideal rounding of the {tensors} stored in half; root mean square "
        f"{floor.our_rms:.1e} against {floor.rms:.1e}: {floor.ratio:.2f} times, {said}"
    )


def count_samples(report: AccuracyReport) -> str:
    """On what a model was examined."""
    from adrenoc.cli import console

    if report.passage:
        return f"{console.count_of(report.samples, 'token')} ({report.passage})"
    return f"{console.count_of(report.samples, 'set')} of inputs: {report.inputs}"


def list_score(score: TokenScore | None) -> list[tuple[str, str]]:
    """Agreement and perplexity of a decoder; nothing of other models."""
    if score is None:
        return []
    divergence = f"divergence from it {score.divergence:.1e} nats a token"
    return [
        ("agreement", f"{score.equal} of {score.tokens} picks are the reference's; {divergence}"),
        ("perplexity", f"{score.perplexity:.5g}; the reference's {score.reference_perplexity:.5g}"),
    ]


def show_decoder_layers(found: PresetAccuracy) -> None:
    """What enters by each layer of a decoder; nothing of other models."""
    from adrenoc.check.accuracy.decoder_layers import group_layers
    from adrenoc.cli import console

    rows = [
        (layer.name, *(f"{error:.1e}" for error in _errors_of(layer)))
        for layer in group_layers(found.layers)
    ]
    if rows:
        columns = ("decoder layer", "by weights", "by activations", "by the cache", "error so far")
        console.print_table(columns, rows, right=columns[1:])
        console.blank()


def _errors_of(layer: DecoderLayer) -> tuple[float, ...]:
    return (layer.weights, layer.activations, layer.cache, layer.total_error)


def show_points(found: PresetAccuracy) -> None:
    """The list of policies, and the parts of the network that they were found by."""
    from adrenoc.cli import console

    if not found.points:
        return
    parts = [
        f"{part.group} {part.rms:.1e} ({console.count_of(part.tensors, 'tensor')})"
        for part in found.contributions[:_MOST_PARTS]
    ]
    console.print_fields([("from", ", ".join(parts) + "; root mean square, each alone")])
    console.blank()
    console.print_table(
        ("policy", "in float32", "error", "on the device", "time", "moved", "memory", "parts"),
        [(str(number), *_point_row(point)) for number, point in enumerate(found.points)],
        right=("policy", "in float32", "error", "on the device", "time", "moved", "memory"),
    )


def _point_row(point: PolicyPoint) -> tuple[str, ...]:
    from adrenoc.cli import console

    more = len(point.groups) - _MOST_PARTS
    parts = ", ".join(point.groups[:_MOST_PARTS]) + (f" and {more} more" if more > 0 else "")
    unknown = "-"
    return (
        str(len(point.float32_tensors)),
        f"{point.error:.1e}",
        unknown if point.device_error is None else f"{point.device_error:.1e}",
        unknown if point.time_us is None else console.ms(point.time_us / 1000),
        unknown if point.moved_bytes is None else console.size(point.moved_bytes),
        unknown if point.memory_bytes is None else console.size(point.memory_bytes),
        parts or "nothing",
    )


def show_plan(plan: AccuracyPlan) -> None:
    """What `compile --accuracy` took."""
    from adrenoc.check.accuracy.accuracy_plans import describe_search
    from adrenoc.cli import console

    before, after = plan.before, plan.after
    why = f", {plan.accepted_as}" if plan.accepted_as else ""
    count = console.count_of(len(plan.float32_tensors), "tensor")
    names = ", ".join(console.short(name) for name in plan.float32_tensors[:_MOST_PARTS])
    more = len(plan.float32_tensors) - _MOST_PARTS
    fields = [
        (
            "accuracy",
            f"{_error(after)} of the range{why}, {plan.tolerance:g} wanted; "
            f"{_error(before)} without "
            f"({plan.inputs}; {plan.device})",
        ),
        ("floor", floor_text(plan.floor)),
    ]
    if not plan.float32_tensors:
        fields.append(("in float32", f"nothing more: {plan.preset} is within it as it is"))
        console.print_fields(fields)
        return
    tail = f" and {more} more (--explain)" if more > 0 else ""
    fields.append(("in float32", f"{count}: {names}{tail}; {', '.join(plan.groups)}"))
    more_effort = " (a larger --effort goes on)" if plan.left else ""
    fields.append(("search", describe_search(plan) + more_effort))
    if before.time_us is not None and after.time_us is not None:
        spent = 100 * (after.time_us / before.time_us - 1)
        times = f"{console.ms(before.time_us / 1000)} to {console.ms(after.time_us / 1000)}"
        fields.append(("time", f"{times} by roofline and launches, {spent:+.1f} %"))
    if before.moved_bytes is not None and after.moved_bytes is not None:
        moved = f"{console.size(before.moved_bytes)} to {console.size(after.moved_bytes)}"
        fields.append(("bytes moved", f"{moved} a run"))
    console.print_fields(fields)


def _error(point: PolicyPoint) -> str:
    return "unknown" if point.device_error is None else f"{point.device_error:.1e}"
