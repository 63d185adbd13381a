"""Cumulative sums and products: what goes along one axis, and gives as much as it reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from adrenoc.ir.graph import Node, Tensor
from adrenoc.kernels.families.scan.scan import scan_rule
from adrenoc.kernels.families.shared.batch import Along, Batch
from adrenoc.kernels.families.shared.counts import count_per_input_element
from adrenoc.kernels.families.shared.operator import (
    NO_INPUTS,
    Kind,
    Numbers,
    Operator,
    any_layout,
    same_layout,
)
from adrenoc.kernels.families.shared.typical import TypicalRun


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    for name in (node.inputs[0], node.output):
        if not tensors[name].is_float:
            return f"{name} is of {tensors[name].dtype}, expected floating point"
    return "all axes as one, expected one of them" if node.attrs["axis"] is None else None


def _follows_batch(batch: Batch, node: Node) -> Along | None:
    along, rank = batch.along[node.inputs[0]], len(batch.shape(node.inputs[0]))
    return None if int(node.attrs["axis"]) % rank == along.axis else along


def _typical(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """The largest are about the last; elements that are alike count as often as there
    are."""
    shape = run.graph.tensors[node.output].shape
    axis = int(node.attrs["axis"]) % len(shape)
    unseen = shape[axis] / data.shape[axis + 1]
    if node.op == "cumsum":
        return np.asarray(np.cumsum(data, axis=axis + 1) * unseen)
    return np.asarray(np.cumprod(data, axis=axis + 1) ** unseen)


def _scan(name: str) -> Operator:
    return Operator(
        name=name,
        kind=Kind.REDUCTION,
        numbers=Numbers.CARRIED,
        rule=scan_rule,
        relax=f"relax.{name}",
        refuses=_refuses,
        wants_layout=any_layout,
        makes_layout=same_layout,
        whole_numbers=NO_INPUTS,
        writes_into=None,
        keeps_axes=True,
        reads_often=False,
        needs_channel_only=False,
        follows_batch=_follows_batch,
        multiply_adds=None,
        terms=None,
        operations=count_per_input_element(1),
        typical=_typical,
        fusions=frozenset(),
        channel_weights=None,
        channel_sums=None,
    )


OPERATORS = (_scan("cumsum"), _scan("cumprod"))
