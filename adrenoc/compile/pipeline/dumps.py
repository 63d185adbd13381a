"""What a stage made, as text: its dump, and its note in the timings."""

from __future__ import annotations

from adrenoc.compile.pipeline.state import State, graph_of, program_of, storage_of
from adrenoc.ir.precision import AS_OPTIONS
from adrenoc.kernels.codegen.build import kernel_sources


def dump_module(state: State) -> str:
    """Relax, as TVM prints it."""
    return str(state.module.script(show_meta=False))


def dump_graph(state: State) -> str:
    """Return the planning graph."""
    return graph_of(state).text()


def dump_precisions(state: State) -> str:
    """Return the tensors that ask for another precision than the options, with what they ask
    for."""
    precisions = sorted(graph_of(state).precisions.items())
    lines = [f"%{name}: {asked}" for name, asked in precisions if asked != AS_OPTIONS]
    return "\n".join(lines or ["all tensors are as the options say"]) + "\n"


def dump_layouts(state: State) -> str:
    """Each tensor's layout."""
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
