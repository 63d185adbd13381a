"""Keep in float32 the tensors that factors bring beyond what halves hold.

Half ends at 65504, and below 2^-14 it has few digits or none left.  A factor of 1e-7 brings data
there, and so do two of 1e-4 with a kernel between them: what is multiplied by 1e7 later has lost
its digits by then.  Products of such a tensor are as small, up to where a factor brings them back,
or a norm or a function does.

Before -> after (mixed):
    %s = map %x * 1e-7                  the same, and s, p stay in float32
    %p = max_pool2d(%s)
    %y = map %p * 1e7
"""

from __future__ import annotations

import math

from adrenoc.families.operators import gives, is_kind
from adrenoc.families.shared.operator import Kind, Numbers
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import beyond_half, largest_of
from adrenoc.passes.context import Context
from adrenoc.passes.precision.signs import Sign, signs_of
from adrenoc.passes.precision.sizes import ONE, Size, Sizes, size_of_number
from adrenoc.passes.precision.uneven_channels import brought_back

_FROM_ITS_TERMS = (Numbers.AVERAGED, Numbers.PICKED, Numbers.SUMMED)
"""Results whose size follows from that of what is read."""


def keep_sizes(graph: Graph, context: Context) -> Graph:
    """Mark the float tensors whose numbers are far larger or smaller than their data."""
    log = context.log
    walk = _Walk(graph)
    exact: set[str] = set()
    for node in graph.nodes:
        if not graph.tensors[node.output].is_float:
            continue
        size = walk.visit(node)
        # What is rounded to integers are multiples of a quantum, which a factor has brought about.
        if graph.precision(node.output).rounded or not (reason := size.beyond_half):
            continue
        exact.add(node.output)
        if not graph.precision(node.output).float32:
            log.add(node.output, "float32", reason)
    for name, reader in brought_back(graph).items():
        if name in exact or graph.precision(name).is_special:
            continue
        exact.add(name)
        exact.update(_constants(graph, graph.producers[name]))
        log.add(name, "float32", f"half loses digits of tiny channels that {reader} brings back")
    return graph.with_precision(exact, float32=True)


class _Walk:
    """The sizes of tensors, in execution order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._signs: dict[str, Sign] = signs_of(graph)
        self._masks = {
            name: bool(tensor.value.max() <= 0)
            for name, tensor in graph.tensors.items()
            if tensor.value is not None and tensor.is_float and tensor.value.size
        }
        self._sizes: dict[str, Size] = {
            name: size_of_number(largest)
            for name, tensor in graph.tensors.items()
            if tensor.value is not None
            and tensor.is_float
            and tensor.value.size
            and (largest := largest_of(tensor.value))
        }

    def visit(self, node: Node) -> Size:
        """The size of a node's output."""
        size, is_mask = ONE, False
        if node.prologue is not None:
            size, is_mask = self._of_body(node.prologue, size)
        if is_kind(node, Kind.CONVOLUTION, Kind.PRODUCT):
            size = self._weighted(node, size)
        elif node.is_concat or gives(node, *_FROM_ITS_TERMS):
            size = self._reduced(node, size)
        elif node.body is None:
            size = ONE
        if node.body is not None:
            size, is_mask = self._of_body(node.body, size)
        if node.epilogue is not None:
            size, is_mask = self._of_body(node.epilogue, size)
        self._sizes[node.output], self._masks[node.output] = size, is_mask
        return size

    def _of_body(self, body: Body, before: Size) -> tuple[Size, bool]:
        known = {n: self._sizes.get(n, ONE) for n in body.sources.values()}
        if body.reduced and len(known) > 1:  # a product of matrices, or a convolution
            known = {n: size if size.beyond_half else ONE for n, size in known.items()}
        known[Node.RESULT] = before
        sizes = Sizes(body, known, self._masks, self._signs)
        size = sizes.of_body()
        return size or ONE, not body.reduced and sizes.is_mask(body.value, size)

    def _first(self, node: Node, prologue: Size) -> Size:
        return prologue if node.prologue is not None else self._sizes.get(node.inputs[0], ONE)

    def _reduced(self, node: Node, prologue: Size) -> Size:
        size = self._first(node, prologue)
        if not gives(node, Numbers.SUMMED):
            return size
        terms = math.prod(self._graph.tensors[node.inputs[0]].shape) / math.prod(
            self._graph.tensors[node.output].shape
        )
        return size.times(size_of_number(max(1.0, terms)))

    def _weighted(self, node: Node, prologue: Size) -> Size:
        """A sum of products is about as large as its terms; weights within half keep what is
        within half there, for networks are trained to do so."""
        data, weights = self._first(node, prologue), self._graph.tensors[node.inputs[1]]
        factor = self._sizes.get(node.inputs[1], ONE)
        odd = weights.value is not None and beyond_half(weights.value)
        if not data.beyond_half and not odd and (weights.value is not None or factor == ONE):
            return ONE
        return size_of_number(data.most).times(factor)


def _constants(graph: Graph, node: Node) -> list[str]:
    """The constants that a node reads in floats."""
    tensors = (graph.tensors[name] for name in node.inputs)
    return [t.name for t in tensors if t.value is not None and t.is_float]
