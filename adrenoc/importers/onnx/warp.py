"""GridSample: images read where a grid says."""

from __future__ import annotations

from tvm import relax

from adrenoc.importers.onnx.node import Node
from adrenoc.relax.values import dtype_of

_METHODS = {"linear": "bilinear", "cubic": "bicubic"}
_LAYOUTS = {4: "NCHW", 5: "NCDHW"}


def grid_sample(node: Node) -> relax.Expr:
    """TVM: gives the result the grid's dtype, and divides by zero at an axis of one element.

    Between the corners of such an axis, which are the same, nothing reflects: the element is
    doubled, which is the same image, as each place between two equal elements has their value.
    """
    image, grid, shape = node.inputs[0], node.inputs[1], node.shape()
    method, padding = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    corners = bool(node.attrs.get("align_corners", 0))
    method = _METHODS.get(method, method)
    rank = len(shape)
    if rank not in _LAYOUTS or (rank == 5 and method == "bicubic"):
        raise ValueError(f"{method} samples of {rank} dimensions; expected 4, or 5 unless cubic")
    if dtype_of(grid) != dtype_of(image):  # exporters write grids as doubles
        grid = node.emit(relax.op.astype(grid, dtype_of(image)))
    if padding == "reflection" and corners:
        for axis in range(2, rank):
            if shape[axis] == 1:
                image = node.emit(relax.op.concat([image, image], axis=axis))
    return relax.op.image.grid_sample(
        image,
        node.emit(relax.op.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)])),
        method=method,
        layout=_LAYOUTS[rank],
        padding_mode=padding,
        align_corners=corners,
    )
