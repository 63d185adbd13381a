"""Which reads of a body are of the very element that is computed."""

from __future__ import annotations

from typing import Any

from adrenoc.base.tvmapi import Expr
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph
from adrenoc.kernels.body_cost import loads_of


def reads_elementwise(body: Body, name: str, graph: Graph) -> bool:
    """Return whether every read of tensor `name` is of the very element that is computed."""
    return all(
        _is_identity(load.indices, body.axes, graph.tensors[name].shape)
        for load in loads_of(body.value)
        if body.source_of(load.source) == name
    )


def _is_identity(indices: Any, axes: tuple[Expr, ...], shape: tuple[int, ...]) -> bool:
    return len(indices) == len(axes) and all(
        extent == 1 or index.same_as(axis)
        for index, axis, extent in zip(indices, axes, shape, strict=True)
    )
