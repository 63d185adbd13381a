"""What halves do to a model, or fewer bits to a decoder, in terminals and on pages: the error of
each layer, and what mends it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adrenoc.base.text.report import (
    Cards,
    Drawing,
    Fields,
    Fold,
    Name,
    Part,
    Share,
    Table,
    Title,
    Verdict,
    page,
    shorten,
    tabulate,
)
from adrenoc.base.text.spelling import count_of, dims, figure, show_bytes, show_us
from adrenoc.check.accuracy.causes import list_decoder_layers, show_error
from adrenoc.check.accuracy.result import (
    AccuracyReport,
    Floor,
    LayerAccuracy,
    PresetAccuracy,
    Remedy,
    TokenScore,
)
from adrenoc.check.compare_sources import SourceReport
from adrenoc.pages.bars import Bar, draw_bars

_WORTH_A_LOOK = 1.2
"""So many times the floor is still rounding, as far as noise can be compared."""
_NO_ERROR = 1e-6
"""Of the range: where both are less, there is nothing to explain."""
_WORST_LAYERS, _WORST_PRODUCTS = 8, 12


def accuracy_html(report: AccuracyReport) -> str:
    """Return the whole page, a part a preset."""
    return page(
        f"{report.model}, accuracy",
        *accuracy_parts(report),
        about=f"on {report.device}, {_count_samples(report)}",
        by="check-accuracy",
    )


def accuracy_parts(report: AccuracyReport) -> Iterator[Part]:
    """Return what was found of each preset."""
    for found in report.presets:
        yield from _preset_parts(report, found)


def _preset_parts(report: AccuracyReport, found: PresetAccuracy) -> Iterator[Part]:
    about = f"on {report.device}, {_count_samples(report)}"
    yield Title(text=f"{report.model} in {found.preset}", detail=about)
    figures = [
        ("error", show_error(found.error)),
        ("tolerance", f"{report.tolerance:.0e}"),
        ("of rounding alone", show_error(found.floor.error)),
    ]
    if found.remedy is not None:
        kept = count_of(len(found.remedy.float32_tensors), "tensor")
        figures.append((f"with {kept} in float32", show_error(found.remedy.error_after)))
    yield Cards(figures=figures)
    if found.layers:
        yield _drawing(found.layers)
    yield list_decoder_layers(found.layers)
    yield _layers(found.layers)
    yield tabulate(
        [(layer, cause) for layer in found.suspects for cause in layer.causes],
        {
            "cause": lambda one: one[1].name,
            "of layer": lambda one: Name(one[0].name),
            "what shows it": lambda one: one[1].evidence,
        },
        title="Causes",
    )
    said = "agrees: error" if found.passed else "is off by"
    why = f", {found.accepted_as}" if found.accepted_as else ""
    limit = f"(tolerance {report.tolerance:.0e})"
    told = f"{found.preset} {said} {found.error:.1e} {limit}{why}"
    yield Verdict(passed=found.passed, text=told)
    yield Fields(pairs=[*_remedy_fields(found, report.tolerance)])
    if found.remedy is not None:
        kept_in_float32 = found.remedy.float32_tensors
        listed = tabulate(kept_in_float32, {"tensor": lambda name: name})
        yield Fold(title="Kept in float32 by the remedy", parts=[listed])


def _drawing(layers: Sequence[LayerAccuracy]) -> Drawing:
    """Draw the error so far along the network, with what each layer adds."""
    bars = [
        Bar(
            title=f"{layer.name}: {show_error(layer.total_error)}, "
            f"own {show_error(layer.local_error)}",
            height=layer.total_error,
            part=layer.local_error,
        )
        for layer in layers
    ]
    top = max((x.total_error for x in layers if math.isfinite(x.total_error)), default=0.0)
    drawn = draw_bars(bars, top=f"{top:.1e}", what=f"errors of {len(layers)} layers")
    note = "The error up to each layer, in the model's order; the dark part is the layer's own."
    return Drawing(html=drawn, note=note)


def _layers(layers: Sequence[LayerAccuracy]) -> Table:
    most = max((x.local_error for x in layers if math.isfinite(x.local_error)), default=0.0)
    return tabulate(
        sorted(layers, key=lambda layer: -layer.local_error),
        {
            "layer": lambda one: Name(one.name),
            "operators": lambda one: " ".join(one.operators),
            "shape": lambda one: dims(one.shape),
            "largest": lambda one: figure(one.largest, ".3g"),
            "own error": lambda one: Share(show_error(one.local_error), one.local_error, most),
            "error so far": lambda one: show_error(one.total_error),
        },
        title="Layers",
        note="Those first that add most to the error by themselves.",
        most=_WORST_LAYERS,
        others="--html and --json list all",
    )


def finite(value: Any) -> Any:
    """Return the same data with None for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def floor_text(floor: Floor) -> str:
    """Tell what ideal rounding alone gives, and how the kernels compare with it."""
    tensors = count_of(floor.tensors, "tensor")
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


def _count_samples(report: AccuracyReport) -> str:
    if report.passage:
        return f"{count_of(report.samples, 'token')} ({report.passage})"
    return f"{count_of(report.samples, 'set')} of inputs: {report.inputs}"


