"""What `check-accuracy` found as one HTML file: the error of each layer, and what mends it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adrenoc.base.text.html_page import (
    bar,
    cards,
    cell,
    line,
    number,
    page,
    part,
    section,
    show_table,
)
from adrenoc.base.text.spelling import count_of, dims
from adrenoc.check.accuracy.causes import list_decoder_layers, show_error
from adrenoc.check.accuracy.result import AccuracyReport, LayerAccuracy, PresetAccuracy
from adrenoc.pages.run_page import Bar, draw_bars


def accuracy_html(report: AccuracyReport) -> str:
    """Return the whole page, a part a preset."""
    taken = f"{count_of(report.samples, 'set')} of inputs: {report.inputs}"
    if report.passage:
        taken = f"{count_of(report.samples, 'token')} ({report.passage})"
    about = f"on {report.device}, {taken}"
    return page(
        f"{report.model}, accuracy",
        *(_preset(report, found) for found in report.presets),
        about=about,
        by="check-accuracy",
    )


def _preset(report: AccuracyReport, found: PresetAccuracy) -> str:
    kind, said = ("good", "agrees") if found.passed else ("bad", "does not agree")
    figures = [
        ("error", show_error(found.error)),
        ("tolerance", f"{report.tolerance:.0e}"),
        ("error of rounding alone", show_error(found.floor.error)),
    ]
    if (score := found.score) is not None:
        figures.append(("picks that are the reference's", f"{score.equal} of {score.tokens}"))
        figures.append(("perplexity", f"{score.perplexity:.5g}"))
        figures.append(("the reference's perplexity", f"{score.reference_perplexity:.5g}"))
    if (remedy := found.remedy) is not None:
        kept = f"with {count_of(len(remedy.float32_tensors), 'tensor')} in float32"
        figures.append((kept, show_error(remedy.error_after)))
    return "".join(
        (
            part(found.preset, f"<p class='{kind}'>{said} with the reference</p>\n"),
            cards(figures),
            _drawing(found.layers),
            _decoder_layers(found.layers),
            _layers(found.layers),
            _remedy(found),
        )
    )


def _drawing(layers: Sequence[LayerAccuracy]) -> str:
    """Return the error so far along the network, with what each layer adds."""
    if not layers:
        return ""
    bars = [
        Bar(
            title=f"{layer.name}: {show_error(layer.total_error)}, "
            f"own {show_error(layer.local_error)}",
            height=layer.total_error,
            part=layer.local_error,
        )
        for layer in layers
    ]
    finite = [x.total_error for x in layers if math.isfinite(x.total_error)]
    note = "The error up to each layer, in the model's order; the dark part is the layer's own."
    return f"<p class='quiet'>{note}</p>\n" + draw_bars(
        bars, top=f"{max(finite, default=0.0):.1e}", what=f"errors of {len(layers)} layers"
    )


def _decoder_layers(layers: Sequence[LayerAccuracy]) -> str:
    """Return what enters by each layer of a decoder; nothing of other models."""
    shown = list_decoder_layers(layers)
    if not shown.rows:
        return ""
    note = "The most that a kernel of the layer adds where these alone are rounded."
    return part("Decoder layers", show_table(shown), note)


def _layers(layers: Sequence[LayerAccuracy]) -> str:
    most = max((x.local_error for x in layers if math.isfinite(x.local_error)), default=0.0) or 1.0
    rows = [
        line(
            cell(layer.name),
            cell(" ".join(layer.operators)),
            cell(dims(layer.shape)),
            number(f"{layer.largest:.3g}"),
            bar(layer.local_error / most, show_error(layer.local_error)),
            number(show_error(layer.total_error)),
            cell("; ".join(f"{cause.name}: {cause.evidence}" for cause in layer.causes)),
        )
        for layer in sorted(layers, key=lambda layer: -layer.local_error)
    ]
    columns = ("layer", "operators", "shape", "largest", "own error", "", "error so far", "why")
    return section("Layers", columns, rows, "Those first that add most to the error by themselves.")


def _remedy(found: PresetAccuracy) -> str:
    rows = [line(cell(name)) for name in found.remedy.float32_tensors] if found.remedy else []
    return section("Kept in float32 by the remedy", ("tensor",), rows)
