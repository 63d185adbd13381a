"""`adrenoc check-accuracy --source`: a decoder beside the same one with more bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.cli import console
from adrenoc.cli.show_accuracy import list_score

if TYPE_CHECKING:
    from adrenoc.check.source.compare import SourceReport

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
    console.print_fields(list_score(report.score))
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
    fields = [("taken", taken), ("weights", sizes), *list_score(found.score)]
    console.print_fields([*fields, ("written", str(path))])
