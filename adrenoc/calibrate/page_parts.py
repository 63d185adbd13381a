"""Parts of reports as HTML: one page with its style inside, tables, cells; it asks no network."""

from __future__ import annotations

import html
from collections.abc import Sequence

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 68em; color: #1b1f24; }
table { border-collapse: collapse; margin: 0.6em 0 2em; }
td, th { padding: 0.2em 0.9em 0.2em 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #e3e6ea; }
td { overflow-wrap: anywhere; }
td:first-child { white-space: nowrap; }
pre { overflow-x: auto; padding: 0.8em; background: #f6f8fa; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.quiet { color: #6a737d; }
svg { margin: 0 1.5em 1em 0; } svg text { font-size: 11px; fill: #57606a; }
figure { display: inline-block; margin: 0; } figcaption { font-weight: 600; }
"""


def page(title: str, *sections: str) -> str:
    """The whole page."""
    return (
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>\n"
        f"<title>{safe(title)}</title>\n<style>{_STYLE}</style>\n"
        f"{''.join(sections)}</html>\n"
    )


def table(names: Sequence[str], body: str) -> str:
    """A table of these columns; `body` is its rows."""
    head = "".join(f"<th>{safe(name)}</th>" for name in names)
    return f"<table><tr>{head}</tr>\n{body}</table>\n"


def line(*cells: str) -> str:
    """A row of these cells."""
    return f"<tr>{''.join(cells)}</tr>\n"


def cell(text: str) -> str:
    """A cell of text."""
    return f"<td>{safe(text)}</td>"


def number(text: str) -> str:
    """A cell of a figure."""
    return f"<td class='number'>{safe(text)}</td>"


def safe(text: str) -> str:
    """Text that is no markup."""
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))
