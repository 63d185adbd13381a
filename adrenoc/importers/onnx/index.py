"""Operators that read or write at computed indices, regions and positions, and those that search.

TVM's ONNX frontend asks for shapes and wraps negative indices at run time; all shapes are known.

Operators that find have as many rows (columns) as there may be; those beyond the last hold -1.
Those that are found come first, in the order of the standard: boxes by batch, class and score.

Sums over known places (Fourier transforms, windows over images) are products with a constant matrix
or TE expressions: plain folds for the kernels.

Source: ONNX operator reference; tvm.relax.frontend.onnx of apache-tvm 0.27.0.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax, te, tirx

from adrenoc.base.errors import RefusedError
from adrenoc.base.tvmapi import Expr
from adrenoc.importers.imported import check_grown
from adrenoc.importers.onnx.node import OnnxNode
from adrenoc.importers.relax.spatial import Suppression, first_found, selection, transform
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant


def wrap_index(node: OnnxNode, index: int, extents: np.ndarray) -> relax.Expr:
    """Return indices counted from the front: a negative one counts from the end of its axis."""
    expr = node.inputs[index]
    value = constant_value(expr)
    if value is not None:
        return make_constant(np.where(value < 0, value + extents, value).astype(np.int32))
    expr = node.emit(expr.astype("int32"))
    extent = make_constant(np.asarray(extents, np.int32))
    negative = expr < make_constant(np.array(0, np.int32))
    return relax.op.where(negative, expr + extent, expr)


def _gather_elements(node: OnnxNode) -> relax.Expr:
    shape = node.shape()
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    index = wrap_index(node, 1, np.array(shape[axis]))
    return relax.op.gather_elements(node.inputs[0], index, axis=axis)


def _gather_nd(node: OnnxNode) -> relax.Expr:
    shape, batch = node.shape(), int(node.attrs.get("batch_dims", 0))
    index = wrap_index(node, 1, np.array(shape[batch : batch + node.shape(1)[-1]]))
    # Relax takes int64 alone.
    index = index.astype("int64")
    return relax.op.gather_nd(node.inputs[0], index, batch_dims=batch)


def _scatter_elements(node: OnnxNode) -> relax.Expr:
    """TVM: counts in indices as if they had the extents of the data on all other axes."""
    shape, counts = node.shape(), node.shape(1)
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    short = [a for a, extent in enumerate(counts) if a != axis and extent < shape[a]]
    data = node.inputs[0]

    def part(begins: list[int], ends: list[int]) -> relax.Expr:
        return relax.op.strided_slice(data, list(range(len(shape))), begins, ends)

    ends = [counts[a] if a in short else extent for a, extent in enumerate(shape)]
    reached = part([0] * len(shape), ends) if short else data
    result = relax.op.scatter_elements(
        reached, node.inputs[1], node.inputs[2], axis=axis, reduction=_reduction(node)
    )
    for a in short:  # what lies beyond stays as it was
        begins = [counts[a] if b == a else 0 for b in range(len(shape))]
        ends[a] = shape[a]
        result = relax.op.concat([node.emit(result), part(begins, ends)], axis=a)
    return result


def _reduction(node: OnnxNode) -> str:
    name = node.text("reduction", "none")
    if name not in ("none", "add", "mul", "max", "min"):
        raise RefusedError(f"unknown reduction {name!r}")
    return "update" if name == "none" else name


def _one_hot(node: OnnxNode) -> relax.Expr:
    """TVM: off and on must be constants, and indices be plain."""
    depth = node.number(1)
    if depth is None:
        raise RefusedError("the depth is missing")
    extent = int(depth)
    rank = len(node.shape()) + 1
    axis = int(node.attrs.get("axis", -1)) % rank
    index = node.inputs[0].astype("int32")
    negative = index < make_constant(np.array(0, np.int32))
    from_end = index + make_constant(np.array(extent, np.int32))
    index = relax.op.expand_dims(relax.op.where(negative, from_end, index), axis)
    along = [extent if a == axis else 1 for a in range(rank)]
    check_grown(extent)
    numbers = make_constant(np.arange(extent, dtype=np.int32).reshape(along))
    hit = relax.op.equal(index, numbers)
    off, on = (
        relax.op.squeeze(relax.op.strided_slice(node.inputs[2], [0], [i], [i + 1]), [0])
        for i in (0, 1)
    )
    return relax.op.where(hit, on, off)


def _scan(node: OnnxNode, scan: Callable[..., relax.Expr]) -> relax.Expr:
    axis = node.number(1)
    if axis is None:
        raise RefusedError("the axis is missing")
    along = int(axis) % len(node.shape())
    reverse = bool(node.attrs.get("reverse", 0))
    x = node.inputs[0]
    if reverse:
        x = node.emit(relax.op.flip(x, along))
    exclusive = bool(node.attrs.get("exclusive", 0))
    result = scan(x, along, dtype_of(x), exclusive)
    return relax.op.flip(node.emit(result), along) if reverse else result


def _trilu(node: OnnxNode) -> relax.Expr:
    """TVM: a range in a form that has no kernel, where the diagonal is known at run time."""
    x, upper = node.inputs[0], bool(node.attrs.get("upper", 1))
    diagonal = node.input(1)
    if diagonal is None or constant_value(diagonal) is not None:
        cut = relax.op.triu if upper else relax.op.tril
        return cut(x, int(node.number(1) or 0))
    first = node.emit(relax.op.reshape(diagonal, [1]))

    def keep(source: te.Tensor, first: te.Tensor) -> te.Tensor:
        def element(*index: Expr) -> Expr:
            offset = (index[-1] - index[-2]).astype("int64")
            kept = offset >= first(0) if upper else offset <= first(0)
            return tirx.if_then_else(kept, source(*index), tirx.const(0, source.dtype))

        return te.compute(source.shape, element, name="triangle")

    return node.bb.call_te(keep, x, first, primfunc_name_hint="trilu")


_NO_LIMIT = -1e29
"""Less than any score that counts."""


def _non_max_suppression(node: OnnxNode) -> relax.Expr:
    """TVM: as many rows as are found, at run time."""
    batches, classes, boxes = node.shape(1)
    if node.shape() != (batches, boxes, 4):
        raise RefusedError(f"boxes of {list(node.shape())}; expected {[batches, boxes, 4]}")
    most = min(int(_number(node, 2, 0)), boxes)
    total = batches * classes * most
    rules = Suppression(
        by_class=most,
        total=total,
        least=_NO_LIMIT if node.input(4) is None else _number(node, 4, 0.0),
        least_counts=False,
        overlap=_number(node, 3, 0.0),
        overlap_counts=False,
    )
    function = selection(boxes, classes, rules, batches)
    name = node.bb.add_func(function.with_attr("tirx.noalias", True), "non_max_suppression")
    arguments = [_corners(node), node.inputs[1]]
    rows = relax.call_tir(name, arguments, relax.TensorType((total, 3), "float32"))
    return rows.astype("int64")


def _non_zero(node: OnnxNode) -> relax.Expr:
    """TVM: as many columns as are found, at run time."""
    shape = node.shape()
    count = int(np.prod(shape))
    flat = node.emit(relax.op.reshape(node.inputs[0], [count]))
    nothing = make_constant(np.array(0, dtype_of(flat)))
    if dtype_of(flat) != "bool":
        flat = node.emit(relax.op.not_equal(flat, nothing))
    marks = flat.astype("float32")
    function = first_found(count).with_attr("tirx.noalias", True)
    name = node.bb.add_func(function, "non_zero")
    numbers = relax.call_tir(name, [marks], relax.TensorType((count,), "int32"))
    there = numbers >= make_constant(np.array(0, np.int32))
    columns = []
    for axis, extent in enumerate(shape):
        stride = make_constant(np.array(np.prod(shape[axis + 1 :], dtype=int), np.int32))
        column = relax.op.floor_divide(numbers, stride)
        column = relax.op.floor_mod(column, make_constant(np.array(extent, np.int32)))
        column = relax.op.where(there, column, make_constant(np.array(-1, np.int32)))
        columns.append(node.emit(relax.op.reshape(column, [1, count])))
    joined = columns[0] if len(columns) == 1 else relax.op.concat(columns, 0)
    return joined.astype("int64")


def _number(node: OnnxNode, index: int, missing: float) -> float:
    value = node.number(index)
    return missing if value is None else float(value)


def _corners(node: OnnxNode) -> relax.Expr:
    """Return boxes as two corners, which may come in any order."""
    boxes = node.inputs[0]
    if not int(node.attrs.get("center_point_box", 0)):
        return boxes
    centre = relax.op.strided_slice(boxes, [2], [0], [2])
    half = relax.op.strided_slice(boxes, [2], [2], [4]) * node.like(0.5)
    low, high = (op(centre, half) for op in (relax.op.subtract, relax.op.add))
    return relax.op.concat([low, high], 2)


_HALF_PIXEL_OPSET = 16
"""The first opset in which regions are shifted by half a pixel unless told otherwise."""


def _roi_align(node: OnnxNode) -> relax.Expr:
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


def _has_half_pixel(node: OnnxNode) -> bool:
    default = "half_pixel" if node.opset >= _HALF_PIXEL_OPSET else "output_half_pixel"
    mode = node.text("coordinate_transformation_mode", default)
    if mode not in ("half_pixel", "output_half_pixel"):
        raise RefusedError(f"the coordinate_transformation_mode {mode} is unknown")
    return mode == "half_pixel"


def _roi_align_max(node: OnnxNode) -> relax.Expr:
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


def _max_unpool(node: OnnxNode) -> relax.Expr:
    """TVM: fails on a constant output_shape. The positions count in the shape that kernel, strides
    and pads give; a larger output_shape adds zeros behind it."""
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


def _affine_grid(node: OnnxNode) -> relax.Expr:
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


_METHODS = {"linear": "bilinear", "cubic": "bicubic"}
_LAYOUTS = {4: "NCHW", 5: "NCDHW"}


def _grid_sample(node: OnnxNode) -> relax.Expr:
    """TVM: gives the result the grid's dtype, divides by zero at corners of axes of one element,
    and reflects each of the pixels that are mixed.

    Between two pixels it is the same to reflect the place, which is of no axis: the image ends at
    -1 and 1, whatever its corners are.  Elsewhere an axis of one element is doubled, which is the
    same image, as each place between two equal elements has their value."""
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

        def number(value: float) -> relax.Expr:
            return make_constant(np.asarray(value, dtype_of(grid)))

        start = grid + number(1)
        rest = start - relax.op.floor(start * number(0.25)) * number(4)
        grid, padding = (number(1) - relax.op.abs(rest - number(2))), "border"
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


def _dft(node: OnnxNode) -> relax.Expr:
    shape = node.shape()
    axis = node.ints(2, "axis") if node.opset >= 20 else [int(node.attrs.get("axis", 1))]
    along = (axis[0] if axis else -2) % len(shape)
    length = node.number(1)
    return transform(
        node.emit,
        node.inputs[0],
        shape,
        along,
        length=None if length is None else int(length),
        inverse=bool(node.attrs.get("inverse", 0)),
        onesided=bool(node.attrs.get("onesided", 0)),
    )


def _stft(node: OnnxNode) -> relax.Expr:
    """Exporters leave out the last axis of a real signal, and onnxruntime takes that."""
    signal, shape = node.inputs[0], node.shape()
    if len(shape) == 2:
        shape = (*shape, 1)
        signal = relax.op.reshape(signal, shape)
    step, frame = node.number(1), node.number(3)
    if step is None:
        raise RefusedError("the frame step is missing")
    length = int(frame) if frame is not None else node.shape(2)[0]
    stride = int(step)
    if stride < 1 or not 1 <= length <= shape[1]:
        raise RefusedError(f"frames of {length} steps, each {stride} further, in {shape[1]} steps")
    count = (shape[1] - length) // stride + 1
    check_grown(count * length)
    taken = np.arange(count)[:, None] * stride + np.arange(length)[None, :]
    frames = relax.op.take(
        signal, make_constant(taken.reshape(-1).astype(np.int32)), axis=1, mode="clip"
    )
    framed = (shape[0], count, length, shape[2])
    frames = relax.op.reshape(frames, framed)
    if node.input(2) is not None:
        frames *= relax.op.reshape(node.inputs[2], (1, 1, length, 1))
    onesided = bool(node.attrs.get("onesided", 1))
    return transform(
        node.emit, node.emit(frames), framed, 2, length=None, inverse=False, onesided=onesided
    )


def _deform_conv(node: OnnxNode) -> relax.Expr:
    """TVM lacks offset groups of the mask: sample first, then sum over channels and taps."""
    (batch, channels, height, width), weight = node.shape(), node.shape(1)
    rows, columns = node.shape(2)[2:]
    strides = list(node.attrs.get("strides", [1, 1]))
    dilations = list(node.attrs.get("dilations", [1, 1]))
    pads = list(node.attrs.get("pads", [0, 0, 0, 0]))
    groups, offsets = int(node.attrs.get("group", 1)), int(node.attrs.get("offset_group", 1))
    taps, per_group = weight[2] * weight[3], channels // groups
    has_bias, has_mask = node.input(3) is not None, node.input(4) is not None

    def convolve(x: te.Tensor, w: te.Tensor, offset: te.Tensor, *more: te.Tensor) -> te.Tensor:
        bias, mask = more[0] if has_bias else None, more[-1] if has_mask else None

        def sample(n: Expr, c: Expr, t: Expr, i: Expr, j: Expr) -> Expr:
            tap = tirx.floordiv(c, channels // offsets) * taps + t
            base = (
                i * strides[0] - pads[0] + tirx.floordiv(t, weight[3]) * dilations[0],
                j * strides[1] - pads[1] + tirx.floormod(t, weight[3]) * dilations[1],
            )
            y = base[0].astype("float32") + offset(n, tap * 2, i, j)
            z = base[1].astype("float32") + offset(n, tap * 2 + 1, i, j)
            top, left = tirx.floor(y), tirx.floor(z)
            total: Expr = tirx.const(0.0, "float32")
            for down in (0, 1):
                for right in (0, 1):
                    h = top.astype("int32") + down
                    v = left.astype("int32") + right
                    share = (y - top if down else 1.0 - (y - top)) * (
                        z - left if right else 1.0 - (z - left)
                    )
                    inside = tirx.all(h >= 0, h < height, v >= 0, v < width)
                    value = tirx.if_then_else(inside, x(n, c, h, v), tirx.const(0.0, "float32"))
                    total = total + share * value
            return total if mask is None else total * mask(n, tap, i, j)

        sampled = te.compute((batch, channels, taps, rows, columns), sample, name="sampled")
        c, t = te.reduce_axis((0, per_group), "c"), te.reduce_axis((0, taps), "t")

        def product(n: Expr, o: Expr, i: Expr, j: Expr) -> Expr:
            group = tirx.floordiv(o, weight[0] // groups)
            tap = (tirx.floordiv(t.var, weight[3]), tirx.floormod(t.var, weight[3]))
            value = sampled(n, group * per_group + c.var, t.var, i, j) * w(o, c.var, *tap)
            return te.sum(value, axis=[c, t])

        summed = te.compute((batch, weight[0], rows, columns), product, name="summed")
        if bias is None:
            return summed
        return te.compute(
            summed.shape, lambda n, o, i, j: summed(n, o, i, j) + bias(o), name="with_bias"
        )

    operands = [e for e in node.inputs if e is not None]
    return node.bb.call_te(convolve, *operands, primfunc_name_hint="deform_conv")


def _det(node: OnnxNode) -> relax.Expr:
    shape = node.shape()
    size = shape[-1]
    if size > 3:
        raise RefusedError(f"matrices of {size} x {size} are not supported, expected at most 3 x 3")

    def determinant(x: te.Tensor) -> te.Tensor:
        def minor(at: Sequence[Expr], rows: Sequence[int], columns: Sequence[int]) -> Expr:
            first = [x(*at, rows[0], c) for c in columns]
            if len(rows) == 1:
                return first[0]
            total: Expr | None = None
            for i, value in enumerate(first):
                rest = [c for j, c in enumerate(columns) if j != i]
                term = value * minor(at, rows[1:], rest)
                signed = term if i % 2 == 0 else -term
                total = signed if total is None else total + signed
            assert total is not None
            return total

        numbers = list(range(size))
        return te.compute(shape[:-2], lambda *at: minor(at, numbers, numbers), name="determinant")

    return node.bb.call_te(determinant, node.inputs[0], primfunc_name_hint="det")


INDEX_OPS: dict[str, Callable[[OnnxNode], relax.Expr]] = {
    "AffineGrid": _affine_grid,
    "CumProd": lambda node: _scan(node, relax.op.cumprod),
    "CumSum": lambda node: _scan(node, relax.op.cumsum),
    "DFT": _dft,
    "DeformConv": _deform_conv,
    "Det": _det,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "GridSample": _grid_sample,
    "MaxUnpool": _max_unpool,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "RoiAlign": _roi_align,
    "STFT": _stft,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": lambda node: relax.op.scatter_nd(*node.inputs[:3], _reduction(node)),
    "Trilu": _trilu,
}
