"""Recurrent layers that are written out step by step, with the reason that no one kernel does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from adrenoc.importers.onnx.graph import OnnxGraph, attributes
from adrenoc.importers.relax.recurrent_call import MOST_UNITS
from adrenoc.importers.relax.recurrent_cells import GATES

CONSTANT_INPUTS = (1, 2, 3, 7)
"""Weights, recurrence, biases and peepholes."""
LENGTHS = 4
WHOLE_DTYPES = ("float32", "float16")
"""What one operator takes; it computes in float32, as onnxruntime does."""
_RECURRENCE = 2


def explain_steps(
    *, are_constant: bool, has_lengths: bool, can_hold: bool, is_float: bool, units: int
) -> str | None:
    """Return why a layer is no single operator over all its steps; None where it is one."""
    if not are_constant:
        return "its weights are computed, expected constants"
    if has_lengths and not can_hold:
        return "its sequences end early, and its gates can hold no cell behind their ends"
    if not is_float:
        return "its input is neither float32 nor float16"
    if units > MOST_UNITS:
        return f"it has {units} units, one kernel takes up to {MOST_UNITS}"
    return None


def can_hold(attrs: Mapping[str, Any], *, keeps_cell: bool) -> bool:
    """Return whether a cell can be held where a sequence has ended: shut gates are 0 and open ones
    1.

    Where nobody asks for the last cell, nothing has to.
    """
    if not keeps_cell:
        return True
    named = [n.decode() if isinstance(n, bytes) else n for n in attrs.get("activations", [])]
    return not attrs.get("clip", 0.0) and all(n.lower() == "sigmoid" for n in named[::3])


def note_steps(graph: OnnxGraph) -> None:
    """Log a decision for each layer that is written out."""
    for node in graph.nodes:
        if node.op_type in GATES:
            _note(graph, node)


def _note(graph: OnnxGraph, node: onnx.NodeProto) -> None:
    given = dict(enumerate(node.input))
    weights = [name for i in CONSTANT_INPUTS if (name := given.get(i))]
    x, recurrence = graph.types.get(node.input[0]), graph.shape_of(given.get(_RECURRENCE, ""))
    reason = explain_steps(
        are_constant=all(name in graph.constants for name in weights),
        has_lengths=bool(given.get(LENGTHS)),
        can_hold=can_hold(attributes(node), keeps_cell=any(node.output[2:])),
        is_float=x is None or x.dtype in WHOLE_DTYPES,
        units=recurrence[-1] if recurrence else 0,
    )
    if reason is not None:
        subject = next(name for name in node.output if name)
        graph.log.add(subject, "a kernel or more for each step", reason)
