"""Passes ask an operator's record, or the node; the names of operators are for their families."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.sources import trees

MOST_COMPARISONS = 15
"""Outside of the families: `Node`'s own predicates, and what has to know each name."""


def _is_op(expr: ast.expr) -> bool:
    """Whether it is `node.op`, of a node by any name."""
    return isinstance(expr, ast.Attribute) and expr.attr == "op"


def _comparisons(tree: ast.AST) -> Iterator[int]:
    """The lines that compare a node's operator with names: `==`, `in`, `match`, `startswith`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            named = any(map(_is_op, sides))
            # TVM's calls have an attribute of this name, too.
            named = named and not any("Op.get(" in ast.unparse(side) for side in sides)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = _is_op(node.func.value) and node.func.attr in ("startswith", "endswith")
        else:
            named = isinstance(node, ast.Match) and _is_op(node.subject)
        if named:
            yield node.lineno


def test_operators_are_told_apart_by_their_records() -> None:
    found = [
        f"{path}:{line}"
        for path, tree in trees().items()
        if path.parts[:2] != ("kernels", "families")
        for line in _comparisons(tree)
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
def test_a_comparison_is_found_whatever_it_looks_like(text: str) -> None:
    assert len(list(_comparisons(ast.parse(text)))) == 1


def test_a_call_of_tvm_is_none() -> None:
    assert not list(_comparisons(ast.parse('call.op == Op.get("relax.call_tir")')))
