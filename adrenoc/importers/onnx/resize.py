"""Resize and Upsample: exact where TVM's operator is, by interpolation matrices elsewhere.

Linear resizes of whole numbers and of quanta: as onnxruntime computes them, to the bit.

What lies a last bit below a whole number is cut off to the one before it, and what lies a last bit
below the middle of two quanta is rounded down, so that the order of the products counts: each
neighbour times a product of two shares, and four of these summed.  Bytes with their channels last
are computed in fixed point, with ten bits of each share.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from tvm import relax

from adrenoc.base.errors import RefusedError
from adrenoc.base.tvmapi import tirx
from adrenoc.importers.onnx.infer import scaled_extent
from adrenoc.importers.onnx.node import OnnxNode
from adrenoc.importers.relax.spatial import (
    ResizeNeighbours,
    mix_neighbours,
    neighbours_in_fixed_point,
)
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant, op_name

MODES = (
    "asymmetric",
    "half_pixel",
    "align_corners",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "tf_half_pixel_for_nn",
)

_HALF = np.float32(0.5)
_LOWEST = float(np.finfo(np.float32).min)
"""Below no product; between a product and a sum it keeps compilers from rounding but once."""
_SHARE_BITS = 10


def is_whole(node: OnnxNode) -> bool:
    """Return whether the numbers that a node resizes are integers."""
    return "int" in dtype_of(node.inputs[0])


def _is_dequantised(node: OnnxNode) -> bool:
    """Return whether they are integers times one scale: (x - zero) * scale, as floats."""
    product = _look_up(node, node.inputs[0])
    if op_name(product) != "relax.multiply" or constant_value(product.args[1]) is None:
        return False
    centred = _look_up(node, product.args[0])
    if op_name(centred) == "relax.subtract":
        centred = _look_up(node, centred.args[0])
    return op_name(centred) == "relax.astype" and "int" in dtype_of(centred.args[0])


def _look_up(node: OnnxNode, expr: relax.Expr | None) -> Any:
    return node.bb.lookup_binding(expr) if isinstance(expr, relax.Var) else expr


def float_places(extent: int, target: int, scale: float | None, mode: str) -> np.ndarray:
    """Return where an axis's results lie among its elements, in float32 as in onnxruntime."""
    places = np.arange(target, dtype=np.float32)
    ratio = np.float32(target) / np.float32(extent) if scale is None else np.float32(scale)
    if ratio == 1.0:
        return places
    if target == 1 and mode in ("align_corners", "pytorch_half_pixel"):
        return np.zeros(1, np.float32)
    if mode == "half_pixel_symmetric":
        # In double between two floats, as constants of C++ have it.
        made = ratio * np.float32(extent)
        offset = np.float32(extent) / np.float32(2) * (np.float32(1) - np.float32(target) / made)
        exact = float(offset) + (places.astype(np.float64) + 0.5) / float(ratio) - 0.5
        return np.asarray(exact, np.float32)
    if mode == "align_corners":
        return np.asarray(places * np.float32(extent - 1) / np.float32(target - 1))
    if mode == "asymmetric":
        return np.asarray(places / ratio)
    middles = np.asarray((places + _HALF) / ratio)
    return middles if mode == "tf_half_pixel_for_nn" else np.asarray(middles - _HALF)


def nearest_places(
    extent: int, target: int, scale: float | None, mode: str, rounding: str
) -> np.ndarray | None:
    """Return the element that each result takes; None where onnxruntime's rounding is another."""
    if mode not in MODES or rounding not in _ROUNDINGS:
        return None
    whole = _ROUNDINGS[rounding](float_places(extent, target, scale, mode))
    return np.asarray(np.clip(whole, 0, extent - 1).astype(np.int32))


_ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda places: np.ceil(places.astype(np.float64) - 0.5),
    "round_prefer_ceil": lambda places: np.floor(places.astype(np.float64) + 0.5),
}


