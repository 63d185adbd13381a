"""One HTML file of tables, whole in itself: it asks no network, and shows any text as a text."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from itertools import zip_longest

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --quiet: #57606a; --line: #d0d7de;
  --box: #f6f8fa; --good: #1a7f37; --bad: #cf222e; --mark: #0969da; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --quiet: #9198a1; --line: #3d444d;
  --box: #161b22; --good: #3fb950; --bad: #f85149; --mark: #4493f8; --paper: #0d1117; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 84em; padding: 0 1em;
  color: var(--ink); background: var(--paper); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.6em 0 2em; }
td, th { padding: 0.2em 0.9em 0.2em 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
td { overflow-wrap: break-word; }
td:last-child:not(.number) { min-width: 14em; overflow-wrap: anywhere; }
td:first-child { white-space: nowrap; }
td.number, th.number { text-align: right; }
td.number { min-width: 0; font-variant-numeric: tabular-nums; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .quiet { color: var(--quiet); }
pre { overflow-x: auto; padding: 0.8em; background: var(--box); }
svg { margin: 0 1.5em 1em 0; } svg text { font-size: 11px; fill: var(--quiet); }
svg line { stroke: var(--line); } svg polyline { stroke: var(--mark); fill: none; stroke-width: 2; }
svg circle, svg .whole { fill: var(--mark); } svg .part { fill: var(--ink); }
figure { display: inline-block; margin: 0; } figcaption { font-weight: 600; }
summary { cursor: pointer; padding: 0.25em 0; } details { border-bottom: 1px solid var(--line); }
details table { margin: 0.4em 0 1em; } :focus-visible { outline: 2px solid var(--mark); }
.bar { display: inline-block; height: 0.6em; margin-right: 0.5em; background: var(--mark); }
.cards { display: flex; flex-wrap: wrap; gap: 0.8em; margin: 1em 0 1.6em; padding: 0; }
.cards div { border: 1px solid var(--line); border-radius: 6px; padding: 0.5em 1em; }
.cards dt { color: var(--quiet); font-size: 0.85em; }
.cards dd { margin: 0; font-size: 1.3em; font-weight: 600; }
.sides { table-layout: fixed; width: 100%; font: 12px/1.4 ui-monospace, monospace; }
.sides td { white-space: pre-wrap; overflow-wrap: anywhere; padding: 0 0.5em; border: 0;
  min-width: 0; }
.sides td.number { width: 3.2em; color: var(--quiet); border-right: 1px solid var(--line); }
.sides td.came { background: color-mix(in srgb, var(--good) 16%, transparent); }
.sides td.went { background: color-mix(in srgb, var(--bad) 14%, transparent); }
@media print {
  :root { --ink: #000; --quiet: #444; --line: #bbb; --box: #f4f4f4; --good: #14622a;
    --bad: #a01020; --mark: #0550ae; --paper: #fff; color-scheme: light; }
  body { margin: 0; max-width: none; font-size: 10pt; } .wide { overflow: visible; }
  h2 { break-after: avoid; } tr, figure { break-inside: avoid; }
}
"""


_NUMBER = " class='number'"
_CELL = re.compile(r"<td( class='number')?")


def page(title: str, *sections: str) -> str:
    """Return the whole file; sections are HTML."""
    return (
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width'>\n"
        f"<title>{safe(title)}</title>\n<style>{_STYLE}</style>\n{''.join(sections)}</html>\n"
    )


def table(names: Sequence[str], body: str) -> str:
    """Return a table of these columns, which scrolls where it is too wide; `body` is its rows.

    The name of a column stands above its figures, as they are set in the first row.
    """
    kinds = _CELL.findall(body.partition("</tr>")[0])
    head = "".join(
        f"<th scope='col'{_NUMBER if kind == _NUMBER else ''}>{safe(name)}</th>"
        for name, kind in zip_longest(names, kinds[: len(names)], fillvalue="")
    )
    return f"<div class='wide'><table><tr>{head}</tr>\n{body}</table></div>\n"


def line(*cells: str) -> str:
    """Return a row of these cells."""
    return f"<tr>{''.join(cells)}</tr>\n"


def cell(text: str, kind: str = "") -> str:
    """Return a cell; `kind` is "number", "good", "bad", "quiet" or nothing."""
    return f"<td{kind and f' class={kind!r}'}>{safe(text)}</td>"


def number(text: str) -> str:
    """Return a cell of a figure, set to the right."""
    return cell(text, "number")


def cards(figures: Sequence[tuple[str, str]]) -> str:
    """Return a row of figures, each a name and what it is."""
    each = "".join(
        f"<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>" for name, value in figures
    )
    return f"<dl class='cards'>{each}</dl>\n"


def section(title: str, columns: Sequence[str], rows: Sequence[str], note: str = "") -> str:
    """Return a headed table of rows, under a note; nothing without rows."""
    if not rows:
        return ""
    said = f"<p class='quiet'>{safe(note)}</p>\n" if note else ""
    return f"<h2>{safe(title)}</h2>\n{said}{table(columns, ''.join(rows))}"


def bar(share: float, text: str) -> str:
    """Return a cell of a figure, and one with a bar as long as the share (0 to 1) that it is."""
    width = 12 * min(max(share, 0.0), 1.0)
    return f"{number(text)}<td><span class='bar' style='width:{width:.2f}em'></span></td>"


def fold(title: str, body: str, *, is_open: bool = False) -> str:
    """Return a part that a click or a key opens; `body` is HTML."""
    return f"<details{' open' * is_open}><summary>{safe(title)}</summary>\n{body}</details>\n"


def safe(text: str) -> str:
    """Return a text that is only shown, whatever it holds."""
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))
