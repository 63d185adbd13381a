"""Passes ask an operator's record, or the node; the names of operators are for their families."""

import re

import pytest

from tests.sources import texts

MOST_COMPARISONS = 14
"""Outside of the families: `Node`'s own predicates, and what has to know each name."""


_COMPARED = re.compile(
    r"\.op (?:[!=]=|in|not in) |[!=]= [\w.\[\]]+\.op\b"
    r"|\.op\.(?:starts|ends)with\(|match [\w.]+\.op:"
)
"""`==`, `in`, `match` or `startswith` of a node's operator, whatever the node is called."""


def _comparisons(text: str) -> list[str]:
    """The lines that compare a node's operator; TVM's calls have an attribute of this name, too."""
    lines = text.splitlines()
    return [line for line in lines if _COMPARED.search(line) and "Op.get(" not in line]


def test_operators_are_told_apart_by_their_records():
    found = [
        f"{path}: {line}"
        for path, text in texts().items()
        if path.parts[:2] != ("kernels", "families")
        for line in _comparisons(text)
    ]
    assert len(found) <= MOST_COMPARISONS, found


@pytest.mark.parametrize(
    "text",
    [
        'node.op == "conv2d"',
        'node.op not in ("sum", "mean")',
        'node.op.startswith("conv")',
        'graph.producers[name].op != "matmul"',
        'match node.op:\n    case "map":\n        pass',
    ],
)
def test_a_comparison_is_found_whatever_it_looks_like(text):
    assert len(_comparisons(text)) == 1


def test_a_call_of_tvm_is_none():
    assert not _comparisons('call.op == Op.get("relax.call_tir")')