def _resize_whole(
    node: OnnxNode, places: tuple[np.ndarray, np.ndarray], *, first_axis: int
) -> relax.Expr:
    """Resize two axes, the first of which is given, at these places, between two elements."""
    x = node.inputs[0]
    assert x is not None
    shape, dtype = node.shape(), dtype_of(x)
    fixed = first_axis + 2 < len(shape) and dtype in ("int8", "uint8")
    extents = shape[first_axis : first_axis + 2]
    find = _neighbours_in_fixed_point if fixed else _neighbours
    rows, columns = (find(p, n) for p, n in zip(places, extents, strict=True))

    def whole_term(column: Any, row: Any, read: Any) -> Any:
        return column * row * read.astype("int32")

    def float_term(column: Any, row: Any, read: Any) -> Any:
        column, row = (tirx.reinterpret("float32", bits) for bits in (column, row))
        product = column * row * read.astype("float32")
        return tirx.max(product, tirx.const(_LOWEST, "float32"))

    def finish(total: Any) -> Any:
        if fixed:
            return tirx.truncdiv(total, tirx.const(1 << 2 * _SHARE_BITS)).astype(dtype)
        return total if dtype == "float32" else tirx.trunc(total).astype(dtype)

    return mix_neighbours(
        node.bb,
        x,
        rows,
        columns,
        first_axis=first_axis,
        term=whole_term if fixed else float_term,
        finish=finish,
    )


def _neighbours(places: np.ndarray, extent: int) -> ResizeNeighbours:
    """Return the two elements about each place, and the shares of both as bits."""
    columns = mix_places(places, extent)
    return ResizeNeighbours(**{name: column.view(np.int32) for name, column in columns.items()})


def mix_places(places: np.ndarray, extent: int) -> dict[str, np.ndarray]:
    """Return the two elements about each place, and the shares of both, as onnxruntime has them."""
    places = np.clip(places, np.float32(0), np.float32(extent - 1))
    first, second = _elements(places, extent)
    shares = [np.abs(places - other.astype(np.float32)) for other in (second, first)]
    of_first, of_second = (np.where(first == second, _HALF, share) for share in shares)
    return {"first": first, "second": second, "of_first": of_first, "of_second": of_second}


def _neighbours_in_fixed_point(places: np.ndarray, extent: int) -> ResizeNeighbours:
    """Return the same with shares of ten bits behind the point, cut off."""
    places = np.clip(places, np.float32(0), np.float32(extent - 1))
    first, second = _elements(places, extent)
    cut = (places * np.float32(1 << _SHARE_BITS)).astype(np.int32)
    of_second = np.where(first == second, 1 << _SHARE_BITS - 1, cut - (first << _SHARE_BITS))
    return neighbours_in_fixed_point(first, second, of_second, _SHARE_BITS)


def _elements(places: np.ndarray, extent: int) -> tuple[np.ndarray, np.ndarray]:
    first = places.astype(np.int32)
    return first, np.minimum(first + 1, extent - 1).astype(np.int32)


# Of one axis: its scale or its size, and what part of it is resized (tf_crop_and_resize).
Wanted = tuple[float | None, int | None, tuple[float, float] | None]

_LONGEST_AXIS = 1 << 16
_LARGEST_MATRIX = 1 << 26

_EXACT_MODES = MODES[:4]
"""Those that `resize2d` has as ONNX says."""


