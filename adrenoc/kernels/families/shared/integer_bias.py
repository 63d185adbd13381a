"""A bias of whole numbers joins the constant that sums of integers begin with.

`(sum + rest) + bias` in integers is one addition, and one constant to read instead of two.

Before -> after:
    epilogue round((@result + bias[c]) * scale[c])      rest[c]
    epilogue round(@result * scale[c])                  rest[c] + bias[c]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import const_int, tirx, tvm
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.access import Access
from adrenoc.kernels.families.shared.context import NodeKernel
from adrenoc.kernels.families.shared.conv_geometry import Oihw
from adrenoc.kernels.families.shared.dot_products import pack_rest

_LARGEST_BYTE, _BEYOND_INT32 = 255, 2**31


@dataclass(frozen=True, kw_only=True)
class IntegerBias:
    """A node whose epilogue adds no bias any more, and the bias: its name and its integers."""

    node: Node
    name: str = ""
    values: np.ndarray | None = None

    def operand(self, kernel: NodeKernel, family: str, low: int, oihw: Oihw) -> Access:
        """Return the constant of `rest`, as the kernel's next argument."""
        kind = f"{family}_rest{-low}{self.name}"
        name = self.node.inputs[1]
        return kernel.flat(name, kind, lambda w: self.rest(w, low), oihw, "float32")

    def rest(self, weight: np.ndarray, low: int) -> np.ndarray:
        """Pack what is added to the sums of each output channel, as int32 [blocks, 4].

        It makes up for bytes that are stored less their lowest value `low`, and holds the bias
        where that consists of whole numbers."""
        rest = pack_rest(weight, low)
        if self.values is not None:
            rest[: len(self.values)] += self.values.astype(np.int32)
        return rest


def split_bias(graph: Graph, node: Node, oihw: Oihw) -> IntegerBias:
    """Take the bias out of a node's epilogue where it is the first that is added to the result."""
    body = node.epilogue
    if body is None:
        return IntegerBias(node=node)
    found: list[tuple[Any, str]] = []
    reads: list[str] = []

    def count(load: Any) -> Any:
        reads.append(_source(body, load))
        return load

    def note(part: Any) -> Any:
        for one, other in ((part.a, part.b), (part.b, part.a)):
            if _source(body, one) == Node.RESULT and isinstance(other, tvm.ir.TensorLoad):
                found.append((other, _source(body, other)))
        return part

    structural_map(body.value, (tvm.ir.TensorLoad, count))
    structural_map(body.value, (tirx.Add, note))
    if len(found) != 1 or reads.count(Node.RESULT) != 1 or reads.count(found[0][1]) != 1:
        return IntegerBias(node=node)
    ((load, name),) = found
    values = _read_whole_constants(graph, node, load, name)
    weight = graph.tensors[node.inputs[1]].value
    if values is None or weight is None:
        return IntegerBias(node=node)
    sums = np.abs(oihw(weight).astype(np.float64)).sum(axis=(1, 2, 3)) * _LARGEST_BYTE
    if (np.abs(values) + sums).max(initial=0) >= _BEYOND_INT32:
        return IntegerBias(node=node)

    def drop_bias(part: Any) -> Any:
        if _source(body, part.a) == name:
            return part.b
        return part.a if _source(body, part.b) == name else part

    value = structural_map(body.value, (tirx.Add, drop_bias))
    kept = replace(body, value=value)
    return IntegerBias(node=replace(node, epilogue=kept.drop_unread()), name=name, values=values)


def _source(body: Body, load: Any) -> str:
    return (isinstance(load, tvm.ir.TensorLoad) and body.source_of(load.source)) or ""


def _read_whole_constants(graph: Graph, node: Node, load: Any, name: str) -> np.ndarray | None:
    """Return the values of a constant of whole numbers, one an output channel; None if it is
    another."""
    tensor = graph.tensors.get(name)
    value = None if tensor is None else tensor.value
    spec = graph.operand(node.output)
    if value is None or spec.layout is None or node.epilogue is None:
        return None
    channels = spec.extents.c
    if value.size != channels or not np.array_equal(value, np.rint(value)):
        return None
    along = spec.roles.axis("C")
    for index, extent in zip(load.indices, value.shape, strict=True):
        own = along is not None and index.same_as(node.epilogue.axes[along])
        if (extent == channels) != own and not (extent == 1 and const_int(index) == 0):
            return None
        if extent != 1 and not own:
            return None
    return np.asarray(value, np.float64).reshape(-1)
