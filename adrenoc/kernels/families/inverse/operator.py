"""Inverses of matrices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from adrenoc.importers.relax.own import INVERSE
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import LANES, channels_last
from adrenoc.kernels.families.inverse.inverse import inverse_rule
from adrenoc.kernels.families.shared.batch import Along, Batch
from adrenoc.kernels.families.shared.operator import (
    NO_INPUTS,
    Kind,
    Numbers,
    Operator,
    channel_of_result,
    channels_last_at,
)
from adrenoc.kernels.families.shared.typical import TypicalRun

_MOST_ROWS = 2 * LANES
"""Of a matrix that a thread holds in registers: beside the identity 32 vectors of four."""


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    shape = tensors[node.output].shape
    if shape[-1] > _MOST_ROWS:
        return f"{shape[-1]} rows, expected {_MOST_ROWS} at most"
    return None if channels_last(len(shape)) is not None else f"{len(shape)} axes, expected 4"


def _follows_batch(batch: Batch, node: Node) -> Along | None:
    along = batch.along[node.inputs[0]]
    return along if along.axis < len(batch.shape(node.inputs[0])) - 2 else None


def _operations(graph: Graph, node: Node) -> int:
    """Return a multiplication and a subtraction for each element, of it and the identity, a
    column."""
    shape = graph.tensors[node.output].shape
    return 2 * 2 * int(np.prod(shape)) * shape[-1]


def _typical(_run: TypicalRun, _node: Node, data: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.pinv(data))


OPERATORS = (
    Operator(
        name="inverse",
        kind=Kind.REDUCTION,
        numbers=Numbers.CARRIED,
        rule=inverse_rule,
        relax=INVERSE,
        refuses=_refuses,
        wants_layout=channels_last_at(0),
        makes_layout=channel_of_result,
        whole_numbers=NO_INPUTS,
        writes_into=None,
        keeps_axes=False,
        reads_often=False,
        needs_channel_only=False,
        follows_batch=_follows_batch,
        multiply_adds=None,
        terms=None,
        operations=_operations,
        typical=_typical,
        fusions=frozenset(),
        channel_weights=None,
        channel_sums=None,
    ),
)
