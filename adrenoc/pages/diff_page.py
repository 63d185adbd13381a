"""Show what changed between two bundles as one HTML file: tables, and kernels side by side.

What both kernels share is folded to a few lines around changes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from adrenoc.base.text.html_page import cell, fold, line, number, page, part, safe, table
from adrenoc.base.text.spelling import show_ms
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.editions import name_parts
from adrenoc.pages.bundle_diff import (
    NAME,
    BundleDiff,
    DecisionChange,
    KernelChange,
    NodeChange,
    NodeForm,
    ShapeDiff,
)
from adrenoc.pages.bundle_page import list_figures


def diff_html(diff: BundleDiff, before: Bundle, after: Bundle) -> str:
    """Return the whole page."""
    names = Path(diff.before).name, Path(diff.after).name
    head = ""
    if diff.same_bytes:
        head += "<p class='good'>The two hold the same bytes.</p>\n"
    if diff.broken:
        items = "".join(f"<li>{safe(sentence)}</li>" for sentence in diff.broken)
        listed = f"<ul class='bad'>{items}</ul>\n"
        head += part("Gates that do not hold", listed, kind="bad")
    for title, shapes in (("before", diff.only_before), ("after", diff.only_after)):
        if shapes:
            head += f"<p>Only {title}: {safe(', '.join(shapes))}</p>\n"
    texts = _texts(before), _texts(after)
    shapes_html = [_shape(shape, texts, len(diff.shapes) > 1) for shape in diff.shapes]
    settings = _section(
        "Settings",
        ("", "before", "after"),
        [line(cell(c.subject), cell(c.before), cell(c.after)) for c in diff.settings],
    )
    title, about = f"{names[0]} → {names[1]}", f"{diff.before} against {diff.after}"
    return page(title, head, *shapes_html, settings, about=about, by="diff")


_Texts = Mapping[str, Mapping[str, str]]
"""Kernel sources by name, of each choice of shapes; of a bundle with one, under any."""


def _texts(bundle: Bundle) -> _Texts:
    return {
        name: {k.name: k.source for k in part.kernels()}
        for name, part in name_parts(bundle).items()
    }


def _of(texts: _Texts, shapes: str) -> Mapping[str, str]:
    return texts[shapes] if shapes in texts else next(iter(texts.values()))


def _shape(diff: ShapeDiff, texts: tuple[_Texts, _Texts], is_one_of_many: bool) -> str:
    figures = [
        line(cell(name), number(was), number(now), cell(change, kind))
        for name, was, now, change, kind in list_figures(diff.before, diff.after)
    ]
    columns = ("", "before", "after", "change")
    title = f"Figures of {diff.shapes}" if is_one_of_many else "Figures"
    precision = [
        line(cell(c.subject), number(c.before or "0"), number(c.after or "0"))
        for c in diff.precision
    ]
    return "".join(
        (
            _section(title, columns, figures),
            _kernels(diff.kernels, _of(texts[0], diff.shapes), _of(texts[1], diff.shapes)),
            _section("Nodes", _NODE_COLUMNS, [_node(change) for change in diff.nodes]),
            _section("Precision", ("", "before", "after"), precision),
            _section("Decisions", _DECISION_COLUMNS, [_decision(c) for c in diff.decisions]),
        )
    )


def _section(title: str, columns: Sequence[str], rows: Sequence[str]) -> str:
    body = table(columns, "".join(rows)) if rows else "<p class='quiet'>nothing differs</p>\n"
    return part(f"{title}: {len(rows)}" if rows and columns[0] else title, body)


_NODE_COLUMNS = ("node", "before", "after", "time before", "time after")
_DECISION_COLUMNS = ("stage", "subject", "before", "after", "reason")


def _node(change: NodeChange) -> str:
    forms = change.before, change.after
    times = [number(_time(form)) for form in forms]
    return line(cell(change.node), *(cell(_form(form)) for form in forms), *times)


def _form(form: NodeForm | None) -> str:
    return "" if form is None else f"{form.family} ({form.kernel}; {form.memory})"


def _time(form: NodeForm | None) -> str:
    return "" if form is None or form.time_us is None else show_ms(form.time_us / 1000)


def _decision(change: DecisionChange) -> str:
    parts = change.stage, change.subject, change.before, change.after, change.reason
    return line(*map(cell, parts))


def _kernels(
    changes: Sequence[KernelChange], before: Mapping[str, str], after: Mapping[str, str]
) -> str:
    """Return each change folded, its texts side by side; names alone in one line."""
    real = [change for change in changes if change.kind != NAME]
    renamed = len(changes) - len(real)
    said = f"<p class='quiet'>{renamed} more have another name and the same text.</p>\n"
    if not real:
        nothing = "<p class='quiet'>nothing differs</p>\n"
        return part("Kernels", said if renamed else nothing)
    folded = [_kernel(change, before, after) for change in real]
    return part(f"Kernels: {len(real)}", "".join(folded) + (said if renamed else ""))


def _kernel(change: KernelChange, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    names = " → ".join(dict.fromkeys(name for name in (change.before, change.after) if name))
    came, went = change.lines
    title = f"{change.kind}: {names} ({change.family})"
    title += f", +{came} -{went} lines" if came or went else ""
    title += f"; {change.what}" if change.what else ""
    body = show_side_by_side(before.get(change.before, ""), after.get(change.after, ""))
    return fold(title, body)


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
