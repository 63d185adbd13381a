"""Plan a program again until its memory fits: other orders of steps, then buffers for images.

Three ways, the cheap ones first:

1. Convolutions run as one kernel each, without the planes of Winograd's algorithm between them.
2. Steps run in another order, in which fewer tensors are alive at once.
3. Intermediate tensors move from textures to buffers.  Images share memory only with images of
   their own width, height and format; a buffer serves any tensor.  Those kinds of image go first
   that free most, and only as many as are needed: it costs speed.

Precision is never lowered: the numbers stay what they were.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import MemoryLimitError
from adrenoc.ir.graph import Graph
from adrenoc.ir.layout import TEXTURE, Memory, OperandSpec
from adrenoc.ir.program import Program
from adrenoc.passes.lower.plan_memory import (
    Storage,
    allocated_bytes,
    live_intervals,
    most_alive,
    plan_memory,
)
from adrenoc.target.gpu import Limits

MIB = 2**20

Lower = Callable[[Graph], Program]
"""Writes the kernels of a graph whose tensors are placed."""


def fit_memory(
    program: Program, limit_mib: int, lower: Lower, log: DecisionLog, unsplit: Graph | None = None
) -> Program:
    """Return the program, changed as far as it must be for its plan to fit.  `unsplit` is the graph
    before convolutions were split, where any was."""
    limit = limit_mib * MIB
    storage = plan_memory(program)
    if storage.plan.peak_bytes <= limit:
        return program
    first = storage.plan.peak_bytes
    if unsplit is not None:
        whole = lower(unsplit)
        planned = plan_memory(whole)
        if planned.plan.peak_bytes < first:
            program, storage = whole, planned
            log.add("convolutions", "one kernel each, none split", _flag(limit_mib))
    fixed = storage.plan.peak_bytes - storage.plan.slot_bytes
    if fixed > limit:  # no order and no reuse changes that
        raise _too_large(program, storage, limit_mib)
    if storage.plan.peak_bytes > limit:
        program, storage = _least_in_any_order(program, storage)
    if storage.plan.peak_bytes > limit:
        program, storage, moved = _move_to_buffers(program, storage, limit, lower)
        for name in moved:
            log.add(name, "buffer", f"as an image it shares no memory, {_flag(limit_mib)}")
    if storage.plan.peak_bytes > limit:
        raise _too_large(program, storage, limit_mib)
    log.add(
        "memory",
        f"planned again: {_mib(storage.plan.peak_bytes)} instead of {_mib(first)}",
        _flag(limit_mib),
    )
    return program


# Order


def _least_in_any_order(program: Program, storage: Storage) -> tuple[Program, Storage]:
    """Return the better of the model's own order and the one that frees as early as it can."""
    other = order_by_freeing(program)
    planned = plan_memory(other)
    if planned.plan.slot_bytes < storage.plan.slot_bytes:
        return other, planned
    return program, storage


def order_by_freeing(program: Program) -> Program:
    """Order the steps: of those that may come next, the one that adds the fewest bytes does.  A
    step adds its output and frees the tensors that it reads last; of equals the earlier one."""
    graph = program.graph
    writes = [{graph.owner(name) for name in step.writes} for step in program.steps]
    made = set[str]().union(*writes)
    reads = [
        {owner for name in step.reads if (owner := graph.owner(name)) in made}
        for step in program.steps
    ]
    readers = Counter(name for read in reads for name in read)
    """How many steps have yet to read each tensor."""
    followers, waiting = _followers(program)
    size = {name: allocated_bytes(graph.operand(name)) for name in made}
    outputs = {graph.owner(name) for name in graph.outputs}
    held: set[str] = set()

    def cost(number: int) -> int:
        freed = (n for n in reads[number] if readers[n] == 1 and n not in outputs)
        return sum(size[own] for own in writes[number] - held) - sum(size[n] for n in freed)

    ready = {number for number, count in enumerate(waiting) if count == 0}
    order: list[int] = []
    while ready:
        number = min(ready, key=lambda number: (cost(number), number))
        ready.remove(number)
        order.append(number)
        held |= writes[number]
        readers.subtract(reads[number])
        for follower in followers[number]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.add(follower)
    return replace(
        program,
        steps=tuple(program.steps[number] for number in order),
        graph=replace(graph, nodes=tuple(graph.nodes[number] for number in order)),
    )


# Buffers


def _move_to_buffers(
    program: Program, storage: Storage, limit: int, lower: Lower
) -> tuple[Program, Storage, list[str]]:
    """Move the fewest kinds of image to buffers that suffice, those that free most first.  Where
    all of them do not suffice, all are moved if that is at least less."""
    kinds = _kinds_of_image(program, storage)

    def try_moving(count: int) -> tuple[Program, Storage, list[str]]:
        moved = [name for names in kinds[:count] for name in names]
        placed = lower(place_in_buffers(program.graph, moved))
        return *_least_in_any_order(placed, plan_memory(placed)), moved

    def peak(plan: tuple[Program, Storage, list[str]]) -> int:
        return plan[1].plan.peak_bytes

    best = min((program, storage, list[str]()), try_moving(len(kinds)), key=peak)
    too_few, enough = 0, len(kinds)
    while peak(best) <= limit and enough - too_few > 1:
        middle = (too_few + enough) // 2
        found = try_moving(middle)
        if peak(found) <= limit:
            best, enough = found, middle
        else:
            too_few = middle
    return best