def convert_resize(node: OnnxNode) -> relax.Expr:
    """TVM: takes the ratio of extents for the scale, and has no antialias and no aspect policy.

    `resize2d` serves where it computes what ONNX says.  Elsewhere the resize, which is linear and
    separable, becomes a product with one matrix an axis; the matrices are what ONNX's reference
    gives for unit vectors."""
    shape = node.shape()
    if node.opset < 11:
        scales, sizes, roi = node.constant(1), None, None
    else:
        roi, scales, sizes = node.constant(1), node.constant(2), node.constant(3)
    if scales is None and "scales" in node.attrs:
        scales = np.asarray(node.attrs["scales"], np.float32)
    scales = None if scales is None or scales.size == 0 else scales
    sizes = None if sizes is None or sizes.size == 0 else sizes
    attrs = _attributes(node)
    axes = [a % len(shape) for a in node.attrs.get("axes", range(len(shape)))]
    crops = attrs["coordinate_transformation_mode"] == b"tf_crop_and_resize"
    matrices: dict[int, Wanted] = {}
    for index, axis in enumerate(axes):
        scale = None if scales is None else float(scales[index])
        size = None if sizes is None else int(sizes[index])
        part = None
        if crops and roi is not None and roi.size:
            part = (float(roi[index]), float(roi[index + len(axes)]))
        same = scale == 1.0 or (scale is None and size == shape[axis])
        if same and part in (None, (0.0, 1.0)):
            continue
        matrices[axis] = (scale, size, part)
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and sizes is not None:
        ratios = [size / shape[axis] for axis, (_, size, _) in matrices.items() if size is not None]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        matrices = {
            axis: (ratio, int(np.floor(ratio * shape[axis] + 0.5)), part)
            for axis, (_, _, part) in matrices.items()
        }
    if not matrices:
        return node.inputs[0]
    for axis, (scale, size, _) in matrices.items():
        extent = _extent(shape[axis], scale, size)
        if shape[axis] == 0 and extent > 0:
            raise RefusedError(f"axis {axis} of {extent} elements is made from one of none")
    if attrs["mode"] != b"nearest" and (is_whole(node) or _is_dequantised(node)):
        same = _mix_neighbours(node, matrices, shape, attrs)
        if same is not None or is_whole(node):
            return same if same is not None else _resize_integers(node, matrices, shape, attrs)
    exact = _emit_resize2d(node, matrices, shape, attrs)
    return exact if exact is not None else _multiply_matrices(node, matrices, shape, attrs)


def _attributes(node: OnnxNode) -> dict[str, Any]:
    known = {
        "mode": b"nearest",
        "coordinate_transformation_mode": b"asymmetric" if node.opset < 11 else b"half_pixel",
        "nearest_mode": b"floor" if node.opset < 11 else b"round_prefer_floor",
        "cubic_coeff_a": -0.75,
        "exclude_outside": 0,
        "antialias": 0,
        "extrapolation_value": 0.0,
    }
    attrs: dict[str, Any] = {key: node.attrs.get(key, value) for key, value in known.items()}
    if attrs["mode"] == b"bilinear":
        attrs["mode"] = b"linear"
    return attrs


def _extent(extent: int, scale: float | None, size: int | None) -> int:
    return size if size is not None else scaled_extent(extent, 1.0 if scale is None else scale)


def _emit_resize2d(
    node: OnnxNode, wanted: dict[int, Wanted], shape: tuple[int, ...], attrs: dict[str, Any]
) -> relax.Expr | None:
    mode, coordinates = attrs["mode"].decode(), attrs["coordinate_transformation_mode"].decode()
    if len(shape) != 4 or not set(wanted) <= {2, 3} or attrs["antialias"]:
        return None
    if mode not in ("nearest", "linear") or coordinates not in _EXACT_MODES:
        return None
    rounding = attrs["nearest_mode"].decode()
    size = [
        _extent(shape[axis], *wanted[axis][:2]) if axis in wanted else shape[axis]
        for axis in (2, 3)
    ]
    if mode == "nearest":
        # Where an extent is no multiple, a sample may lie halfway between two elements, and which
        # one is taken hangs on the last bit of the ratio.
        whole = all(size[axis - 2] % shape[axis] == 0 for axis in wanted)
        if not whole or (coordinates, rounding) not in (
            ("asymmetric", "floor"),
            ("half_pixel", "round_prefer_floor"),
            ("half_pixel", "round_prefer_ceil"),
        ):
            return None
    for axis, (scale, _, _) in wanted.items():
        # resize2d takes the ratio of the extents; ONNX takes the scale that the node gives.
        if scale is not None and abs(scale * shape[axis] - size[axis - 2]) > 1e-4:
            return None
    if coordinates in ("pytorch_half_pixel", "align_corners") and 1 in size:
        return None  # one sample has no other corner: resize2d divides by zero
    return relax.op.image.resize2d(
        node.inputs[0],
        size=tuple(size),
        layout="NCHW",
        method="nearest_neighbor" if mode == "nearest" else mode,
        coordinate_transformation_mode=coordinates,
        rounding_method=rounding if mode == "nearest" else "",
    )


