"""Which operators stay whole: those of a family, but for the cases that its rule does not cover.

A case that no rule covers is refused with a reason; it is then lowered to a plain loop nest like
any other operator, which is slower and just as right.
"""

from __future__ import annotations

from collections.abc import Mapping

from adrenoc.ir.graph import Node, Tensor
from adrenoc.ir.layout import default_layout
from adrenoc.kernels.families.shared.operator import Operator


def refusal(node: Node, operator: Operator, tensors: Mapping[str, Tensor]) -> str | None:
    """Return why a node must be a loop nest; None where it can stay whole."""
    changed = operator.writes_into if operator.writes_into is not None else len(node.inputs)
    for position, name in zip(
        (*range(len(node.inputs)), changed), (*node.inputs, node.output), strict=True
    ):
        tensor = tensors[name]
        if position in operator.whole_numbers:
            continue
        if not tensor.is_float:
            return f"{name} is {tensor.dtype}, expected float"
        packed = tensor.value is not None and position > 0  # as its reader wants it
        if not packed and default_layout(tensor.shape) is None:
            return f"{name} of shape {tensor.shape} has too many extents above one"
    return operator.refuses(node, tensors)