def _followers(program: Program) -> tuple[list[list[int]], list[int]]:
    """Return for each step those that read what it writes, and how many steps each waits for."""
    graph = program.graph
    number_of = {id(node): number for number, node in enumerate(graph.nodes)}
    followers: list[list[int]] = [[] for _ in program.steps]
    waiting = []
    states = frozenset(graph.states.values())
    readers: dict[str, set[int]] = {name: set() for name in states}
    for number, step in enumerate(program.steps):
        before = {number_of[id(n)] for name in step.reads for n in graph.makers(name)}
        for name in states.intersection(graph.owner(n) for n in step.writes):
            before |= readers[name] - {number}  # of what the last run left there
        for name in states.intersection(graph.owner(n) for n in step.reads):
            readers[name].add(number)
        waiting.append(len(before))
        for other in sorted(before):
            followers[other].append(number)
    return followers, waiting


def place_in_buffers(graph: Graph, names: Sequence[str]) -> Graph:
    """Return the graph with these tensors, and what lies in their memory, in blocked buffers."""
    listed = set(names)
    moved = {name for name in graph.tensors if graph.owner(name) in listed}
    return replace(
        graph,
        placements={
            name: replace(placement, memory=Memory.BLOCKED) if name in moved else placement
            for name, placement in graph.placements.items()
        },
    )


def _kinds_of_image(program: Program, storage: Storage) -> list[list[str]]:
    """Tensors by the image that could hold them; the kind whose slots waste most comes first."""
    graph = program.graph
    tensors: dict[object, list[str]] = defaultdict(list)
    held: dict[object, int] = defaultdict(int)
    for name in storage.slot_of:
        spec = graph.operand(name)
        if spec.memory is Memory.TEXTURE:
            tensors[spec.dtype, spec.physical[1:]].append(name)
    for slot in storage.plan.slots:
        if slot.scope == TEXTURE:
            held[slot.dtype, slot.shape[1:]] += slot.bytes
    return [tensors[kind] for kind in sorted(tensors, key=lambda kind: -held[kind])]


# Refusal


def _too_large(program: Program, storage: Storage, limit_mib: int) -> MemoryLimitError:
    plan, graph = storage.plan, program.graph
    intervals = live_intervals(program)
    _, step = most_alive(i for i in intervals if graph.operand(i.name).memory is not Memory.CPU)
    alive = sorted((i for i in intervals if i.first <= step <= i.last), key=lambda i: -i.bytes)[:3]
    largest = ", ".join(f"{i.name} {_mib(i.bytes)}" for i in alive) or "none"
    where = program.steps[step].arguments[-1] if program.steps else "the model"
    in_full = any(graph.placements[i.name].dtype == "float32" for i in intervals)
    border = plan.input_bytes + plan.output_bytes
    remedies = []
    if plan.param_bytes > limit_mib * MIB // 2:
        remedies.append("a model with fewer weights")
    remedies.append("a smaller input (--shape)")
    if in_full:
        remedies.append("half storage (--preset mixed)")
    return MemoryLimitError(
        f"the plan takes {_mib(plan.peak_bytes)} of GPU memory, max_memory_mib allows "
        f"{limit_mib} MiB: {_mib(plan.param_bytes)} constants, {_mib(border)} inputs and outputs, "
        f"{_mib(plan.slot_bytes)} intermediate tensors, most of them at "
        f"{where} (largest: {largest}); lower it by {' or '.join(remedies)}",
        hint=f"adrenoc check MODEL --limit memory-mib={-(-plan.peak_bytes // MIB)}",
    )


def _flag(limit_mib: int) -> str:
    return f"the limit of {limit_mib} MiB"


def _mib(count: int) -> str:
    return f"{count / MIB:.1f} MiB"


def check_pieces(program: Program, limits: Limits) -> None:
    """Hold each tensor and constant of the GPU against the largest allocation, in bytes."""
    most = limits.max_alloc_bytes
    if most is None:
        return
    name, taken = max(_pieces(program), key=lambda piece: piece[1], default=("", 0))
    if taken <= most:
        return
    what = "its constant" if name in program.params else "its tensor"
    raise MemoryLimitError(
        f"{what} {name} takes {_mib(taken)} in one piece, expected at most {_mib(most)}: the GPU "
        "gives no larger buffer or image",
        hint="compile for a smaller input (--shape NAME:D,D,...), or with half storage "
        "(--preset mixed)",
    )


def _pieces(program: Program) -> Iterator[tuple[str, int]]:
    """Yield (name, bytes) of all that lies on the GPU."""
    for name, param in program.params.items():
        yield name, allocated_bytes(param.spec)
    for step in program.steps:
        for name in step.arguments:
            if name not in program.params:
                spec: OperandSpec = program.graph.operand(program.graph.owner(name))
                if spec.memory is not Memory.CPU:
                    yield name, allocated_bytes(spec)
    for part in program.regions.values():
        yield from _pieces(part)