def _mix_neighbours(
    node: OnnxNode, wanted: dict[int, Wanted], shape: tuple[int, ...], attrs: dict[str, Any]
) -> relax.Expr | None:
    """Mix two rows and two columns, in the order that decides what is cut off or rounded."""
    rank, mode = len(shape), attrs["coordinate_transformation_mode"].decode()
    first_axis = 1 if rank == 4 and 1 in wanted else rank - 2
    if rank not in (2, 4) or not set(wanted) <= {first_axis, first_axis + 1}:
        return None
    if attrs["mode"] != b"linear" or mode not in MODES or attrs["antialias"]:
        return None
    places = []
    for axis in (first_axis, first_axis + 1):
        scale, size, _ = wanted.get(axis, (None, shape[axis], None))
        target = _extent(shape[axis], scale, size)
        _check_size(shape[axis], (scale, size, None), 1)
        places.append(float_places(shape[axis], target, None if size else scale, mode))
    return _resize_whole(node, (places[0], places[1]), first_axis=first_axis)


def _resize_integers(
    node: OnnxNode, wanted: dict[int, Wanted], shape: tuple[int, ...], attrs: dict[str, Any]
) -> relax.Expr:
    """Resize integers by other ways: the shares are fractions, which no integer holds."""
    dtype = dtype_of(node.inputs[0])
    floats = replace(node, inputs=[node.emit(node.inputs[0].astype("float32"))])
    value = _multiply_matrices(floats, wanted, shape, attrs)
    value = node.emit(relax.op.round(value) if attrs["antialias"] else relax.op.trunc(value))
    bounds = np.iinfo(dtype)
    if bounds.bits <= 16:
        value = relax.op.clip(value, float(bounds.min), float(bounds.max))
    return value.astype(dtype)


def _multiply_matrices(
    node: OnnxNode, wanted: dict[int, Wanted], shape: tuple[int, ...], attrs: dict[str, Any]
) -> relax.Expr:
    value = node.inputs[0]
    rank = len(shape)
    outside: np.ndarray = np.zeros((), bool)
    for axis, one in wanted.items():
        if attrs["mode"] == b"nearest" and one[2] is None:
            taken = make_constant(_nearest(shape[axis], one, attrs))
            value = relax.op.take(value, taken, axis=axis, mode="clip")
            continue
        matrix = _matrix(shape[axis], one, attrs)
        beyond = ~matrix.any(axis=1)  # samples outside of the data, which a crop may ask for
        outside = outside | beyond.reshape([-1 if a == axis else 1 for a in range(rank)])
        if attrs["mode"] == b"nearest" and not beyond.any():
            taken = make_constant(matrix.argmax(axis=1).astype(np.int32))
            value = relax.op.take(value, taken, axis=axis, mode="clip")
            continue
        value = _product(node, value, matrix, axis=axis, rank=rank)
    if outside.any() and attrs["extrapolation_value"]:
        value = value + node.like(outside * np.float32(attrs["extrapolation_value"]))
    return value


def _product(
    node: OnnxNode, value: relax.Expr, matrix: np.ndarray, *, axis: int, rank: int
) -> relax.Expr:
    if axis == rank - 2:
        return node.emit(relax.op.matmul(node.like(matrix), value))
    order = [*(a for a in range(rank) if a != axis), axis]
    if axis != rank - 1:
        value = relax.op.permute_dims(value, order)
    value = node.emit(relax.op.matmul(value, node.like(np.ascontiguousarray(matrix.T))))
    if axis != rank - 1:
        value = relax.op.permute_dims(value, list(np.argsort(order)))
    return value


