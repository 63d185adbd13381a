"""Write the page: template, style, script, library and data in one file.

The graph is drawn by Cytoscape.js 3.34.4 (MIT), which lies in `cytoscape/` as its authors ship it.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.text.html_page import read_style
from adrenoc.base.text.printable import printable, printable_json
from adrenoc.bundle.manifest import to_plain
from adrenoc.check.report.graph_layout import NODE_HEIGHT, NODE_WIDTH, layered_layout
from adrenoc.check.verdict import Verdict

_HERE = Path(__file__).resolve().parent


def write_page(verdict: Verdict, path: Path) -> None:
    """Write the report on `verdict` to `path`, all or nothing.

    Raises:
        OutputError: `path` cannot be written.
    """
    write_atomically(path, page(verdict).encode())


def page(verdict: Verdict) -> str:
    """Return the report as HTML that loads nothing."""
    layout = layered_layout({node.tensor: node.reads for node in verdict.nodes})
    data = {
        "verdict": to_plain(verdict),
        "layout": layout,
        "node_size": (NODE_WIDTH, NODE_HEIGHT),
    }
    parts = {
        "{{title}}": html.escape(printable(f"{verdict.model} on {verdict.target_title}")),
        "{{style}}": read_style(),
        "{{library}}": _read("cytoscape/cytoscape.min.js"),
        "{{script}}": _read("page.js"),
        # In a script element only an end tag or a comment could end the data early.
        "{{data}}": printable_json(json.dumps(data, ensure_ascii=False)).replace("<", "\\u003c"),
    }
    template = _read("page.html")
    # In one go: what a part holds is no mark, whatever it looks like.
    marks = re.compile("|".join(map(re.escape, parts)))
    return marks.sub(lambda mark: parts[mark[0]], template)


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
