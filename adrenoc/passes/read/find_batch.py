"""Whether the elements of a batch are computed each by itself.

Where they are, a smaller batch may be filled up with zeros and the surplus results dropped, which
is exact.  Shown for each node, from the inputs on: element i of the batch of a result reads
elements i of its operands, and no others.

    y[i, k] = sum_j x[i, j] * w[j, k]       by itself
    y[i, k] = x[i, k] / sum_i x[i, k]       not: one element of the batch has a part in the others
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import Var, sym, tirx, tvm
from adrenoc.ir.graph import Body, Graph, Node
from adrenoc.kernels.body_cost import loads_of, operands_of, parts_of_kind
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.kernels.families.shared.operator import Along, Batch


class _MixedError(Exception):
    """An element of the batch takes part in another; the text says where."""


def find_batch(graph: Graph, inputs: Sequence[str]) -> tuple[dict[str, Along], str]:
    """Return how the batch, axis 0 of `inputs`, lies in each output; and why it is not filled up.
    The reason is empty where each element is computed by itself."""
    extents = {graph.tensors[name].shape[0] for name in inputs}
    if len(extents) != 1:
        return {}, f"the inputs {', '.join(inputs)} have batches of {sorted(extents)}"
    walk = _Walk(graph=graph, batch=extents.pop())
    walk.along.update({name: Along(0) for name in inputs})
    try:
        for node in graph.nodes:
            found = walk.visit(node)
            if found is not None:
                walk.along[node.output] = found
    except _MixedError as error:
        return {}, str(error)
    return {name: walk.along[name] for name in graph.outputs if name in walk.along}, ""


@dataclass
class _Walk:
    graph: Graph
    batch: int
    along: dict[str, Along] = field(default_factory=dict)

    def visit(self, node: Node) -> Along | None:
        """Return how the batch lies in the result of a node; None where it has no part in it."""
        if not any(name in self.along for name in node.inputs):
            return None
        if node.body is not None:
            return self._body(node, node.body)
        operator = OPERATORS.get(node.op)
        follow = operator.follows_batch if operator is not None else None
        found = follow(Batch(graph=self.graph, along=self.along), node) if follow else None
        if found is None:
            raise _MixedError(f"{node.name} ({node.op}) may mix the elements of a batch")
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.tensors[name].shape

    def _body(self, node: Node, body: Body) -> Along:
        """Return one element of the result as an expression: what it reads says it all."""
        shape = self.shape(node.output)
        analyzer = sym.Analyzer()
        for var, extent in (*zip(body.axes, shape, strict=True), *body.reduced):
            if isinstance(var, Var):
                analyzer.bind(var, tvm.ir.Range(0, extent))
        loads = loads_of(body.value)
        for axis, extent in enumerate(shape):
            if extent % self.batch:
                continue
            own = Along(axis, extent // self.batch)
            element = tirx.floordiv(body.axes[axis], own.factor)
            if all(self._reads_own(load, body, element, analyzer) for load in loads):
                return own
        raise _MixedError(f"{node.name} ({'+'.join(node.operators)}) mixes the elements of a batch")

    def _reads_own(self, load: Any, body: Body, element: Any, analyzer: Any) -> bool:
        name = body.source_of(load.source)
        if name is None:  # what a fold holds so far
            return True
        along = self.along.get(name)
        if along is None:
            value = self.graph.tensors[name].value
            variables = parts_of_kind(element, Var)
            for axis, index in enumerate(load.indices):
                if not any(v.same_as(w) for v in parts_of_kind(index, Var) for w in variables):
                    continue
                if value is None or _repeated(value, axis, self.batch) is None:
                    return False
            return True
        read = tirx.floordiv(load.indices[along.axis], along.factor)
        return bool(analyzer.can_prove_equal(read, element))


def batch_free_constants(graph: Graph, batch: int) -> list[str]:
    """Return sorted digests of each constant and each number of expressions but for indices.  Of a
    constant that repeats itself along the batch, it is that of one part.  Where these differ
    between two sizes of the batch, the size itself is part of the arithmetic."""
    bodies = [node.body.value for node in graph.nodes if node.body is not None]
    digests = [str(number) for body in bodies for number in _numbers(body)]
    for tensor in graph.tensors.values():
        if tensor.value is not None:
            axes = range(tensor.value.ndim if batch > 1 else 0)
            parts = (_repeated(tensor.value, axis, batch) for axis in axes)
            first = next((part for part in parts if part is not None), tensor.value)
            value = np.ascontiguousarray(first)
            said = f"{value.shape} {value.dtype} ".encode()
            digests.append(hashlib.sha256(said + value.tobytes()).hexdigest())
    return sorted(digests)


def _repeated(value: np.ndarray, axis: int, times: int) -> np.ndarray | None:
    """Return what a constant is so many times along an axis; None where its parts differ."""
    if value.shape[axis] % times:
        return None
    first, *others = np.split(value, times, axis=axis)
    return first if all(np.array_equal(first, part) for part in others) else None


def _numbers(expr: Any) -> list[float]:
    """Return the numbers of an expression, those of the indices of what it reads left out."""
    found, stack = [], [expr]
    while stack:
        part = stack.pop()
        if isinstance(part, tirx.FloatImm | tirx.IntImm):
            found.append(part.value)
        else:
            stack.extend(operands_of(part))
    return found
