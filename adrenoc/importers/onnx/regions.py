"""Operators that read or write by regions and positions: AffineGrid, GridSample, RoiAlign and such.

Source: ONNX operator reference; tvm.relax.frontend.onnx of apache-tvm 0.27.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.relax.fold import check_grown
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant

_HALF_PIXEL_OPSET = 16
"""The first opset in which regions are shifted by half a pixel unless told otherwise."""


def _roi_align(node: Node) -> relax.Expr:
    """TVM: shifts by half a pixel of the image; of the feature map it is in ONNX."""
    if node.text("mode", "avg") == "max":
        return _roi_align_max(node)
    half_pixel = _has_half_pixel(node)
    scale = float(node.attrs.get("spatial_scale", 1.0))
    dtype = dtype_of(node.inputs[1])
    regions = node.inputs[1] * make_constant(np.array(scale, dtype))
    if half_pixel:
        regions = regions - make_constant(np.array(0.5, dtype))
    batches = relax.op.reshape(node.inputs[2].astype(dtype), [node.shape(1)[0], 1])
    return relax.op.vision.roi_align(
        node.inputs[0],
        relax.op.concat([batches, regions], axis=1),
        pooled_size=tuple(int(node.attrs.get(f"output_{s}", 1)) for s in ("height", "width")),
        spatial_scale=1.0,
        sample_ratio=int(node.attrs.get("sampling_ratio", 0)),
        aligned=half_pixel,
        layout="NCHW",
        mode="avg",
    )


def _has_half_pixel(node: Node) -> bool:
    default = "half_pixel" if node.opset >= _HALF_PIXEL_OPSET else "output_half_pixel"
    mode = node.text("coordinate_transformation_mode", default)
    if mode not in ("half_pixel", "output_half_pixel"):
        raise RefusedError(f"the coordinate_transformation_mode {mode} is unknown")
    return mode == "half_pixel"


def _roi_align_max(node: Node) -> relax.Expr:
    """TVM: takes the largest sample, ONNX the largest of its four weighted neighbours."""
    shape, regions = node.shape(), node.shape(1)[0]
    height, width = (int(node.attrs.get(f"output_{side}", 1)) for side in ("height", "width"))
    samples = int(node.attrs.get("sampling_ratio", 0))
    scale = float(node.attrs.get("spatial_scale", 1.0))
    half_pixel = _has_half_pixel(node)
    if samples < 1:
        raise RefusedError("the mode max needs a sampling_ratio of 1 or more")
    extents = (shape[2], shape[3])

    def axis_sample(rois: te.Tensor, roi: tirx.Expr, position: tirx.Expr, axis: int) -> _Sample:
        """Return where sample `position` of a region lies on an axis: 0 for rows, 1 for columns."""
        cells, extent = (height, width)[axis], extents[axis]
        shift = 0.5 if half_pixel else 0.0
        start = rois(roi, 1 - axis) * scale - shift
        end = rois(roi, 3 - axis) * scale - shift
        size = end - start if half_pixel else te.max(end - start, tirx.const(1.0, "float32"))
        step = size / tirx.const(float(cells * samples), "float32")
        at = start + (position.astype("float32") + 0.5) * step
        inside = tirx.all(at >= -1.0, at <= float(extent))
        kept = te.min(te.max(at, tirx.const(0.0, "float32")), tirx.const(extent - 1.0, "float32"))
        low = te.floor(kept).astype("int32")
        high = te.min(low + 1, tirx.const(extent - 1, "int32"))
        return inside, low, high, kept - low.astype("float32")

    def build(data: te.Tensor, rois: te.Tensor, batches: te.Tensor) -> te.Tensor:
        down = te.reduce_axis((0, samples), name="down")
        across = te.reduce_axis((0, samples), name="across")

        def element(roi: tirx.Expr, c: tirx.Expr, y: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
            row_in, top, bottom, v = axis_sample(rois, roi, y * samples + down, 0)
            column_in, left, right, u = axis_sample(rois, roi, x * samples + across, 1)
            n = batches(roi).astype("int32")
            parts = (
                data(n, c, top, left) * (1 - v) * (1 - u),
                data(n, c, top, right) * (1 - v) * u,
                data(n, c, bottom, left) * v * (1 - u),
                data(n, c, bottom, right) * v * u,
            )
            largest = te.max(te.max(parts[0], parts[1]), te.max(parts[2], parts[3]))
            inside = tirx.all(row_in, column_in)
            return te.max(
                tirx.Select(inside, largest, tirx.const(0.0, "float32")), axis=[down, across]
            )

        return te.compute((regions, shape[1], height, width), element, name="roi_align_max")

    return node.bb.call_te(build, *node.inputs[:3], primfunc_name_hint="roi_align_max")


_Sample = tuple[tirx.Expr, tirx.Expr, tirx.Expr, tirx.Expr]
"""Whether a sample lies inside, its two neighbours, and the weight of the second."""


def _max_unpool(node: Node) -> relax.Expr:
    """TVM: fails on a constant output_shape.

    The positions count in the shape that kernel, strides and pads give; a larger output_shape
    adds zeros behind it.
    """
    shape, wanted = node.shape(), node.ints(2, "output_shape")
    axes = len(shape) - 2
    kernel = node.attrs["kernel_shape"]
    strides = node.attrs.get("strides", [1] * axes)
    pads = node.attrs.get("pads", [0] * 2 * axes)
    spatial = [
        (shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + axes] for i in range(axes)
    ]
    whole = (*shape[:2], *spatial)
    index = constant_value(node.inputs[1])
    flat_index = (
        make_constant(index.reshape(-1))
        if index is not None
        else relax.op.reshape(node.inputs[1], [-1])
    )
    values = relax.op.reshape(node.inputs[0], [-1])
    zeros = relax.op.zeros([math.prod(whole)], dtype_of(node.inputs[0]))
    filled = relax.op.scatter_elements(zeros, flat_index, values, axis=0)
    result = relax.op.reshape(filled, whole)
    if wanted is None or tuple(wanted) == whole:
        return result
    width = [v for have, want in zip(whole, wanted, strict=True) for v in (0, want - have)]
    if any(w < 0 for w in width):
        raise RefusedError(f"output_shape {wanted} is smaller than {list(whole)}, which it unpools")
    return relax.op.nn.pad(node.emit(result), width)


def _affine_grid(node: Node) -> relax.Expr:
    """TVM: two dimensions alone, and fails late where an extent is one.  A product is all it is."""
    size = node.ints(1, "size")
    if size is None:
        raise RefusedError("the size is missing")
    extents = size[2:]
    aligned = bool(node.attrs.get("align_corners", 0))
    if aligned and 1 in extents:
        # onnxruntime places the one sample at the end, PyTorch in the middle.
        raise RefusedError(f"a grid of {extents} has no corners to align: use align_corners=0")
    check_grown(math.prod(extents))
    axes = [
        np.linspace(-1, 1, extent) if aligned else (2 * np.arange(extent) + 1) / extent - 1
        for extent in extents
    ]
    places = np.stack(np.meshgrid(*axes, indexing="ij")[::-1], axis=-1)  # x comes first
    places = places.reshape(-1, len(extents))
    homogeneous = np.concatenate([places, np.ones((len(places), 1))], axis=1)
    turned = relax.op.permute_dims(node.inputs[0], [0, 2, 1])
    moved = node.emit(relax.op.matmul(node.like(homogeneous), turned))
    return relax.op.reshape(moved, (size[0], *extents, len(extents)))


REGION_OPS: dict[str, Callable[[Node], relax.Expr]] = {
    "AffineGrid": _affine_grid,
    "MaxUnpool": _max_unpool,
    "RoiAlign": _roi_align,
}


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
