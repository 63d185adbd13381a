"""Rules for pools: max, average, and adaptive average where all windows are alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adrenoc.ir.graph import Node
from adrenoc.kernels.access import Access
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.pool.pool import (
    PoolGeometry,
    Window,
    adaptive_avg_pool,
    avg_pool,
    max_pool,
)
from adrenoc.kernels.families.reduce.reduce import REDUCTIONS, reduce_axes
from adrenoc.kernels.families.reduce.reduce_rule import pick_reduction_tile
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext


def pool_rule(context: RuleContext, node: Node) -> KernelCall:
    """Return a max or average pool over rows and columns, or over columns alone (`max_pool1d`)."""
    geometry = pool_geometry(node.attrs)
    kernel = context.kernel(node, node.op)
    x = kernel.input(node.inputs[0])
    out, epilogue = kernel.output()
    if geometry.covers(x.extents) and (out.extents.h, out.extents.w) == (1, 1):
        _reduce(kernel, "max" if node.op.startswith("max") else "mean", x, out, epilogue)
        return kernel.call()
    emit = max_pool if node.op.startswith("max") else avg_pool
    emit(kernel.builder, geometry, x, out, epilogue)
    return kernel.call()


def adaptive_avg_pool_rule(context: RuleContext, node: Node) -> KernelCall:
    """Return an average to a given size: a mean over H and W, or a pool of equal or unequal
    windows."""
    kernel = context.kernel(node, node.op)
    x = kernel.input(node.inputs[0])
    out, epilogue = kernel.output()
    source, result = x.extents, out.extents
    if (result.h, result.w) == (1, 1):
        _reduce(kernel, "mean", x, out, epilogue)
    elif source.h % result.h or source.w % result.w:
        adaptive_avg_pool(kernel.builder, x, out, epilogue)
    else:
        rows, columns = source.h // result.h, source.w // result.w
        geometry = PoolGeometry(
            rows=Window(taps=rows, stride=rows), columns=Window(taps=columns, stride=columns)
        )
        avg_pool(kernel.builder, geometry, x, out, epilogue)
    return kernel.call()


def _reduce(kernel: NodeKernel, kind: str, x: Access, out: Access, epilogue: Epilogue) -> None:
    """One window over all rows and columns: a reduction, whose elements threads share."""
    axes = [axis for axis, role in enumerate(x.spec.roles.roles) if role in "HW"]
    tile = pick_reduction_tile(kernel, axes, x, out)
    reduce_axes(kernel.builder, tile, REDUCTIONS[kind], axes, True, x, out, epilogue)


def pool_geometry(attrs: Mapping[str, Any]) -> PoolGeometry:
    """Return the windows that Relax's attributes state, of a 1-D or a 2-D pool."""
    axes = len(attrs["pool_size"])
    windows = [
        Window(
            taps=attrs["pool_size"][axis],
            stride=attrs["strides"][axis],
            pad=attrs["padding"][axis],
            dilation=attrs["dilation"][axis],
        )
        for axis in range(axes)
    ]
    rows = windows[0] if axes == 2 else Window(taps=1)
    return PoolGeometry(
        rows=rows, columns=windows[-1], count_padding=bool(attrs["count_include_pad"])
    )
