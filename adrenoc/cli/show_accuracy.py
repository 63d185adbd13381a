"""How errors of rounding, their floor and policies against them are shown.

`adrenoc check-accuracy --source`: a decoder beside the same one with more bits.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.cli import console

if TYPE_CHECKING:
    from adrenoc.check.accuracy.result import (
        AccuracyReport,
        Floor,
        PresetAccuracy,
        Remedy,
        TokenScore,
    )
    from adrenoc.check.compare_sources import SourceReport


_WORTH_A_LOOK = 1.2
"""So many times the floor is still rounding, as far as noise can be compared."""
_NO_ERROR = 1e-6
"""Of the range: where both are less, there is nothing to explain."""


def finite(value: Any) -> Any:
    """Return the same data with None for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def floor_text(floor: Floor) -> str:
    """Tell what ideal rounding alone gives, and how the kernels compare with it."""
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
    """Tell on what a model was examined."""
    if report.passage:
        return f"{console.count_of(report.samples, 'token')} ({report.passage})"
    return f"{console.count_of(report.samples, 'set')} of inputs: {report.inputs}"


def _list_score(score: TokenScore | None) -> list[tuple[str, str]]:
    """List agreement and perplexity of a decoder; nothing of other models."""
    if score is None:
        return []
    divergence = f"divergence from it {score.divergence:.1e} nats a token"
    return [
        ("agreement", f"{score.equal} of {score.tokens} picks are the reference's; {divergence}"),
        ("perplexity", f"{score.perplexity:.5g}; the reference's {score.reference_perplexity:.5g}"),
    ]


def show_decoder_layers(found: PresetAccuracy) -> None:
    """Show what enters by each layer of a decoder; nothing of other models."""
    from adrenoc.check.accuracy.causes import list_decoder_layers

    shown = list_decoder_layers(found.layers)
    if shown.rows:
        console.show_table(shown)
        console.blank()


def show_remedy(found: PresetAccuracy, tolerance: float) -> None:
    """Show the floor of a preset, and where it is off, the tensors that have to be in float32."""
    fields = [*_list_score(found.score), ("floor", floor_text(found.floor))]
    remedy = found.remedy
    if found.scales:
        fields.append(("scales", found.scales))
    if found.left:
        fields.append(("untried", f"{', '.join(found.left)} (a larger ADRENOC_EFFORT goes on)"))
    if found.starts_at:
        fields.append(("starts at", console.short(found.starts_at)))
    if remedy is None and not found.passed:
        why = f"float32 throughout is off by {found.error_in_float32:.1e}"
        if found.error_in_float32 > tolerance:
            why += ": not a matter of half"
        else:
            why += ": no policy that was tried holds the tolerance, compile with --preset fp32"
        fields.append(("remedy", why))
    elif remedy is not None:
        fields += _list_remedy(remedy)
    console.print_fields(fields)


def _list_remedy(remedy: Remedy) -> list[tuple[str, str]]:
    names, cost = remedy.float32_tensors, remedy.cost
    count = console.count_of(len(names), "tensor")
    size = "none of them can be left out" if remedy.is_minimal else "out of ADRENOC_EFFORT"
    work = f"{remedy.trials} trials, {remedy.runs} runs"
    memory, moved = map(console.size, cost.memory_bytes), map(console.size, cost.moved_bytes)
    fields = [
        ("in float32", f"{', '.join(map(console.short, names))} ({count}; {size})"),
        ("error", f"{remedy.error_before:.1e} to {remedy.error_after:.1e}, {work}"),
        ("memory", " to ".join(memory)),
        ("bytes moved", f"{' to '.join(moved)} a run"),
    ]
    if cost.time_us is not None:
        before, after = cost.time_us
        times = f"{console.ms(before / 1000)} to {console.ms(after / 1000)}"
        spent = 100 * (after / before - 1)
        fields.append(("time", f"{times} by roofline and launches, {spent:+.1f} %"))
    return fields


def show_plan(plan: AccuracyReport) -> None:
    """Show what `compile --accuracy` took."""
    (found,) = plan.presets
    error = found.error if found.remedy is None else found.remedy.error_after
    why = f", {found.accepted_as}" if found.accepted_as else ""
    said = (
        f"{error:.1e} of the range{why}, {plan.tolerance:g} wanted ({plan.inputs}; {plan.device})"
    )
    console.print_fields([("accuracy", said)])
    if found.remedy is None:
        within = f"nothing more: {found.preset} is within it as it is"
        console.print_fields([("in float32", within)])
    show_remedy(found, plan.tolerance)


_WORST = 12


def show_source(report: SourceReport, mended: Path | None) -> None:
    """Show how far a decoder is from its source, and what was mended."""
    console.blank()
    about = f"{console.count_of(report.score.tokens, 'token')} ({report.passage})"
    console.print_title(f"{report.model} beside {report.source}", about)
    ranked = sorted(report.products, key=lambda product: -product.error)
    shown = ranked[:_WORST]
    rows = [
        (
            console.short(product.name),
            product.layer,
            f"{product.error:.1e}",
            console.size(product.shipped_bytes),
            console.size(product.source_bytes),
        )
        for product in shown
    ]
    columns = ("product", "decoder layer", "error by weights", "here", "in the source")
    console.print_table(columns, rows, right=columns[1:])
    if report.apart:
        names = ", ".join(map(console.short, report.apart[:3]))
        count = console.count_of(len(report.apart), "product")
        console.print_fields([("not there", f"{count} by name, such as {names}")])
    limit = f"{report.score.divergence:.1e} nats a token (tolerance {report.tolerance:.0e})"
    is_within = report.score.divergence <= report.tolerance
    said = "diverges from the source by" if not is_within else "is near the source:"
    console.print_verdict(is_within, f"{report.model} {said} {limit}")
    console.print_fields(_list_score(report.score))
    _show_mended(report, mended, is_within)


def _show_mended(report: SourceReport, path: Path | None, is_within: bool) -> None:
    if is_within:
        return
    if path is None:
        console.print_fields([("repair", "--mended FILE.onnx writes one")])
        return
    if report.mended is None:
        why = "the weights of all products that both have do not do; what else differs is no weight"
        console.print_fields([("repair", f"none: {why}")])
        return
    found = report.mended
    names = ", ".join(map(console.short, found.taken))
    before, after = found.bytes
    console.print_verdict(
        report.passed, f"mended: {found.score.divergence:.1e} nats a token, {found.trials} trials"
    )
    taken = f"{console.count_of(len(found.taken), 'product')}: {names}"
    sizes = f"{console.size(before)} to {console.size(after)}"
    fields = [("taken", taken), ("weights", sizes), *_list_score(found.score)]
    console.print_fields([*fields, ("written", str(path))])
