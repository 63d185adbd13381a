"""Pools: max, average, and averages to a given size."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.kernels.families.pool.pool_rule import adaptive_avg_pool_rule, pool_geometry, pool_rule
from adrenoc.kernels.families.shared.batch import follow_letters
from adrenoc.kernels.families.shared.context import Rule
from adrenoc.kernels.families.shared.counts import (
    count_per_input_element,
    inputs_per_result,
    size_of,
)
from adrenoc.kernels.families.shared.lettered import letters_refused, makes_letters, wants_letters
from adrenoc.kernels.families.shared.operator import (
    NO_INPUTS,
    Counts,
    Kind,
    Numbers,
    Operator,
    Refuses,
)
from adrenoc.kernels.families.shared.typical import TypicalRun, middle

_LETTERS = "layout"


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    reason = letters_refused(node, _LETTERS)
    if reason is not None:
        return reason
    geometry = pool_geometry(node.attrs)
    if node.attrs["ceil_mode"] and geometry.count_padding:
        return "ceil_mode with count_include_pad: the taps that count differ by border"
    layout = str(node.attrs[_LETTERS])
    source, result = tensors[node.inputs[0]].shape, tensors[node.output].shape
    for letter, window in (("H", geometry.rows), ("W", geometry.columns)):
        axis = layout.find(letter)
        if axis >= 0 and not window.never_empty(result[axis], source[axis]):
            return f"a window along {letter} lies outside of the data"
    return None


def _refuses_adaptive(node: Node, _tensors: Mapping[str, Tensor]) -> str | None:
    return letters_refused(node, _LETTERS)


def _operations(graph: Graph, node: Node) -> int:
    """One for each tap of each window."""
    return _taps(graph, node) * size_of(graph, node.output)


def _taps(_graph: Graph, node: Node) -> int:
    return math.prod(int(extent) for extent in node.attrs["pool_size"])


def _typical(_run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Away from borders, all that a window holds is alike."""
    layout = str(node.attrs[_LETTERS])
    return middle(data, keep=layout.index("C"), also=layout.find("N"))


def _pool(
    name: str, rule: Rule, refuses: Refuses, operations: Counts, terms: Counts, *, reads_often: bool
) -> Operator:
    return Operator(
        name=name,
        kind=Kind.POOL,
        numbers=Numbers.PICKED if name.startswith("max") else Numbers.AVERAGED,
        rule=rule,
        relax=f"relax.nn.{name}",
        refuses=refuses,
        wants_layout=wants_letters(_LETTERS),
        makes_layout=makes_letters(_LETTERS),
        whole_numbers=NO_INPUTS,
        writes_into=None,
        keeps_axes=False,
        reads_often=reads_often,
        needs_channel_only=False,
        follows_batch=follow_letters(_LETTERS),
        multiply_adds=None,
        terms=None if name.startswith("max") else terms,
        operations=operations,
        typical=_typical,
        fusions=frozenset(),
        channel_weights=None,
        channel_sums=None,
    )


OPERATORS = (
    *(
        _pool(name, pool_rule, _refuses, _operations, _taps, reads_often=True)
        for name in ("avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d")
    ),
    _pool(
        "adaptive_avg_pool2d",
        adaptive_avg_pool_rule,
        _refuses_adaptive,
        count_per_input_element(1),
        inputs_per_result,
        reads_often=False,  # its windows hardly overlap
    ),
)
