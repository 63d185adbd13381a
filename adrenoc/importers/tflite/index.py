"""Operators that read or write at computed places, and those that look things up.

Non-maximum suppression, alone and at the end of a detector.

Source: TFLite operator reference; the kernels of LiteRT for what it leaves open;
non_max_suppression.h and detection_postprocess.cc of LiteRT.
"""

import math

import numpy as np
from tvm import relax, te, tirx

from adrenoc.base.errors import RefusedError
from adrenoc.importers.imported import check_grown
from adrenoc.importers.relax.spatial import Suppression, selection
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant, pick
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.file import TensorInfo
from adrenoc.importers.tflite.node import Result, TfliteNode
from adrenoc.importers.tflite.untranslated import COUNT_OF_DATA


def _index(node: TfliteNode, number: int, dtype: str = "int32") -> relax.Expr:
    return node.emit(node.data(number).astype(dtype))


def _gather(node: TfliteNode) -> Result:
    rank, batch = len(node.shape()), int(node.option("BatchDims", 0))
    axis = int(node.option("Axis", 0)) % rank
    index = _index(node, 1)
    if batch % len(node.shape(1)) if len(node.shape(1)) else 0:
        return node.move(_take_by_batch(node, index, axis, batch % len(node.shape(1))))
    places = constant_value(index)
    if places is None:
        return node.move(relax.op.take(node.data(), index, axis=axis, mode="clip"))
    if places.ndim:
        return node.move(pick(node.data(), places, axis))
    one = pick(node.data(), places.reshape(1), axis)
    return node.move(relax.op.squeeze(one, [axis]))


def _take_by_batch(node: TfliteNode, index: relax.Expr, axis: int, batch: int) -> relax.Expr:
    """Let each batch look up by its own indices."""
    shape, own = node.shape(), node.shape(1)
    order = [*range(batch), axis, *(a for a in range(batch, len(shape)) if a != axis)]
    x = relax.op.permute_dims(node.data(), order)
    places = relax.op.expand_dims(index.astype("int64"), -1)
    found = relax.op.gather_nd(x, places, batch_dims=batch)
    picked = len(own) - batch
    # Axes between the batches and the one looked up go before what was found.
    between = axis - batch
    last = batch + picked
    final = [
        *range(batch),
        *(last + a for a in range(between)),
        *range(batch, last),
        *(last + a for a in range(between, len(shape) - batch - 1)),
    ]
    return relax.op.permute_dims(found, final)


def _scatter_nd(node: TfliteNode) -> Result:
    """Scatter into zeros; what falls on one place is summed."""
    check_grown(math.prod(node.ints(2)))
    zeros = make_constant(np.zeros(node.ints(2), node.dtype(1)))
    index = _index(node, 0, "int64")
    return node.move(relax.op.scatter_nd(zeros, index, node.data(1), "add"), 1)


def _sparse_to_dense(node: TfliteNode) -> Result:
    shape = node.ints(1)
    check_grown(math.prod(shape))
    index = node.constant(0).astype(np.int64).reshape(-1, len(shape))
    default = np.full(shape, node.scalar(3), node.dtype(2))
    values = relax.op.broadcast_to(node.data(2), [len(index)])
    return node.move(
        relax.op.scatter_nd(make_constant(default), make_constant(index), values, "update"), 2
    )


def _embedding_lookup(node: TfliteNode) -> Result:
    info = node.info(1)
    if info.is_quantised and info.scales.size > 1 and info.value is not None:
        return _open_rows(node, info)
    return node.move(relax.op.take(node.data(1), _index(node, 0), axis=0, mode="clip"), 1)


