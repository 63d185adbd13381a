"""Nodes that ONNX's reference and onnxruntime compute otherwise: which of the two is taken."""

from __future__ import annotations

import math

import onnx

from adrenoc.importers.onnx.graph import OnnxGraph, attributes

_WHOLE = 1e-4
"""How near a scaled extent is to a whole number that counts as one."""


def note_differences(graph: OnnxGraph) -> None:
    """Log a decision for each such node."""
    for node in graph.nodes:
        _note_resize(graph, node)


def _note_resize(graph: OnnxGraph, node: onnx.NodeProto) -> None:
    """Aligned corners by a scale: the last sample lies at the scaled extent, a fraction or not."""
    if node.op_type != "Resize" or len(node.input) < 3:
        return
    attrs = attributes(node)
    scales, shape = graph.constants.get(node.input[2]), graph.shape_of(node.input[0])
    if attrs.get("coordinate_transformation_mode") != b"align_corners" or scales is None:
        return
    if not shape:
        return
    axes = attrs.get("axes") or range(len(shape))
    for axis, scale in zip(axes, scales.reshape(-1), strict=False):
        extent = shape[axis % len(shape)]
        scaled = extent * float(scale)
        if math.isfinite(scaled) and abs(scaled - round(scaled)) > _WHOLE:
            graph.log.add(
                node.output[0],
                "corners aligned as ONNX's reference does",
                f"axis {axis} of {extent} elements is scaled to {scaled:.4g}; "
                f"onnxruntime and PyTorch place samples in {int(scaled)}: give sizes in place of "
                "scales to have theirs",
            )
