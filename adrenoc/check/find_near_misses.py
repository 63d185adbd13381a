"""Tensors that are not in a texture, or all but, and what would bring or keep them there."""

from __future__ import annotations

from collections.abc import Iterator

from adrenoc.check.verdict import NearMiss
from adrenoc.ir.layout import MAX_BLOCKED_AXES, Layout, TexelOrder
from adrenoc.ir.operand import Memory
from adrenoc.ir.program import Program
from adrenoc.passes.analyse.cpu_nodes import remedy
from adrenoc.passes.lower.measure_work import looks_up
from adrenoc.target.gpu import Limits

_CLOSE = 0.9
"""Share of a limit from which on a tensor counts as close to it."""

_AXIS_OF_ORDER = {
    TexelOrder.PLANES: ("the layers (N x C / 4)", "the height", "the width"),
    TexelOrder.ROWS: ("the batch", "the rows (H x W)", "the blocks of channels (C / 4)"),
}
"""What layers, rows and columns of an image are made of."""


def find_near_misses(program: Program, limits: Limits) -> tuple[NearMiss, ...]:
    """All near misses of a program: tensors in the order of their nodes, then weights."""
    graph = program.graph
    found = []
    for node in graph.nodes:
        if node.is_on_cpu:
            found.append(
                _describe_cpu(node.name, node.operators[0], str(graph.tensors[node.output].dtype))
            )
        elif node.output not in graph.output_names and not node.is_device_copy:
            tensor, spec = graph.tensors[node.output], graph.operand(node.output)
            found += _check_tensor(
                node.name, tensor.shape, tensor.dtype, spec.memory, spec.layout, limits
            )
    tables = _find_tables(program)
    for param in program.params.values():
        if param.spec.memory is Memory.BLOCKED and param.name not in tables:
            roles = param.spec.roles
            found += [
                NearMiss(subject=param.name, seen=f"weights in a buffer: {seen}", fix=fix)
                for seen, fix in _find_excess(roles, param.spec.shape, limits)
            ]
    return tuple(found)


def _find_tables(program: Program) -> set[str]:
    """Constants of which rows are looked up alone: a buffer is as good a place for them."""
    looked: dict[str, bool] = {}
    for node, step in zip(program.graph.nodes, program.steps, strict=True):
        for name in {*step.reads} & {*program.params}:
            looked[name] = looked.get(name, True) and looks_up(program.graph, node, name)
    return {program.params[name].name for name, only in looked.items() if only}


def _describe_cpu(subject: str, operator: str, dtype: str) -> NearMiss:
    reason = "float64" if dtype == "float64" else "no plain loop nest"
    seen = f"{operator} on the CPU: {reason}"
    return NearMiss(subject=subject, seen=seen, fix=remedy(operator, reason))


def _check_tensor(
    subject: str,
    shape: tuple[int, ...],
    dtype: str,
    memory: Memory,
    layout: Layout | None,
    limits: Limits,
) -> Iterator[NearMiss]:
    if memory is Memory.TEXTURE and layout is not None:
        for seen, fix in _close(layout, shape, limits):
            yield NearMiss(subject=subject, seen=seen, fix=fix)
    elif memory is Memory.BLOCKED and layout is not None:
        for seen, fix in _find_excess(layout, shape, limits):
            yield NearMiss(subject=subject, seen=f"in a buffer: {seen}", fix=fix)
    elif memory is Memory.PLAIN and dtype.startswith("float") and layout is None:
        wide = sum(extent > 1 for extent in shape)
        yield NearMiss(
            subject=subject,
            seen=f"in a buffer: {wide} dimensions above 1 > {MAX_BLOCKED_AXES} that a texture has",
            fix="merge neighbouring dimensions by a Reshape before it",
        )


def _find_excess(
    layout: Layout, shape: tuple[int, ...], limits: Limits
) -> Iterator[tuple[str, str]]:
    """Each extent beyond a limit, and the axis to make smaller, in the better texel order."""
    layouts = [layout.reorder(order) for order in TexelOrder]
    best = min(layouts, key=lambda one: _worst(one, shape, limits))
    for extent, limit, name in _extents(best, shape, limits):
        if extent > limit:
            parts = -(-extent // limit)
            yield (
                f"{name}: {extent} > {limit}, the limit of an image",
                f"split it into {parts} along that dimension, or make it at most {limit}",
            )


def _close(layout: Layout, shape: tuple[int, ...], limits: Limits) -> Iterator[tuple[str, str]]:
    for extent, limit, name in _extents(layout, shape, limits):
        if limit * _CLOSE <= extent <= limit:
            yield (
                f"in a texture, but close: {name}, {extent} of {limit}",
                "a larger input would move it to another layout or to a buffer",
            )


def _worst(layout: Layout, shape: tuple[int, ...], limits: Limits) -> float:
    return max(extent / limit for extent, limit, _ in _extents(layout, shape, limits))


def _extents(
    layout: Layout, shape: tuple[int, ...], limits: Limits
) -> Iterator[tuple[int, int, str]]:
    layers, rows, columns, _ = layout.texture_shape(shape)
    of_layers, of_rows, of_columns = _AXIS_OF_ORDER[layout.order]
    yield layers, limits.image_max_array_layers, of_layers
    yield rows, limits.image2d_max_height_texels, of_rows
    yield columns, limits.image2d_max_width_texels, of_columns