def _open_rows(node: TfliteNode, info: TensorInfo) -> Result:
    """Return rows of a table of whole numbers, multiplied by the scales of their row and block."""
    if info.zeros.any() or (info.axis and not info.block):
        raise RefusedError("a table with zero points, or scales along other axes than rows")
    count, depth = info.shape[0], math.prod(info.shape[1:])
    blocks = depth // info.block if info.block else 1
    places = _index(node, 0)
    rows = int(math.prod(node.shape()))

    def pick_rows(table: np.ndarray, *shape: int) -> relax.Expr:
        found = relax.op.take(make_constant(table), places, axis=0, mode="clip")
        return relax.op.reshape(found, [rows, *shape])

    codes = pick_rows(np.asarray(info.value).reshape(count, depth), blocks, depth // blocks)
    wide = codes.astype("float32")
    scales = pick_rows(info.scales.reshape(count, blocks), blocks, 1)
    return relax.op.reshape(wide * scales, [*node.shape(), *info.shape[1:]])


def _embedding_lookup_sparse(node: TfliteNode) -> Result:
    """Weight rows and join them by sum, mean, or the root of the squares' sum: a product."""
    ids, places, shape, weights = (node.constant(n) for n in range(4))
    places = places.reshape(len(ids), -1)
    outer = [int(d) for d in shape[:-1]]
    rows = math.prod(outer)
    check_grown(rows * node.shape(4)[0])
    matrix = np.zeros((rows, node.shape(4)[0]), np.float32)
    factor = np.zeros(rows)
    kind = int(node.option("Combiner", 0))
    for number, place, weight in zip(ids, places, weights, strict=True):
        row = int(np.ravel_multi_index(tuple(int(p) for p in place[:-1]), outer))
        matrix[row, int(number)] += weight
        factor[row] += weight**2 if kind == 2 else weight
    if kind:
        size = np.sqrt(factor) if kind == 2 else factor
        matrix /= np.where(size == 0, 1, size)[:, None].astype(np.float32)
    table = node.shape(4)
    flat = relax.op.reshape(node.real(4), [table[0], math.prod(table[1:])])
    joined = node.emit(relax.op.matmul(make_constant(matrix), flat))
    return relax.op.reshape(joined, [*outer, *table[1:]])


def _hashtable_lookup(node: TfliteNode) -> list[Result]:
    """Look up rows by constant keys; zeros where there is none."""
    wanted, keys = node.constant(0), [int(v) for v in node.constant(1)]
    places = np.array([keys.index(int(v)) if int(v) in keys else -1 for v in wanted], np.int32)
    rows = relax.op.take(node.data(2), make_constant(np.maximum(places, 0)), axis=0, mode="clip")
    hits = (places >= 0).reshape(-1, *[1] * (len(node.shape(2)) - 1))
    zero = make_constant(np.zeros((), node.dtype(2)))
    kept = relax.op.where(make_constant(hits), rows, zero)
    return [node.move(kept, 2), make_constant((places >= 0).astype(np.uint8))]


def _one_hot(node: TfliteNode) -> Result:
    depth, rank = int(node.scalar(1)), len(node.shape()) + 1
    check_grown(depth)
    axis = int(node.option("Axis", -1)) % rank
    index = relax.op.expand_dims(_index(node, 0), axis)
    along = [depth if a == axis else 1 for a in range(rank)]
    numbers = make_constant(np.arange(depth, dtype=np.int32).reshape(along))
    hit = relax.op.equal(index, numbers)
    return node.move(relax.op.where(hit, node.data(2), node.data(3)), 2)


def _matrix_diagonal(node: TfliteNode) -> Result:
    """Return the last axis on the diagonal of zeros."""
    extent = node.shape()[-1]
    check_grown(extent * extent)
    row = relax.op.expand_dims(node.data(), -2)
    on = make_constant(np.eye(extent, dtype=bool))
    return node.move(relax.op.where(on, row, make_constant(np.zeros((), node.dtype()))))


def _matrix_set_diagonal(node: TfliteNode) -> Result:
    check_grown(math.prod(node.shape()))
    rows, columns = node.shape()[-2:]
    shortest = min(rows, columns)
    diagonal = node.data(1)
    if columns > shortest:
        batch = node.shape(1)[:-1]
        filler = make_constant(np.zeros((*batch, columns - shortest), node.dtype()))
        diagonal = relax.op.concat([diagonal, filler], axis=-1)
    row = relax.op.expand_dims(diagonal, -2)
    on = make_constant(np.eye(rows, columns, dtype=bool))
    return node.move(relax.op.where(on, row, node.data()))


def _top_k(node: TfliteNode) -> list[Result]:
    count = int(node.scalar(1))
    found = relax.op.topk(
        node.data(), k=count, axis=-1, ret_type="both", largest=True, dtype="int32"
    )
    values, places = (relax.TupleGetItem(found, n) for n in range(2))
    return [node.move(values), places]


def _bucketize(node: TfliteNode) -> Result:
    """Return how many boundaries are not above each element."""
    x = node.real()
    bounds = np.asarray(node.option("Boundaries", []), np.float32)
    x = node.emit(relax.op.expand_dims(x, -1))
    passed = x >= make_constant(bounds.astype(dtype_of(x)))
    return relax.op.sum(passed.astype("int32"), [-1])


def _known(node: TfliteNode) -> np.ndarray:
    """Return the first input of what gives as many entries as its values tell."""
    if not node.is_constant(0):
        raise RefusedError(COUNT_OF_DATA)
    return node.constant(0)


def _unique(node: TfliteNode) -> list[Result]:
    """List elements in the order of first appearance; how many there are must be known."""
    values, first, back = np.unique(_known(node), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    places = rank[back.reshape(-1)].astype(node.results[1].dtype)
    return [make_constant(values[order]), make_constant(places)]


_SEGMENTS = {"SUM": ("add", 0.0), "PROD": ("mul", 1.0), "MAX": ("max", -1), "MIN": ("min", 1)}


def _segment(node: TfliteNode) -> Result:
    """Join rows of one segment; TFLite fills a segment without rows with the neutral element."""
    kind = node.operator.kind.rpartition("_")[2]
    reduction, neutral = _SEGMENTS[kind]
    if node.operator.kind == "SEGMENT_SUM":
        count = int(node.constant(1).max()) + 1
    else:
        count = int(node.scalar(2))
    dtype = node.dtype()
    if kind in ("MAX", "MIN"):
        bounds = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
        neutral = float(bounds.min if kind == "MAX" else bounds.max)
    rest = node.shape()[len(node.shape(1)) :]
    check_grown(count * math.prod(rest))
    start = make_constant(np.full((count, *rest), neutral, dtype))
    index = relax.op.expand_dims(_index(node, 1, "int64"), -1)
    return relax.op.scatter_nd(start, index, node.data(), reduction)


def _bitcast(node: TfliteNode) -> Result:
    wanted = node.results[0].dtype
    bits = [np.dtype(d).itemsize for d in (node.dtype(), wanted)]
    if bits[0] != bits[1]:
        seen = f"from {node.dtype()} of {bits[0]} bytes to {wanted} of {bits[1]}"
        raise RefusedError(f"{seen}, expected the same size")

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: tirx.reinterpret(wanted, x(*at)), name="bits")

    return node.emit.builder.emit_te(compute, node.data())


def suppress(
    node: TfliteNode, corners: relax.Expr, scores: relax.Expr, rules: Suppression
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Return numbers (-1 where there is none), classes and scores, each float [total]."""
    corners, scores = node.emit(corners), node.emit(scores)
    boxes, classes = (int(d) for d in scores.ty.shape)
    builder = node.emit.builder
    function = selection(boxes, classes, rules)
    name = builder.add_func(function.with_attr("tirx.noalias", True), "non_max_suppression")
    ty = relax.TensorType((rules.total, 3), "float32")
    rows = relax.call_tir(name, [corners, scores], ty)
    columns = []
    for column in range(3):
        part = relax.op.strided_slice(rows, [1], [column], [column + 1])
        columns.append(node.emit(relax.op.reshape(part, [rules.total])))
    return columns[0], columns[1], columns[2]


def count_of(numbers: relax.Expr) -> relax.Expr:
    """Return how many numbers are not -1, in float."""
    hit = numbers >= make_constant(np.float32(0))
    return relax.op.sum(hit.astype("float32"))


def _suppression(node: TfliteNode) -> list[Result]:
    """V4 gives numbers and their count; V5 the scores between them, which it may let decay."""
    soft = node.operator.kind.endswith("V5")
    sigma = float(node.scalar(5)) if soft and node.has(5) else 0.0
    total = int(node.scalar(2))
    rules = Suppression(
        by_class=total,
        total=total,
        least=float(node.scalar(4)),
        least_counts=False,
        overlap=float(node.scalar(3)),
        overlap_counts=True,
        decay=-0.5 / sigma if sigma > 0 else 0.0,
    )
    scores = relax.op.reshape(node.real(1), [node.shape(1)[0], 1])
    numbers, _, kept = suppress(node, node.real(0), scores, rules)
    zero = make_constant(np.float32(0))
    places = relax.op.maximum(numbers, zero).astype("int32")
    count = count_of(numbers).astype("int32")
    return [places, kept, count] if soft else [places, count]


def _decode_boxes(node: TfliteNode) -> relax.Expr:
    """Return centres and sizes relative to anchors, as corners [boxes, 4]."""
    option = node.option
    encoded = relax.op.reshape(node.real(0), list(node.shape(0)[1:]))
    anchors = node.real(2)

    def part(expr: relax.Expr, begin: int) -> relax.Expr:
        return relax.op.strided_slice(expr, [1], [begin], [begin + 2])

    def scale(*names: str) -> relax.Expr:
        return make_constant(np.array([[1 / float(option(n)) for n in names]], np.float32))

    size = part(anchors, 2)
    centre = part(encoded, 0) * scale("y_scale", "x_scale") * size + part(anchors, 0)
    half = relax.op.exp(part(encoded, 2) * scale("h_scale", "w_scale")) * size
    half = half * make_constant(np.float32(0.5))
    low, high = centre - half, centre + half
    return relax.op.concat([low, high], axis=1)


def _detection_postprocess(node: TfliteNode) -> list[Result]:
    """Return boxes, classes, scores and their count; the class before the first is background."""
    boxes, labels = node.shape(1)[1:]
    classes = int(node.option("num_classes"))
    total = int(node.option("max_detections"))
    regular = bool(node.option("use_regular_nms", False))
    each = int(node.option("max_classes_per_detection", 1))
    if not regular and each != 1:
        raise RefusedError(f"{each} classes for a detection, expected 1")
    corners = _decode_boxes(node)
    scores = relax.op.reshape(node.real(1), [boxes, labels])
    scores = relax.op.strided_slice(scores, [1], [labels - classes], [labels])
    rules = Suppression(
        by_class=int(node.option("detections_per_class", 100)) if regular else total,
        total=total,
        least=float(node.option("nms_score_threshold")),
        least_counts=True,
        overlap=float(node.option("nms_iou_threshold")),
        overlap_counts=False,
    )
    if regular:
        numbers, kinds, kept = suppress(node, corners, scores, rules)
    else:
        best = relax.op.max(scores, [1], True)
        numbers, _, kept = suppress(node, corners, best, rules)
    zero = make_constant(np.float32(0))
    places = relax.op.maximum(numbers, zero).astype("int32")
    found = numbers >= zero
    if not regular:
        first = relax.op.argmax(scores, 1).astype("float32")
        kinds = relax.op.take(first, places, axis=0, mode="clip")
        kinds = relax.op.where(found, kinds, zero)
    rows = relax.op.take(corners, places, axis=0, mode="clip")
    rows = relax.op.where(relax.op.reshape(found, [total, 1]), rows, zero)
    return [
        relax.op.reshape(rows, [1, total, 4]),
        relax.op.reshape(kinds, [1, total]),
        relax.op.reshape(kept, [1, total]),
        relax.op.reshape(count_of(numbers), [1]),
    ]


SELECT_CUSTOM_OPS: dict[str, Convert] = {"TFLite_Detection_PostProcess": _detection_postprocess}


INDEX_OPS: dict[str, Convert] = {
    "BITCAST": _bitcast,
    "BUCKETIZE": _bucketize,
    "EMBEDDING_LOOKUP": _embedding_lookup,
    "EMBEDDING_LOOKUP_SPARSE": _embedding_lookup_sparse,
    "GATHER": _gather,
    "GATHER_ND": lambda node: node.move(relax.op.gather_nd(node.data(), _index(node, 1, "int64"))),
    "HASHTABLE_LOOKUP": _hashtable_lookup,
    "MATRIX_DIAG": _matrix_diagonal,
    "MATRIX_SET_DIAG": _matrix_set_diagonal,
    "NON_MAX_SUPPRESSION_V4": _suppression,
    "NON_MAX_SUPPRESSION_V5": _suppression,
    "ONE_HOT": _one_hot,
    "SCATTER_ND": _scatter_nd,
    "SEGMENT_SUM": _segment,
    "SPARSE_TO_DENSE": _sparse_to_dense,
    "TOPK_V2": _top_k,
    "UNIQUE": _unique,
    "UNSORTED_SEGMENT_MAX": _segment,
    "UNSORTED_SEGMENT_MIN": _segment,
    "UNSORTED_SEGMENT_PROD": _segment,
    "UNSORTED_SEGMENT_SUM": _segment,
    "WHERE": lambda node: make_constant(np.argwhere(_known(node)).astype(np.int64)),
}
