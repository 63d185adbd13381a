"""Rows of the table that many stages share: what they dump, note and check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from adrenoc.compile.pipeline.dumps import count_nodes, dump_graph
from adrenoc.compile.pipeline.stage import Stage
from adrenoc.compile.pipeline.state import State, graph_of
from adrenoc.passes.verify.check_graph import check_graph


def graph_stage(name: str, run: Callable[[State], State], **row: Any) -> Stage:
    """Return a stage on the planning graph."""
    return Stage(
        name=name,
        run=run,
        dump=dump_graph,
        note=count_nodes,
        check=lambda state: check_graph(graph_of(state)),
        **row,
    )


def placed_stage(name: str, run: Callable[[State], State], **row: Any) -> Stage:
    """Return a stage on the planning graph whose tensors have their places in memory."""
    return replace(
        graph_stage(name, run, **row),
        check=lambda state: check_graph(graph_of(state), state.target.limits),
    )
