"""One row of the pipeline, what it hands to the next, and the check that rows stand in order.

The order is data: a stage belongs to a phase, phases follow each other, and within a phase each
pair whose order matters says so, with the reason, at one of the two.

`State` is what one compilation knows so far.  A stage's dump and its note in the timings are texts
of that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from adrenoc.base.decision import DecisionLog
from adrenoc.clml.partition import Partition
from adrenoc.clml.region import ClmlRegion
from adrenoc.importers.imported import Imported
from adrenoc.ir.graph import AS_OPTIONS, Graph
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Program
from adrenoc.kernels.codegen.build import kernel_sources
from adrenoc.passes.lower.plan_memory import Storage
from adrenoc.target.target import Target

_Part = TypeVar("_Part")


@dataclass(frozen=True, kw_only=True)
class State:
    """What one compilation knows so far; each stage fills in its part."""

    model: Path
    target: Target
    options: CompileOptions
    sha256: str = ""
    """The digest of the model's file, where that is known before it is read."""
    sizes_only: bool = False
    """The plan is looked at, and nothing is built: params are zeros."""
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


def regions_of(state: State) -> tuple[ClmlRegion, ...]:
    """Return the regions of CLML, in order."""
    return state.clml.regions if state.clml is not None else ()


def imported_of(state: State) -> Imported:
    """Return the model as it was imported."""
    return _made(state.imported, "nothing has been imported yet")


def graph_of(state: State) -> Graph:
    """Return the planning graph."""
    return _made(state.graph, "no graph has been read yet")


def program_of(state: State) -> Program:
    """Return the kernels of a state that is lowered."""
    return _made(state.program, "the graph has not been lowered yet")


def storage_of(state: State) -> Storage:
    """Return the memory of a state whose memory is planned."""
    return _made(state.storage, "the memory has not been planned yet")


def _made(part: _Part | None, otherwise: str) -> _Part:
    """Return a part of a state that an earlier stage made."""
    if part is None:
        raise ValueError(otherwise)
    return part


class Phase(str, Enum):
    """The parts of a compilation, in order; `run.py` says what holds at the end of each."""

    IMPORT = "import"
    SIMPLIFY = "simplify"
    FUSE = "fuse"
    PRECISION = "precision"
    PLACE = "place"
    CHOOSE = "choose"
    LOWER = "lower"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One row of the pipeline.

    `run` maps a state to the next one; it is skipped unless `when` holds.  `dump` renders what the
    stage made, `note` says it in a few words, and `check` raises DefectError where the stage broke
    what has to hold.
    """

    name: str
    phase: Phase
    run: Callable[[State], State]
    dump: Callable[[State], str]
    after: Mapping[str, str] = field(default_factory=dict)
    """Stages of the same phase that come first, each with the reason."""
    asks: Mapping[str, str] = field(default_factory=dict)
    """Later stages whose price this one reckons with, so that neither undoes the other's gain."""
    note: Callable[[State], str] = lambda _: ""
    check: Callable[[State], None] = lambda _: None
    when: Callable[[CompileOptions], bool] = lambda _: True


def check_order(stages: Sequence[Stage]) -> None:
    """Phases follow each other, and each stage comes after those that it names.

    Raises:
        ValueError: naming the first stage that stands in a wrong place, and why it does.
    """
    place = {stage.name: number for number, stage in enumerate(stages)}
    if len(place) != len(stages):
        raise ValueError("two stages have one name")
    phases = list(Phase)
    for before, stage in pairwise(stages):
        if phases.index(before.phase) > phases.index(stage.phase):
            raise ValueError(
                f"stage {stage.name} of the phase {stage.phase.value} stands behind "
                f"{before.name} of the phase {before.phase.value}"
            )
    for stage in stages:
        for other, reason in stage.after.items():
            if place.get(other, len(stages)) > place[stage.name]:
                raise ValueError(f"stage {stage.name} comes after {other}: {reason}")
        for other, reason in stage.asks.items():
            if place.get(other, -1) < place[stage.name]:
                raise ValueError(
                    f"stage {stage.name} comes before {other}, which it asks: {reason}"
                )


def dump_module(state: State) -> str:
    """Relax, as TVM prints it."""
    return str(state.module.script(show_meta=False))


def dump_graph(state: State) -> str:
    """Return the planning graph."""
    return graph_of(state).text()


def dump_precisions(state: State) -> str:
    """Return the tensors that ask for another precision than the options, and what they ask."""
    precisions = sorted(graph_of(state).precisions.items())
    lines = [f"%{name}: {asked}" for name, asked in precisions if asked != AS_OPTIONS]
    return "\n".join(lines or ["all tensors are as the options say"]) + "\n"


def dump_layouts(state: State) -> str:
    """Return each tensor's layout."""
    lines = (f"%{name}: {layout}" for name, layout in graph_of(state).layouts.items())
    return "\n".join(lines) + "\n"


def dump_program(state: State) -> str:
    """Return the launches in order, then the kernels as TIR."""
    program = program_of(state)
    launches = (f"{s.kernel}({', '.join(s.arguments)})" for s in program.steps)
    kernels = (k.func.script() for k in program.kernels.values())
    return "\n".join([*launches, "", *kernels]) + "\n"


def dump_storage(state: State) -> str:
    """Return the slots of the memory plan, then the slot of each tensor."""
    plan = storage_of(state)
    lines = [f"slot {i}: {s}" for i, s in enumerate(plan.plan.slots)]
    lines += [f"%{name} in slot {slot}" for name, slot in plan.slot_of.items()]
    return "\n".join(lines) + "\n"


def dump_kernels(state: State) -> str:
    """Return the kernels as OpenCL C."""
    return "\n".join(kernel_sources(state.executable).values())


def count_nodes(state: State) -> str:
    """Return how many nodes of each kind the planning graph has."""
    return f"{len(graph_of(state).nodes)} nodes"


def count_kernels(state: State) -> str:
    """Launches and distinct kernels."""
    program = program_of(state)
    return f"{len(program.steps)} launches of {len(program.kernels)} kernels"


def count_precisions(state: State, asked: str) -> int:
    """Return how many tensors ask for this, a field of `Precision`."""
    return sum(getattr(p, asked) for p in graph_of(state).precisions.values())


def peak(state: State) -> str:
    """GPU memory at its peak, in words for the timings."""
    plan = storage_of(state).plan
    return f"{plan.slot_bytes / 2**20:.1f} MiB, {plan.peak_bytes / 2**20:.1f} with constants"
