"""What each level of the IR may hold, checked between stages where the options ask for it."""

from __future__ import annotations

from adrenoc.graph import Graph, Node
from adrenoc.operand import Memory
from adrenoc.passes.lower import Program
from adrenoc.target import Limits


class IllegalIrError(Exception):
    """A stage broke a rule of its level: a bug of adrenoc, not of the user."""


def check_graph(graph: Graph, limits: Limits | None = None) -> None:
    """Every tensor is made before it is read; with `limits`, every image exists on the target.

    Raises:
        IllegalIrError: naming the tensor and the rule.
    """
    known = {*graph.inputs, *(n for n, t in graph.tensors.items() if t.value is not None)}
    for node in graph.nodes:
        _check_node(node)
        for name in node.inputs:
            if graph.aliases.get(name, name) not in known:
                raise IllegalIrError(f"{node.name} reads {name} before it is made")
        known.add(node.output)
    for name in graph.outputs:
        if graph.aliases.get(name, name) not in known:
            raise IllegalIrError(f"nothing makes the output {name}")
    if limits is None:
        return
    for name in graph.tensors:
        spec = graph.operand(name)
        if spec.memory is not Memory.TEXTURE:
            continue
        layers, rows, cols, _ = spec.physical
        if (
            cols > limits.image2d_max_width_texels
            or rows > limits.image2d_max_height_texels
            or layers > limits.image_max_array_layers
        ):
            raise IllegalIrError(f"{name} is {cols} x {rows} texels in {layers} layers")


def _check_node(node: Node) -> None:
    for body in node.bodies:
        stray = {n for n in body.sources.values() if n not in (*node.inputs, Node.RESULT)}
        if stray:
            raise IllegalIrError(f"{node.name} reads {sorted(stray)}, which are not its inputs")


def check_program(program: Program, limits: Limits) -> None:
    """Every launch fits the target.

    Raises:
        IllegalIrError: naming the kernel and the limit.
    """
    for kernel in program.kernels.values():
        threads = 1
        for extent in kernel.launch.work_group:
            threads *= extent
        if threads > limits.max_work_group_size:
            raise IllegalIrError(
                f"{kernel.name} has {threads} threads a group, at most {limits.max_work_group_size}"
            )
        if len(kernel.scopes) > limits.max_kernel_args:
            raise IllegalIrError(
                f"{kernel.name} has {len(kernel.scopes)} arguments, at most "
                f"{limits.max_kernel_args}"
            )
