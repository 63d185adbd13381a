"""The HTML report: whole in itself, laid out without overlap."""

from __future__ import annotations

import json
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest

from adrenoc.check.report.graph_layout import NODE_HEIGHT, NODE_WIDTH, layered_layout
from adrenoc.check.report.page import page
from tests.unit.verdicts import node, verdict


def _chain(length: int) -> dict[str, tuple[str, ...]]:
    names = [f"n{i}" for i in range(length)]
    return {names[0]: (), **{b: (a,) for a, b in pairwise(names)}}


def _overlaps(centres: dict[str, tuple[float, float]]) -> bool:
    placed = sorted(centres.values(), key=lambda at: (at[1], at[0]))
    return any(
        (y0 == y1 and x1 - x0 < NODE_WIDTH) or 0 < y1 - y0 < NODE_HEIGHT
        for (x0, y0), (x1, y1) in pairwise(placed)
    )


@pytest.mark.parametrize("length", [1, 7, 1500])
def test_a_chain_is_wrapped_into_columns(length: int) -> None:
    centres = layered_layout(_chain(length))
    assert len(centres) == length
    assert not _overlaps(centres)
    width = max(x for x, _ in centres.values()) - min(x for x, _ in centres.values()) + NODE_WIDTH
    height = max(y for _, y in centres.values()) + NODE_HEIGHT
    if length == 1500:
        assert 1 < width / height < 3


def test_branches_stand_beside_each_other() -> None:
    reads = {"x": (), "a": ("x",), "b": ("x",), "c": ("a", "b"), "skip": ("x", "c")}
    centres = layered_layout(reads)
    assert centres["a"][1] == centres["b"][1] > centres["x"][1]
    assert centres["a"][0] < centres["b"][0]
    assert centres["c"][1] > centres["a"][1]
    assert not _overlaps(centres)


def test_the_layout_of_a_large_graph_takes_no_time() -> None:
    reads = {f"n{i}": tuple(f"n{j}" for j in (i - 1, i - 7) if j >= 0) for i in range(15_000)}
    started = time.process_time()
    layered_layout(reads)
    assert time.process_time() - started < 5


def test_nothing_is_loaded_and_data_cannot_break_out() -> None:
    text = page(verdict((node("</script><b>&"), node("y", "</script><b>&"))))
    own = text.replace(_library(), "")
    assert not re.search(r"""(src|href|@import|url\()\s*=?\s*["']?https?:""", own)
    assert "<link" not in own
    assert own.count("</script>") == 3
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', own, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["verdict"]["nodes"][0]["tensor"] == "</script><b>&"


def _library() -> str:
    import adrenoc.check.report.page as module

    return (Path(module.__file__).parent / "cytoscape/cytoscape.min.js").read_text()
