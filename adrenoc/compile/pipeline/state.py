"""What one compilation knows so far, from stage to stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adrenoc.base.decision import DecisionLog
from adrenoc.clml.partition import Partition
from adrenoc.clml.region import Region
from adrenoc.importers.imported import Imported
from adrenoc.ir.graph import Graph
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Program
from adrenoc.passes.lower.plan_memory import Storage
from adrenoc.target.target import Target


@dataclass(frozen=True, kw_only=True)
class State:
    """What one compilation knows so far; each stage fills in its part."""

    model: Path
    target: Target
    options: CompileOptions
    sha256: str = ""
    """The digest of the model's file, where that is known before it is read."""
    log: DecisionLog = field(default_factory=DecisionLog)
    imported: Imported | None = None
    module: Any = None
    """Relax: the model before the graph is read, the kernels' driver after `emit_relax`."""
    clml: Partition | None = None
    """The regions that CLML computes, with `options.clml`."""
    graph: Graph | None = None
    region_graphs: Mapping[str, Graph] = field(default_factory=dict)
    """Region of CLML -> the graph of its kernels, for where CLML cannot run it."""
    unsplit: Graph | None = None
    """The graph before convolutions were split by Winograd's algorithm, where any was."""
    program: Program | None = None
    storage: Storage | None = None
    region_storage: Mapping[str, Storage] = field(default_factory=dict)
    executable: Any = None


def regions_of(state: State) -> tuple[Region, ...]:
    """Return the regions of CLML, in order."""
    return state.clml.regions if state.clml is not None else ()


def imported_of(state: State) -> Imported:
    """Return the model as it was imported."""
    if state.imported is None:
        raise ValueError("nothing has been imported yet")
    return state.imported


def graph_of(state: State) -> Graph:
    """Return the planning graph."""
    if state.graph is None:
        raise ValueError("no graph has been read yet")
    return state.graph


def program_of(state: State) -> Program:
    """Return the kernels of a state that is lowered."""
    if state.program is None:
        raise ValueError("the graph has not been lowered yet")
    return state.program


def storage_of(state: State) -> Storage:
    """Return the memory of a state whose memory is planned."""
    if state.storage is None:
        raise ValueError("the memory has not been planned yet")
    return state.storage
