"""Non-maximum suppression, alone and at the end of a detector.

Source: non_max_suppression.h and detection_postprocess.cc of LiteRT.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.relax.values import make_constant
from adrenoc.importers.suppression import Suppression, selection
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import Node, Result


def suppress(
    node: Node, corners: relax.Expr, scores: relax.Expr, rules: Suppression
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Numbers (-1 where there is none), classes and scores, each float [total]."""
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


def _suppression(node: Node) -> list[Result]:
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


def _decode_boxes(node: Node) -> relax.Expr:
    """Centres and sizes relative to anchors, as corners [boxes, 4]."""
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


def _detection_postprocess(node: Node) -> list[Result]:
    """Boxes, classes, scores and their count; the class before the first is background."""
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


SELECT_OPS: dict[str, Convert] = {
    "NON_MAX_SUPPRESSION_V4": _suppression,
    "NON_MAX_SUPPRESSION_V5": _suppression,
}

SELECT_CUSTOM_OPS: dict[str, Convert] = {"TFLite_Detection_PostProcess": _detection_postprocess}
