"""Recurrent layers: RNN, GRU and LSTM over all steps of a sequence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from adrenoc.importers.relax.own import RECURRENT
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import Layout, channels_last
from adrenoc.kernels.families.recurrent.recurrent_rule import recurrent_rule
from adrenoc.kernels.families.shared.batch import Along, Batch
from adrenoc.kernels.families.shared.counts import count_per_input_element
from adrenoc.kernels.families.shared.operator import (
    NO_INPUTS,
    Kind,
    Numbers,
    Operator,
    channel_of_result,
)
from adrenoc.kernels.families.shared.typical import TypicalRun, one_of


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    constant = tensors[node.inputs[1]].value is not None
    return None if constant else f"{node.inputs[1]} is computed, expected constant weights"


def _follows_batch(batch: Batch, node: Node) -> Along | None:
    along = batch.along.get(node.inputs[0])
    return along if along is not None and along.axis == 0 else None


def _multiply_adds(graph: Graph, node: Node) -> int:
    """Those of the state; what the inputs add is a product of its own."""
    batch, steps, _ = graph.tensors[node.inputs[0]].shape
    return batch * steps * int(np.prod(graph.tensors[node.inputs[1]].shape))


def _terms(graph: Graph, node: Node) -> int:
    return graph.tensors[node.inputs[1]].shape[-1]


def _wants_layout(node: Node, position: int, tensors: Mapping[str, Tensor]) -> Layout | None:
    """All but the weights are read with their last axis in texels."""
    return None if position == 1 else channels_last(len(tensors[node.inputs[position]].shape))


def _typical(run: TypicalRun, node: Node, _data: np.ndarray) -> np.ndarray:
    """Return what lies between minus one and one, but for rectified states and the last cell."""
    return one_of(run.graph.tensors[node.output].shape)


OPERATORS = (
    Operator(
        name="recurrent",
        kind=Kind.PRODUCT,
        numbers=Numbers.CARRIED,
        rule=recurrent_rule,
        relax=RECURRENT,
        refuses=_refuses,
        wants_layout=_wants_layout,
        makes_layout=channel_of_result,
        whole_numbers=NO_INPUTS,
        writes_into=None,
        keeps_axes=False,
        reads_often=False,
        needs_channel_only=False,
        follows_batch=_follows_batch,
        multiply_adds=_multiply_adds,
        terms=_terms,
        operations=count_per_input_element(1),  # an activation of each gate
        typical=_typical,
        fusions=frozenset(),
        channel_weights=None,
        channel_sums=None,
    ),
)
