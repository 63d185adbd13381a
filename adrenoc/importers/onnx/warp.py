"""GridSample: images read where a grid says."""

from __future__ import annotations

import numpy as np
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.relax.values import dtype_of, make_constant

_METHODS = {"linear": "bilinear", "cubic": "bicubic"}
_LAYOUTS = {4: "NCHW", 5: "NCDHW"}


def grid_sample(node: Node) -> relax.Expr:
    """TVM: gives the result the grid's dtype, divides by zero at corners of axes of one element,
    and reflects each of the pixels that are mixed.

    Between two pixels it is the same to reflect the place, which is of no axis: the image ends at
    -1 and 1, whatever its corners are.  Elsewhere an axis of one element is doubled, which is the
    same image, as each place between two equal elements has their value.
    """
    image, grid, shape = node.inputs[0], node.inputs[1], node.shape()
    method, padding = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    corners = bool(node.attrs.get("align_corners", 0))
    method = _METHODS.get(method, method)
    rank = len(shape)
    if rank not in _LAYOUTS or (rank == 5 and method == "bicubic"):
        raise RefusedError(f"{method} samples of {rank} dimensions; expected 4, or 5 unless cubic")
    if dtype_of(grid) != dtype_of(image):  # exporters write grids as doubles
        grid = node.emit(grid.astype(dtype_of(image)))
    if padding == "reflection" and method == "bilinear":
        grid, padding = _reflect(grid), "border"
    elif padding == "reflection" and corners:
        for axis in range(2, rank):
            if shape[axis] == 1:
                image = node.emit(relax.op.concat([image, image], axis=axis))
    return relax.op.image.grid_sample(
        image,
        relax.op.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)]),
        method=method,
        layout=_LAYOUTS[rank],
        padding_mode=padding,
        align_corners=corners,
    )


def _reflect(grid: relax.Expr) -> relax.Expr:
    """Return a grid with its places outside of -1 to 1 mirrored into that: 1 - |(g + 1) mod 4 -
    2|."""

    def number(value: float) -> relax.Expr:
        return make_constant(np.asarray(value, dtype_of(grid)))

    start = grid + number(1)
    rest = start - relax.op.floor(start * number(0.25)) * number(4)
    return number(1) - relax.op.abs(rest - number(2))
