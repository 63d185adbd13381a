"""How much each step of a program has to do: multiply-adds, operations, texels, bytes.

Multiply-adds and operations are those of the operator as mathematics states it, so that they do
not depend on how a kernel is scheduled; a convolution that was split by Winograd's algorithm is
three operators with fewer of them.  Texels are counted in the TIR of the kernel: every
`texture2d_load` times the loops and threads around it.  Bytes count each tensor and each packed
constant once.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm_ffi.structural import WalkResult, structural_walk

from adrenoc.base.tvmapi import Call, For, IfThenElse, Op, bits_of, const_int
from adrenoc.bundle.bundle import LaunchInfo
from adrenoc.ir.graph import Body, Graph, Node
from adrenoc.ir.layout import Memory, OperandSpec
from adrenoc.ir.program import Kernel, Program, Step
from adrenoc.kernels.body_cost import body_operations, loads_of
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.passes.lower.plan_memory import size_bytes
from adrenoc.target.gpu import Roofline, Work


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """The work of one step; `macs` are its multiply-adds, which `work.flops` counts twice."""

    macs: int
    work: Work


def measure_work(program: Program, *, half: bool) -> tuple[StepWork, ...]:
    """Return the work of each step in order; `half` says that kernels compute in half precision."""
    texels = {name: texel_reads(kernel) for name, kernel in program.kernels.items()}
    steps = zip(program.graph.nodes, program.steps, strict=True)
    return tuple(
        _measure_step(program, node, step, texels=texels.get(step.kernel, 0), half=half)
        for node, step in steps
    )


def _measure_step(program: Program, node: Node, step: Step, *, texels: int, half: bool) -> StepWork:
    graph = program.graph
    # What CLML does is estimated where it is partitioned.
    macs = 0 if not node.has_kernel else multiply_adds(graph, node)
    flops = 2 * macs
    if node.has_kernel:
        flops += _operations(graph, node)
    return StepWork(
        macs=macs,
        work=Work(
            flops=flops,
            half=half,
            texels=texels,
            bytes_read=sum(read_bytes(program, node, n) for n in dict.fromkeys(step.reads)),
            bytes_written=sum(_count_written_bytes(program, node, name) for name in node.writes),
        ),
    )


def read_bytes(program: Program, node: Node, name: str) -> int:
    """Bytes that a node has to read of a tensor: all, or of a table as much as it looks up."""
    held, graph, body = _bytes(program, name), program.graph, node.body
    if body is None or not looks_up(graph, node, name):
        return held
    count = len(_loads_from(graph, body, name)) * math.prod(n for _, n in body.reduced)
    count *= math.prod(graph.tensors[node.output].shape)
    param = program.params.get(name)
    dtype = graph.operand(name).dtype if param is None else str(param.value.dtype)
    return min(held, count * bits_of(dtype) // 8)


def looks_up(graph: Graph, node: Node, name: str) -> bool:
    """Return whether a node reads a tensor where other numbers say alone, as rows of a table."""
    mine = [] if node.body is None else _loads_from(graph, node.body, name)
    return bool(mine) and all(any(loads_of(index) for index in one.indices) for one in mine)


def _loads_from(graph: Graph, body: Body, name: str) -> list[Any]:
    """Return the loads of a body that read a tensor."""
    sources = ((one, body.source_of(one.source)) for one in loads_of(body.value))
    return [one for one, s in sources if s is not None and name in (s, graph.owner(s))]


def _count_written_bytes(program: Program, node: Node, name: str) -> int:
    """Return bytes that a node writes of a tensor, others of which another one may write."""
    graph, held = program.graph, _bytes(program, name)
    placings = [s.placing for s in node.stores if s.tensor == name and s.placing is not None]
    if not placings:
        return held
    e, whole = graph.operand(name).extents, graph.operand(node.output).extents
    texels = sum(placing.texels(whole) for placing in placings)
    return held * texels // (e.n * e.blocks * e.h * e.w)


def _bytes(program: Program, name: str) -> int:
    param = program.params.get(name)
    return size_bytes(program.graph.operand(name).alone) if param is None else param.value.nbytes


def least_bytes(program: Program) -> int:
    """Return what a run moves if it touches each tensor no more often than it must.  Inputs,
    outputs and constants once, of tables what is looked up; what lies between kernels is written
    once and read once."""
    graph = program.graph
    read: Counter[str] = Counter()
    for node, step in zip(graph.nodes, program.steps, strict=True):
        read.update({n: read_bytes(program, node, n) for n in {*step.reads} & {*program.params}})
    constants = sum(min(read[name], p.value.nbytes) for name, p in program.params.items())
    border = {*graph.inputs, *(graph.owner(name) for name in graph.outputs)}
    between = {graph.owner(name) for step in program.steps for name in step.writes} - border
    sizes = {name: size_bytes(graph.operand(name)) for name in (*border, *between)}
    return constants + sum(sizes[n] for n in border) + 2 * sum(sizes[n] for n in between)


# Arithmetic


def multiply_adds(graph: Graph, node: Node) -> int:
    """Return the multiply-adds of a node that is a product; 0 for the others."""
    operator = OPERATORS.get(node.op)
    if operator is None or operator.multiply_adds is None:
        return 0
    return operator.multiply_adds(graph, node)


def _operations(graph: Graph, node: Node) -> int:
    """Return operations beside multiply-adds: of bodies, epilogues and what runs over elements."""
    operator = OPERATORS["map"] if node.body is not None else OPERATORS[node.op]
    count = operator.operations(graph, node)
    if node.epilogue is not None:
        count += body_operations(node.epilogue) * math.prod(graph.tensors[node.output].shape)
    return count


# Texture reads


def texel_reads(kernel: Kernel) -> int:
    """Return texels that one launch of the kernel reads, threads beyond the edge included."""
    threads = math.prod(kernel.launch.grid) * math.prod(kernel.launch.work_group)
    return threads * _loads(kernel.func.body)


_TEXTURE_LOAD = "tirx.texture2d_load"


def _loads(part: Any) -> int:
    """Texture loads of one thread in a statement or an expression; what branches is told apart."""
    load, found = Op.get(_TEXTURE_LOAD), 0
    apart: list[Any] = []

    def visit(call: Any) -> None:
        nonlocal found
        found += bool(load.same_as(call.op))

    def leave(statement: Any) -> WalkResult:
        apart.append(statement)
        return WalkResult.SKIP

    structural_walk(part, [((For, IfThenElse), leave), (Call, visit)], order="pre")
    return found + sum(map(_loads_of_branches, apart))


def _loads_of_branches(stmt: Any) -> int:
    """Return those of a loop or a condition: of two branches the longer one counts."""
    if isinstance(stmt, For):
        # A loop over as many rows as are there says nothing of how many: it counts once.
        return (const_int(stmt.extent) or 1) * _loads(stmt.body)
    other = _loads(stmt.else_case) if stmt.else_case is not None else 0
    return max(_loads(stmt.then_case), other) + _loads(stmt.condition)


def place_of(spec: OperandSpec) -> str:
    """Return `texture`, `buffer` or `cpu`: where the step that writes this tensor runs."""
    return spec.memory.value if spec.memory in (Memory.TEXTURE, Memory.CPU) else "buffer"


def list_launches(
    program: Program, *, half: bool, roofline: Roofline, node_of: Callable[[str], str]
) -> tuple[LaunchInfo, ...]:
    """Return the launches on the GPU, in order.  `half` says that kernels compute in half
    precision; `node_of` gives the model's node behind a node of the graph, or an empty string."""
    works = measure_work(program, half=half)
    launches = []
    for node, step, work in zip(program.graph.nodes, program.steps, works, strict=True):
        if step.place != "gpu":
            continue
        floor_us = roofline.estimate(work.work).time_us
        launches.append(
            LaunchInfo(
                kernel=step.kernel,
                node=" + ".join(node_of(name) or name for name in node.names),
                flops=work.work.flops,
                bytes=work.work.bytes_read + work.work.bytes_written,
                floor_us=None if floor_us is None else round(floor_us, 3),
                tensors=tuple(node.names),
            )
        )
    return tuple(launches)
