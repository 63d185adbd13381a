"""Do the launches do what the planning graph says, with kernels that the target can run?"""

from __future__ import annotations

from collections.abc import Iterable

from adrenoc.base.errors import DefectError
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.node_kinds import CLML
from adrenoc.ir.operand import TEXTURE, OperandSpec
from adrenoc.ir.program import Kernel, Program, Step
from adrenoc.target.gpu import Limits

_POINTER_BYTES = 8
"""Of a kernel's argument: all are memory."""

GPU = "gpu"
"""The place of a step that launches a kernel."""


def check_kernels(program: Program, limits: Limits) -> None:
    """Every kernel fits the target.

    Raises:
        DefectError: naming the kernel and the limit.
    """
    for kernel in program.kernels.values():
        arguments = len(kernel.scopes)
        if refused := limits.refuse_group(kernel.launch.work_group):
            raise DefectError(f"{kernel.name} has {refused}")
        _check_limit(
            kernel, kernel.shared_bytes, limits.local_mem_bytes, "bytes of local memory a group"
        )
        _check_limit(kernel, arguments, limits.max_kernel_args, "arguments")
        _check_limit(
            kernel, arguments * _POINTER_BYTES, limits.max_kernel_args_bytes, "bytes of arguments"
        )


def _check_limit(kernel: Kernel, seen: int, most: int, what: str) -> None:
    if seen > most:
        raise DefectError(f"{kernel.name} has {seen} {what}, at most {most}")


def check_launches(program: Program, limits: Limits) -> None:
    """Each step reads and writes what its node does, by a kernel made for such memory.

    Raises:
        DefectError: naming the step and the tensor.
    """
    graph = program.graph
    if len(graph.nodes) != len(program.steps):
        raise DefectError(f"{len(program.steps)} steps for {len(graph.nodes)} nodes")
    for node, step in zip(graph.nodes, program.steps, strict=True):
        _check_step(program, node, step)
        if step.place == GPU:
            _check_arguments(program, node, step)
            _check_images(program, node, step, limits)


def _check_step(program: Program, node: Node, step: Step) -> None:
    """The step gives its kernel what the node reads and writes, and nothing else."""
    graph = program.graph
    results = node.attrs["results"] if step.place == CLML else node.writes
    written, wanted = _owners(graph, step.writes), _owners(graph, results)
    if written != wanted:
        raise DefectError(
            f"{node.name} writes {_list_items(written)}, and should {_list_items(wanted)}"
        )
    read = _owners(graph, (name for name in step.reads if name not in program.params))
    computed = _owners(graph, (n for n in node.inputs if graph.tensors[n].value is None))
    computed -= written - read  # what it changes in place
    if step.place == CLML:  # what it writes beside its own output counts as its input
        computed -= written
    if read != computed:
        raise DefectError(
            f"{node.name} is given {_list_items(read)} to read, not {_list_items(computed)}"
        )


def _check_arguments(program: Program, node: Node, step: Step) -> None:
    """Each argument is of the shape, dtype and memory that the kernel declares."""
    kernel = program.kernels[step.kernel]
    declared = kernel.func.params
    if not len(declared) == len(kernel.scopes) == len(step.arguments):
        raise DefectError(f"{node.name} gives {kernel.name} {len(step.arguments)} arguments")
    for name, buffer, scope in zip(step.arguments, declared, kernel.scopes, strict=True):
        spec = spec_of(program, name)
        given = (*spec.physical, spec.dtype, spec.scope)
        wanted = (*(int(extent) for extent in buffer.shape), str(buffer.dtype), scope)
        if given != wanted:
            raise DefectError(
                f"{node.name} gives {kernel.name} {name}, which is {_list_items(given)}, for "
                f"{_list_items(wanted)}"
            )


def _check_images(program: Program, node: Node, step: Step, limits: Limits) -> None:
    """The launch has no more images than the target allows."""
    scopes = program.kernels[step.kernel].scopes
    for images, most, what in (
        (scopes[: -step.written].count(TEXTURE), limits.max_read_image_args, "reads"),
        (scopes[-step.written :].count(TEXTURE), limits.max_write_image_args, "writes"),
    ):
        if images > most:
            raise DefectError(f"{node.name} {what} {images} images, at most {most}")


def spec_of(program: Program, name: str) -> OperandSpec:
    """Return a tensor or param as kernels see it."""
    param = program.params.get(name)
    return program.graph.operand(name) if param is None else param.spec


def _owners(graph: Graph, names: Iterable[str]) -> set[str]:
    return {graph.owner(name) for name in names}


def _list_items(items: Iterable[object]) -> str:
    return " ".join(map(str, items)) or "nothing"
