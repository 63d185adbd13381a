"""Write the page of a verdict: its graph, with style, script and library in one file.

The graph is drawn by Cytoscape.js 3.34.4 (MIT), which lies in `cytoscape/` as its authors ship it,
at places that are chosen here: a node stands one rank below the last of those that it reads.  A
network of 1,500 nodes would be a thread if ranks only went down, so they are broken into columns as
a newspaper is, read from left to right, of a height that gives the drawing the shape of a screen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.text import report
from adrenoc.base.text.report import Drawing
from adrenoc.base.text.report import Verdict as Broken
from adrenoc.base.text.spelling import printable_json
from adrenoc.bundle.manifest import to_plain
from adrenoc.check.verdict import Verdict
from adrenoc.pages.check_page.parts import page_parts

_HERE = Path(__file__).resolve().parent


def write_page(verdict: Verdict, path: Path) -> None:
    """Write the report on `verdict` to `path`, all or nothing. Raises OutputError where `path`
    cannot be written."""
    write_atomically(path, page(verdict).encode())


def page(verdict: Verdict) -> str:
    """Return the report as HTML that loads nothing."""
    layout = layered_layout({node.tensor: node.reads for node in verdict.nodes})
    size = NODE_WIDTH, NODE_HEIGHT
    data = {"verdict": to_plain(verdict), "layout": layout, "node_size": size}
    # In a script element only an end tag or a comment could end the data early.
    told = printable_json(json.dumps(data, ensure_ascii=False)).replace("<", "\\u003c")
    scripts = "".join(
        f"<script{kind}>\n{text}\n</script>\n"
        for kind, text in (
            (" id='data' type='application/json'", told),
            ("", _read("cytoscape/cytoscape.min.js")),
            ("", _read("page.js")),
        )
    )
    return report.page(
        verdict.model,
        *(Broken(passed=False, text=f"broken: {sentence}") for sentence in verdict.broken),
        Drawing(html=_read("page.html")),
        *page_parts(verdict),
        Drawing(html=scripts),
        about=f"{verdict.target_title} ({verdict.target}), preset {verdict.preset}",
        by="check",
    )


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


NODE_WIDTH, NODE_HEIGHT = 190, 46
_GAP_X, _GAP_Y, _GAP_COLUMN = 30, 34, 110
_SHAPE_OF_SCREEN = 1.9
"""Width over height."""


def layered_layout(reads: Mapping[str, Sequence[str]]) -> dict[str, tuple[float, float]]:
    """Return the centre (x, y) of each node in pixels; `reads` lists, in order, what each node
    reads."""
    ranks = _ranks(reads)
    rows = _rows(reads, ranks)
    in_column = _rows_in_column(rows)
    centres: dict[str, tuple[float, float]] = {}
    left = 0.0
    for start in range(0, len(rows), in_column):
        column = rows[start : start + in_column]
        width = max(len(row) for row in column) * (NODE_WIDTH + _GAP_X)
        for number, row in enumerate(column):
            y = number * (NODE_HEIGHT + _GAP_Y)
            for place, name in enumerate(row):
                offset = (place - (len(row) - 1) / 2) * (NODE_WIDTH + _GAP_X)
                centres[name] = (left + width / 2 + offset, y)
        left += width + _GAP_COLUMN
    return centres


def _ranks(reads: Mapping[str, Sequence[str]]) -> dict[str, int]:
    ranks: dict[str, int] = {}
    for name, sources in reads.items():
        ranks[name] = 1 + max((ranks[source] for source in sources if source in ranks), default=-1)
    return ranks


def _rows(reads: Mapping[str, Sequence[str]], ranks: Mapping[str, int]) -> list[list[str]]:
    """Return the nodes of each rank, from left to right below what they read."""
    rows: list[list[str]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for name, rank in ranks.items():
        rows[rank].append(name)
    place: dict[str, float] = {}
    for row in rows:
        middle = (len(row) - 1) / 2
        row.sort(key=lambda name: _mean([place[s] for s in reads[name] if s in place]))
        place.update((name, number - middle) for number, name in enumerate(row))
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _rows_in_column(rows: Sequence[Sequence[str]]) -> int:
    """As many rows as make the whole drawing about as wide as a screen is, to its height."""
    if not rows:
        return 1
    widest = max(len(row) for row in rows) * (NODE_WIDTH + _GAP_X) + _GAP_COLUMN
    height = len(rows) * (NODE_HEIGHT + _GAP_Y)
    columns = max(1, round(math.sqrt(_SHAPE_OF_SCREEN * height / widest)))
    return -(-len(rows) // columns)
