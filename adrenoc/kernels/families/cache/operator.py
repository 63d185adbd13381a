"""Caches of keys and values: what adds rows to one, and attention over the rows that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from adrenoc.importers.relax.cache_constants import (
    KEYS,
    OF_ATTENTION,
    ROW,
    VALUES,
    head_of,
    name_constants,
)
from adrenoc.importers.relax.own import APPEND_ROWS, CACHED_ATTENTION
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import LANES
from adrenoc.kernels.families.cache.cache_rules import (
    append_rows_rule,
    cached_attention_rule,
    tokens_of,
)
from adrenoc.kernels.families.cache.step_rules import (
    JOIN,
    STEP,
    join_parts_rule,
    step_attention_rule,
)
from adrenoc.kernels.families.shared.batch import Batch
from adrenoc.kernels.families.shared.counts import SOFTMAX_OPERATIONS
from adrenoc.kernels.families.shared.operator import (
    Kind,
    Numbers,
    Operator,
    channel_of_result,
    channels_last_at,
    made_by_passes,
    same_layout,
)
from adrenoc.kernels.families.shared.typical import TypicalRun, one_of


def _refuses_heads(
    node: Node, tensors: Mapping[str, Tensor], cache: str, x: str, others: Sequence[str]
) -> str | None:
    """Return what both kernels need: whole texels of a head, and of each half of what is
    rotated."""
    batch, _, _, width = tensors[cache].shape
    head = head_of(width, int(node.attrs["bits"]))
    shape = tensors[x].shape
    if batch != 1 or shape[0] != 1:
        return f"a batch of {max(batch, shape[0])}, expected 1"
    if len(shape) >= len(tensors[cache].shape):
        return f"{x} has the rank {len(shape)}, expected the axes batch, token and channel"
    rotated, apart = int(node.attrs["rotated"]), not node.attrs["interleaved"]
    whole = LANES * (1 + apart)
    if head % LANES or int(node.attrs["first"]) % LANES or rotated % whole:
        return f"heads of {head} with {rotated} rotated, expected whole texels of both"
    if any(tensors[name].value is None for name in others):
        return "its cosines, sines, gains or scales are computed, expected constants"
    return None


def _refuses_rows(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    cache, x, _, *others = node.inputs
    return _refuses_heads(node, tensors, cache, x, others)


def _refuses_attention(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    return _refuses_heads(node, tensors, node.inputs[2], node.inputs[0], node.inputs[4:])


def _follows_no_batch(_batch: Batch, _node: Node) -> None:
    """The batch is one: a bundle keeps one cache."""


def _turning_operations(graph: Graph, node: Node) -> int:
    """Some for each number that is rotated."""
    return 2 * int(np.prod(graph.tensors[node.inputs[1]].shape))


def _multiply_adds(graph: Graph, node: Node) -> int:
    """With all rows there."""
    _, _, rows, width = graph.tensors[node.inputs[2]].shape
    head = head_of(width, int(node.attrs["bits"]))
    tokens = tokens_of(graph.tensors[node.inputs[0]].shape)
    return 2 * tokens * int(node.attrs["heads"]) * rows * head


def _softmax_operations(graph: Graph, node: Node) -> int:
    rows = graph.tensors[node.inputs[2]].shape[2]
    tokens = tokens_of(graph.tensors[node.inputs[0]].shape)
    return SOFTMAX_OPERATIONS * tokens * int(node.attrs["heads"]) * rows


def _step_multiply_adds(graph: Graph, node: Node) -> int:
    """With all rows there."""
    _, _, rows, width = graph.tensors[node.inputs[2]].shape
    head = head_of(width, int(node.attrs["bits"]))
    return 2 * int(node.attrs["heads"]) * rows * head


def _joining_operations(graph: Graph, node: Node) -> int:
    """Two for each number of a part."""
    return 2 * int(np.prod(graph.tensors[node.inputs[0]].shape))


def _terms(graph: Graph, node: Node) -> int:
    return graph.tensors[node.inputs[2]].shape[2]


def _largest(run: TypicalRun, name: str) -> float:
    return float(np.abs(run.numbers(name)).max())


def _typical_rows(run: TypicalRun, node: Node, _data: np.ndarray) -> np.ndarray:
    """As large as the new ones: the old were new once; of few bits, all that these can say."""
    bits = int(node.attrs["bits"])
    largest = (1 << (bits - 1)) - 1.0 if bits else _largest(run, node.inputs[1])
    return one_of(run.graph.tensors[node.output].shape) * largest


def _typical_mix(run: TypicalRun, node: Node, _data: np.ndarray) -> np.ndarray:
    """Return a mean of values: no larger than the largest."""
    _, _, _, values, *others = node.inputs
    largest = _largest(run, values)
    for scales in name_constants(OF_ATTENTION, node.attrs, others)["scales"][1:]:
        largest *= _largest(run, scales)
    return one_of(run.graph.tensors[node.output].shape) * largest


OPERATORS = (
    Operator(
        name="append_rows",
        kind=Kind.MAP,
        numbers=Numbers.PICKED,
        rule=append_rows_rule,
        relax=APPEND_ROWS,
        refuses=_refuses_rows,
        wants_layout=channels_last_at(1),
        makes_layout=same_layout,
        whole_numbers=frozenset((0, 2)),
        writes_into=0,
        keeps_axes=False,
        reads_often=False,
        needs_channel_only=False,
        follows_batch=_follows_no_batch,
        multiply_adds=None,
        terms=None,
        operations=_turning_operations,
        typical=_typical_rows,
        fusions=frozenset(),
        channel_weights=None,
        channel_sums=None,
    ),
    Operator(
        name="cached_attention",
        kind=Kind.ATTENTION,
        numbers=Numbers.WEIGHTED,
        rule=cached_attention_rule,
        relax=CACHED_ATTENTION,
        refuses=_refuses_attention,
        wants_layout=channels_last_at(0),
        makes_layout=channel_of_result,
        whole_numbers=frozenset((ROW, KEYS, VALUES)),
        writes_into=None,
        keeps_axes=False,
        reads_often=False,
        needs_channel_only=False,
        follows_batch=_follows_no_batch,
        multiply_adds=_multiply_adds,
        terms=_terms,
        operations=_softmax_operations,
        typical=_typical_mix,
        fusions=frozenset(),
        channel_weights=None,
        channel_sums=None,
    ),
    made_by_passes(
        STEP,
        Kind.ATTENTION,
        step_attention_rule,
        multiply_adds=_step_multiply_adds,
        operations=_softmax_operations,
    ),
    made_by_passes(
        JOIN,
        Kind.MAP,
        join_parts_rule,
        numbers=Numbers.AVERAGED,
        multiply_adds=None,
        operations=_joining_operations,
    ),
)
