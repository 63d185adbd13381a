"""What a node of constants gives: by ONNX's reference, or by onnxruntime where that fails.

A failure of the reference is no fault of the model: where nothing else computes the node either, it
stays as it is, and the device computes it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from adrenoc.base.errors import ModelFormatError
from adrenoc.importers.frontend import CONVERTER_ERRORS
from adrenoc.importers.onnx import second_opinion
from adrenoc.importers.onnx.constant_budget import make_filled
from adrenoc.importers.onnx.graph import OnnxGraph, attributes, node_label
from adrenoc.importers.onnx.infer import first_line


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The values of a node's outputs, in order; None where nothing here can compute it.

    `trouble` is what the reference said, where it failed.
    """

    values: tuple[np.ndarray, ...] | None
    trouble: str = ""


def evaluate(graph: OnnxGraph, node: onnx.NodeProto) -> Evaluated:
    """Compute a node whose inputs are all constants.

    Raises:
        ModelFormatError: neither the reference nor onnxruntime can, which has a reason to give.
    """
    whole = make_filled(graph, node)
    if whole is not None:
        return Evaluated(values=(whole,))
    feeds = {name: graph.constants[name] for name in node.input if name}
    try:
        return Evaluated(values=_run_reference(node, feeds, graph.opset))
    except CONVERTER_ERRORS as error:
        trouble = first_line(error)
    opinion = second_opinion.compute_node(node, feeds, graph.opset)
    if opinion.refusal:
        raise ModelFormatError(
            f"{node.op_type} {node_label(node)} has constant inputs, but cannot be computed: "
            f"{opinion.refusal}",
            hint="check the model: python -m onnx.bin.checker MODEL",
        )
    if opinion.values is None:
        return Evaluated(values=None, trouble=trouble)
    values = tuple(np.asarray(opinion.values[name]) for name in node.output if name)
    return Evaluated(values=values, trouble=trouble)


def _run_reference(
    node: onnx.NodeProto, feeds: dict[str, np.ndarray], opset: int
) -> tuple[np.ndarray, ...]:
    from onnx.reference import ReferenceEvaluator

    axes = attributes(node).get("axes")
    if node.op_type in ("Squeeze", "Unsqueeze") and axes is not None:
        # The reference fails on the attribute of old opsets; as an input it reads it.
        node = onnx.helper.make_node(node.op_type, [node.input[0], "axes"], node.output)
        feeds = {**feeds, "axes": np.array(axes, np.int64)}
        opset = 13
    evaluator = ReferenceEvaluator(node, opsets={"": opset})
    with np.errstate(all="ignore"):  # infinities and NaN are values like others
        return tuple(np.asarray(value) for value in evaluator.run(None, feeds))