def _list_score(score: TokenScore | None) -> list[tuple[str, str]]:
    """List agreement and perplexity of a decoder; nothing of other models."""
    if score is None:
        return []
    divergence = f"divergence from it {score.divergence:.1e} nats a token"
    return [
        ("agreement", f"{score.equal} of {score.tokens} picks are the reference's; {divergence}"),
        ("perplexity", f"{score.perplexity:.5g}; the reference's {score.reference_perplexity:.5g}"),
    ]


def _remedy_fields(found: PresetAccuracy, tolerance: float) -> Iterator[tuple[str, str]]:
    """Tell the floor of a preset, and where it is off, the tensors that have to be in float32."""
    yield from _list_score(found.score)
    yield "floor", floor_text(found.floor)
    if found.scales:
        yield "scales", found.scales
    if found.left:
        yield "untried", f"{', '.join(found.left)} (a larger ADRENOC_EFFORT goes on)"
    if found.starts_at:
        yield "starts at", shorten(found.starts_at)
    if found.remedy is not None:
        yield from _list_remedy(found.remedy)
    elif not found.passed:
        why = f"float32 throughout is off by {found.error_in_float32:.1e}"
        if found.error_in_float32 > tolerance:
            why += ": not a matter of half"
        else:
            why += ": no policy that was tried holds the tolerance, compile with --preset fp32"
        yield "remedy", why


def _list_remedy(remedy: Remedy) -> list[tuple[str, str]]:
    names, cost = remedy.float32_tensors, remedy.cost
    count = count_of(len(names), "tensor")
    size = "none of them can be left out" if remedy.is_minimal else "out of ADRENOC_EFFORT"
    work = f"{remedy.trials} trials, {remedy.runs} runs"
    memory, moved = map(show_bytes, cost.memory_bytes), map(show_bytes, cost.moved_bytes)
    fields = [
        ("in float32", f"{', '.join(map(shorten, names))} ({count}; {size})"),
        ("error", f"{remedy.error_before:.1e} to {remedy.error_after:.1e}, {work}"),
        ("memory", " to ".join(memory)),
        ("bytes moved", f"{' to '.join(moved)} a run"),
    ]
    if cost.time_us is not None:
        before, after = cost.time_us
        times = f"{show_us(before)} to {show_us(after)}"
        spent = 100 * (after / before - 1)
        fields.append(("time", f"{times} by roofline and launches, {spent:+.1f} %"))
    return fields


def list_plan(plan: AccuracyReport) -> Iterator[tuple[str, str]]:
    """List what `compile --accuracy` took."""
    (found,) = plan.presets
    error = found.error if found.remedy is None else found.remedy.error_after
    why = f", {found.accepted_as}" if found.accepted_as else ""
    wanted = f"{plan.tolerance:g} wanted ({plan.inputs}; {plan.device})"
    yield "accuracy", f"{error:.1e} of the range{why}, {wanted}"
    if found.remedy is None:
        yield "in float32", f"nothing more: {found.preset} is within it as it is"
    yield from _remedy_fields(found, plan.tolerance)


def source_parts(report: SourceReport, mended: Path | None) -> Iterator[Part]:
    """Tell how far a decoder is from its source, and what was mended."""
    about = f"{count_of(report.score.tokens, 'token')} ({report.passage})"
    yield Title(text=f"{report.model} beside {report.source}", detail=about)
    yield tabulate(
        sorted(report.products, key=lambda product: -product.error),
        {
            "product": lambda one: Name(one.name),
            "decoder layer": lambda one: one.layer,
            "error by weights": lambda one: show_error(one.error),
            "here": lambda one: show_bytes(one.shipped_bytes),
            "in the source": lambda one: show_bytes(one.source_bytes),
        },
        most=_WORST_PRODUCTS,
    )
    if report.apart:
        names = ", ".join(map(shorten, report.apart[:3]))
        count = count_of(len(report.apart), "product")
        yield Fields(pairs=[("not there", f"{count} by name, such as {names}")])
    limit = f"{report.score.divergence:.1e} nats a token (tolerance {report.tolerance:.0e})"
    is_within = report.score.divergence <= report.tolerance
    said = "is near the source:" if is_within else "diverges from the source by"
    yield Verdict(passed=is_within, text=f"{report.model} {said} {limit}")
    yield Fields(pairs=_list_score(report.score))
    if not is_within:
        yield from _mended_parts(report, mended)


def _mended_parts(report: SourceReport, path: Path | None) -> Iterator[Part]:
    found = report.mended
    if path is None:
        yield Fields(pairs=[("repair", "--mended FILE.onnx writes one")])
    elif found is None:
        why = "the weights of all products that both have do not do; what else differs is no weight"
        yield Fields(pairs=[("repair", f"none: {why}")])
    else:
        said = f"mended: {found.score.divergence:.1e} nats a token, {found.trials} trials"
        yield Verdict(passed=report.passed, text=said)
        names = ", ".join(map(shorten, found.taken))
        taken = f"{count_of(len(found.taken), 'product')}: {names}"
        sizes = " to ".join(map(show_bytes, found.bytes))
        fields = [("taken", taken), ("weights", sizes), *_list_score(found.score)]
        yield Fields(pairs=[*fields, ("written", str(path))])
