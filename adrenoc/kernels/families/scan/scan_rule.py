"""The rule for cumulative sums and products."""

from __future__ import annotations

import operator

from adrenoc.ir.graph import Node
from adrenoc.kernels.families.scan.scan import Scan, scan
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.row_tile import RowWork, pick_row_tile

_COMBINE = {"cumsum": (0.0, operator.add), "cumprod": (1.0, operator.mul)}


def scan_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a scan, whichever role its axis plays."""
    kernel = context.kernel(node, node.op)
    x = kernel.input_or_prologue()
    _, epilogue = kernel.output()
    role = x.spec.roles.roles[int(node.attrs["axis"]) % len(x.spec.shape)]
    work = RowWork.from_extents(x.extents, role, passes=2, folds=1, passes_alone=1)
    tile = pick_row_tile(context, node, node.op, work)
    neutral, combine = _COMBINE[node.op]
    what = Scan(neutral=neutral, combine=combine, exclusive=bool(node.attrs["exclusive"]))
    scan(kernel.builder, tile, role, what, x, epilogue)
    return kernel.call()
