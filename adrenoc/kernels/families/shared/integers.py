"""When operators that read bytes multiply them as integers, four a word, and how their bias joins.

A bias of whole numbers joins the constant that sums of integers begin with: `(sum + rest) + bias`
in integers is one addition, and one constant to read instead of two.

Before -> after:
    epilogue round((@result + bias[c]) * scale[c])      rest[c]
    epilogue round(@result * scale[c])                  rest[c] + bias[c]
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import const_int, tirx, tvm
from adrenoc.ir.graph import Body, Graph, Node
from adrenoc.ir.layout import LANES, WORDS, Memory
from adrenoc.kernels.access import Access
from adrenoc.kernels.families.shared.context import NodeKernel, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import Oihw

SIXTEEN = WORDS * LANES
"""Channels that one read of bytes gives."""


def fits_bytes(weight: np.ndarray) -> bool:
    """Return whether weights are whole numbers that a signed byte holds."""
    low, high = np.iinfo(np.int8).min, np.iinfo(np.int8).max
    whole = np.array_equal(weight, np.rint(weight))
    return bool(whole and weight.min(initial=0) >= low and weight.max(initial=0) <= high)


WORD_BYTES = 4

MOST_PRODUCTS = 65536
"""The most products of bytes in one sum: so many stay below 2^31."""


def suits_dot(context: RuleContext, node: Node, oihw: Oihw, refused: str = "") -> bool:
    """Return whether an operator reads bytes, and its weights are such that integers do.

    `refused` says why its kernel would not do all the same.
    """
    x, weight = (context.graph.tensors[name] for name in node.inputs[:2])
    if context.graph.operand(x.name).memory is not Memory.BYTES or weight.value is None:
        return False
    if refused:
        reason = refused
    elif not fits_bytes(weight.value):
        reason = f"its weights {weight.name} are not whole numbers of eight bits"
    elif oihw(weight.value)[0].size > MOST_PRODUCTS:
        reason = f"sums of {oihw(weight.value)[0].size} products, at most {MOST_PRODUCTS}"
    else:
        return True
    context.log.add(node.name, "integers computed as floats", reason)
    return False


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
        sums = weight.astype(np.int64).sum(axis=(1, 2, 3)) * low
        rest = np.zeros(-(-len(sums) // LANES) * LANES, np.int32)
        rest[: len(sums)] = sums
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
    """Return a constant of whole numbers, one an output channel; None if it is another."""
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
