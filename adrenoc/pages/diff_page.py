"""What changed between two bundles, in a terminal and on a page, which has kernels side by side.

What both kernels share is folded to a few lines around changes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from adrenoc.base.text.report import (
    Drawing,
    Fields,
    Name,
    Part,
    Table,
    Title,
    Verdict,
    page,
    safe,
    tabulate,
)
from adrenoc.base.text.spelling import Figure, show_us
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.editions import name_parts
from adrenoc.pages.bundle_diff import NAME, BundleDiff, Change, KernelChange, NodeForm, ShapeDiff
from adrenoc.pages.bundle_page import compare_figures


def diff_html(diff: BundleDiff, before: Bundle, after: Bundle) -> str:
    """Return the whole page."""
    broken = [Verdict(passed=False, text=f"does not hold: {sentence}") for sentence in diff.broken]
    texts = _texts(before), _texts(after)
    title = f"{Path(diff.before).name} → {Path(diff.after).name}"
    about = f"{diff.before} against {diff.after}"
    return page(title, *broken, *_list_parts(diff, texts), about=about, by="diff")


def diff_parts(diff: BundleDiff) -> Iterator[Part]:
    """Return what a terminal shows."""
    yield Title(text=f"{diff.before} → {diff.after}")
    yield from _list_parts(diff, None)


_Texts = Mapping[str, Mapping[str, str]]
"""Kernel sources by name, of each choice of shapes; of a bundle with one, under any."""


def _texts(bundle: Bundle) -> _Texts:
    return {
        name: {k.name: k.source for k in part.kernels()}
        for name, part in name_parts(bundle).items()
    }


def _of(texts: _Texts, shapes: str) -> Mapping[str, str]:
    return texts[shapes] if shapes in texts else next(iter(texts.values()))


def _list_parts(diff: BundleDiff, texts: tuple[_Texts, _Texts] | None) -> Iterator[Part]:
    if diff.same_bytes:
        yield Verdict(passed=True, text="the two hold the same bytes")
        return
    only = ("only before", diff.only_before), ("only after", diff.only_after)
    yield Fields(pairs=[(title, ", ".join(shapes)) for title, shapes in only if shapes])
    for shape in diff.shapes:
        yield from _shape_parts(shape, f" of {shape.shapes}" if len(diff.shapes) > 1 else "")
        if texts is not None:
            pair = [_of(one, shape.shapes) for one in texts]
            sides = "".join(_draw_kernel(k, *pair) for k in shape.kernels if k.kind != NAME)
            if sides:
                yield Drawing(html=sides, title="Kernels side by side")
    yield _list_changes(diff.settings, "setting", "Settings")


def _shape_parts(diff: ShapeDiff, of_shape: str) -> Iterator[Part]:
    if of_shape:
        yield Title(text=f"shapes{of_shape}")
    yield compare_figures(diff.before, diff.after, title=f"Figures{of_shape}")
    if diff.is_equal:
        same = "kernels, nodes, precision and decisions are the same"
        yield Verdict(passed=True, text=same)
        return
    real = [kernel for kernel in diff.kernels if kernel.kind != NAME]
    renamed = len(diff.kernels) - len(real)
    yield _tabulate(
        real,
        {
            "kernel": lambda one: one.kind,
            "before": lambda one: one.before,
            "after": lambda one: one.after,
            "family": lambda one: one.family,
            "lines": lambda one: Figure("+{} -{}".format(*one.lines)),
            "what": lambda one: one.what,
        },
        title=f"Kernels: {len(real)}",
        note=f"{renamed} more have another name and the same text." if renamed else "",
    )
    yield _tabulate(
        diff.nodes,
        {
            "node": lambda one: Name(one.node),
            "before": lambda one: _tell_form(one.before),
            "after": lambda one: _tell_form(one.after),
            "time before": lambda one: _tell_time(one.before),
            "time after": lambda one: _tell_time(one.after),
        },
        title=f"Nodes: {len(diff.nodes)}",
    )
    yield _list_changes(diff.precision, "precision", "Precision", nothing="0")
    yield _tabulate(
        diff.decisions,
        {
            "stage": lambda one: one.stage,
            "subject": lambda one: Name(one.subject),
            "before": lambda one: one.before,
            "after": lambda one: one.after,
            "reason": lambda one: one.reason,
        },
        title=f"Decisions: {len(diff.decisions)}",
    )


def _list_changes(changes: Sequence[Change], what: str, title: str, nothing: str = "") -> Table:
    return _tabulate(
        changes,
        {
            what: lambda one: one.subject,
            "before": lambda one: one.before or nothing,
            "after": lambda one: one.after or nothing,
        },
        title=title,
    )


_tabulate = partial(tabulate, most=10, others="--html and --json list them")


def _tell_form(form: NodeForm | None) -> str:
    return "" if form is None else f"{form.kernel}, {form.memory}"


def _tell_time(form: NodeForm | None) -> Figure:
    return show_us(None if form is None else form.time_us)


def _draw_kernel(change: KernelChange, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    names = " → ".join(dict.fromkeys(name for name in (change.before, change.after) if name))
    body = show_side_by_side(before.get(change.before, ""), after.get(change.after, ""))
    return f"<details><summary>{change.kind}: {safe(names)}</summary>\n{body}</details>\n"


_AROUND = 3
_MOST_LINES = 4000
"""Of a text that is held against another line by line."""


def show_side_by_side(before: str, after: str) -> str:
    """Return a table of four columns: line number and text of each."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MOST_LINES:
        return (
            f"<p class='quiet'>{len(old)} and {len(new)} lines are too many to be held against "
            "each other here.</p>\n"
        )
    return f"<table class='sides'>{''.join(_rows(old, new))}</table>\n"


def _rows(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, old, new)
    for at, group in enumerate(matcher.get_grouped_opcodes(_AROUND)):
        if at:
            yield "<tr><td class='number'>⋮</td><td></td><td class='number'>⋮</td><td></td></tr>\n"
        for tag, i, i_end, j, j_end in group:
            for step in range(max(i_end - i, j_end - j)):
                left = _side(old, i + step, i_end, tag, "went")
                right = _side(new, j + step, j_end, tag, "came")
                yield f"<tr>{left}{right}</tr>\n"


def _side(lines: Sequence[str], at: int, end: int, tag: str, kind: str) -> str:
    if at >= end:
        return "<td class='number'></td><td></td>"
    mark = "" if tag == "equal" else f" class='{kind}'"
    return f"<td class='number'>{at + 1}</td><td{mark}>{safe(lines[at])}</td>"