def _matrix(extent: int, wanted: Wanted, attrs: dict[str, Any]) -> np.ndarray:
    """Return the matrix [outputs, extent] that resizes an axis; rows outside are zeros."""
    _check_size(extent, wanted, extent)
    return _resize_rows(np.eye(extent, dtype=np.float32), wanted, attrs).T


def _check_size(extent: int, wanted: Wanted, rows: int) -> None:
    target = _extent(extent, wanted[0], wanted[1])
    if max(extent, target) > _LONGEST_AXIS or max(extent, target) * rows > _LARGEST_MATRIX:
        raise RefusedError(f"resizing {extent} elements to {target} is too much")


def _nearest(extent: int, wanted: Wanted, attrs: dict[str, Any]) -> np.ndarray:
    """Return the element that each result takes: resized numbers of elements are such numbers."""
    _check_size(extent, wanted, 1)
    mode, rounding = (
        attrs[key].decode() for key in ("coordinate_transformation_mode", "nearest_mode")
    )
    target = _extent(extent, wanted[0], wanted[1])
    found = nearest_places(extent, target, wanted[0], mode, rounding)
    if found is not None:
        return found
    return _resize_rows(np.arange(extent, dtype=np.float64)[None], wanted, attrs)[0].astype(
        np.int32
    )


def _reference_factor(extent: int, scale: float | None) -> np.float32:
    """Return the factor, or the next float, by which ONNX's reference makes what `_extent` says."""
    factor = np.float32(1.0 if scale is None else scale)
    short = int(extent * float(factor)) < _extent(extent, scale, None)
    return np.nextafter(factor, np.float32(np.inf)) if short else factor


def _lengthen(rows: np.ndarray, count: int, attrs: dict[str, Any]) -> np.ndarray:
    """Return rows with the last element repeated, which is what samples beyond it read anyway."""
    mode = attrs["coordinate_transformation_mode"].decode()
    if mode not in ("half_pixel", "pytorch_half_pixel", "asymmetric") or attrs["exclude_outside"]:
        raise RefusedError(f"keep_aspect_ratio_policy rounds an extent up, with {mode} samples")
    return np.pad(rows, ((0, 0), (0, count)), mode="edge")


def _resize_rows(rows: np.ndarray, wanted: Wanted, attrs: dict[str, Any]) -> np.ndarray:
    """Return rows [count, extent], each resized as ONNX's reference does."""
    from onnx.reference import ReferenceEvaluator

    (count, extent), (scale, size, part) = rows.shape, wanted
    target = _extent(extent, scale, size)
    single = target == 1  # of which ONNX says so; its reference does not
    mode = attrs["coordinate_transformation_mode"]
    by_scale = scale is not None and not (single and mode == b"pytorch_half_pixel")
    if scale is not None and size is not None:
        # A policy of aspect: one scale for all axes, whose results it rounds to whole numbers.
        by_scale = by_scale and mode != b"align_corners"
        if by_scale and int(extent * _reference_factor(extent, scale)) < size:
            rows = _lengthen(rows, int(np.ceil(1 / scale)), attrs)
            return _resize_rows(rows, (scale, None, part), attrs)[:, :size]
    operands = ["x", "r" if part else "", "s"] if by_scale else ["x", "r" if part else "", "", "s"]
    resize = onnx.helper.make_node(
        "Resize", operands, ["y"], **{**attrs, "extrapolation_value": 0.0}
    )
    feeds: dict[str, np.ndarray] = {"x": rows}
    if part:
        feeds["r"] = np.array([0.0, part[0], 1.0, part[1]], np.float32)
    if by_scale:
        feeds["s"] = np.array([1.0, _reference_factor(extent, scale)], np.float32)
    else:
        feeds["s"] = np.array([count, target], np.int64)
    result = ReferenceEvaluator(resize, opsets={"": 18}).run(None, feeds)
    return np.asarray(result[0])
