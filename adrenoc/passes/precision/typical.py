"""How large the numbers of a network become on data of about one: a run of one pixel.

Each tensor is taken to be the same in all places, so that a convolution is one product of its
channels with the sums of its taps.  That costs one look at each weight, and follows what factors
and signs cannot: weights of one sign make sums that grow with their length, weights of both do not,
and a bias takes off what a norm before it was folded from.  What is not known is taken as one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.ir.body import Body
from adrenoc.ir.graph import PROLOGUE_SHAPE, Graph, Node, Tensor
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.kernels.families.shared.typical import NotKnownError, TypicalRun, one_of
from adrenoc.passes.precision.typical_expression import evaluate

_WHOLE = {
    "uint8": (128.0, 128.0),
    "int8": (64.0, -64.0),
    "uint16": (2.0**15, 2.0**15),
    "int16": (2.0**14, -(2.0**14)),
    "uint32": (2.0**31, 2.0**31),
    "int32": (2.0**30, -(2.0**30)),
}
"""What stands for an input of these types: the half of what it may hold."""
_HIDING = 1e4
"""What is below minus that is taken for a mask: a number beside data that hides it."""
_ROUNDING = 2.0**-12
"""By what a half is off, as a share of it."""
_VAST = 1e300
_MOST_ELEMENTS = 1 << 13
"""Of an array: beyond it, the means along its longest axes are taken."""


@dataclass(frozen=True, kw_only=True)
class Typical:
    """Hold what is found of each tensor that nodes make.

    `sizes` are the largest of its numbers; `moved` says, of an expression of one tensor, how far
    one of its numbers moves at most when all that it reads is off by a half's rounding, as a share
    of the largest.
    """

    sizes: dict[str, float]
    moved: dict[str, float]


def find_typical(graph: Graph) -> Typical:
    """Run a graph on data of about one."""
    run = _Run(graph)
    with np.errstate(all="ignore"):
        sizes = {node.output: run.visit(node) for node in graph.nodes}
    return Typical(sizes=sizes, moved=run.moved)


class _Run:
    """The numbers of tensors, in execution order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[str, np.ndarray] = {}
        self.moved: dict[str, float] = {}

    def visit(self, node: Node) -> float:
        """Find a node's numbers; the largest size of them."""
        shape = self._graph.tensors[node.output].shape
        try:
            found = self._run_node(node)
            if found.ndim != 1 + len(shape) or np.isnan(found).any():
                raise NotKnownError
        except NotKnownError:
            found = one_of(shape)
        self._known[node.output] = _short(np.clip(found, -_VAST, _VAST))
        return float(np.abs(found).max())

    def tensor(self, name: str) -> np.ndarray:
        """Return the numbers of a tensor."""
        if name not in self._known:
            self._known[name] = _draw_given(self._graph.tensors[name])
        return self._known[name]

    def _run_node(self, node: Node) -> np.ndarray:
        made = None
        if node.prologue is not None:
            first = node.attrs.get(PROLOGUE_SHAPE, self._graph.tensors[node.inputs[0]].shape)
            made = _short(evaluate(node.prologue, first, self.tensor, {}))
        operator = OPERATORS.get(node.op)
        if operator is not None and operator.typical is not None:
            data = self.tensor(node.inputs[0]) if made is None else made
            run = TypicalRun(graph=self._graph, numbers=self.tensor)
            made = operator.typical(run, node, data)
        elif node.body is not None:
            made = self._evaluate(node, node.body, {})
        else:
            raise NotKnownError
        if node.epilogue is not None:
            more = {Node.RESULT: _short(np.nan_to_num(made, nan=1.0, posinf=_VAST, neginf=-_VAST))}
            made = self._evaluate(node, node.epilogue, more)
        return made

    def _evaluate(self, node: Node, body: Body, more: dict[str, np.ndarray]) -> np.ndarray:
        """Compute an expression; of one tensor of floats, find how far it moves with that, too."""
        tensors, shape = self._graph.tensors, self._graph.tensors[node.output].shape
        made = evaluate(body, shape, self.tensor, more)
        read = {n for n in body.sources.values() if n in more or _is_computed(tensors[n])}
        if len(read) == 1 and not body.reduced and tensors[node.output].is_float:
            (name,) = read
            numbers = more[name] if name in more else self.tensor(name)
            shaken = evaluate(body, shape, self.tensor, {**more, name: numbers * (1 + _ROUNDING)})
            off = np.abs(shaken - made)
            seen = np.isfinite(off)
            largest = np.abs(made[seen]).max(initial=0.0)
            share = float(off[seen].max(initial=0.0) / largest) if largest else 0.0
            self.moved[node.output] = max(share, self.moved.get(node.output, 0.0))
        return made


def _is_computed(tensor: Tensor) -> bool:
    return tensor.value is None and tensor.is_float


def _draw_given(tensor: Tensor) -> np.ndarray:
    """Return the numbers of a constant or an input; what a mask hides by is no number."""
    if tensor.value is not None and tensor.value.dtype.kind in "fiub":
        value = tensor.value[np.newaxis]
        if value.dtype.kind == "f" and value.size and value.min() <= -_HIDING:
            hidden = value <= -_HIDING
            if not np.isfinite(value.min()) or len(np.unique(value[hidden])) == 1:
                value = np.where(hidden, 0.0, value)
        return _short(value)
    if tensor.dtype in _WHOLE:
        return np.reshape(_WHOLE[tensor.dtype], [-1] + [1] * len(tensor.shape))
    return one_of(tensor.shape)


def _short(array: np.ndarray) -> np.ndarray:
    """Return the array with at most so many elements."""
    if array.dtype.kind not in "iub":
        array = array.astype(np.float64)
    while array.size > array.shape[0] * _MOST_ELEMENTS:
        longest = max(range(1, array.ndim), key=lambda axis: array.shape[axis])
        if array.dtype.kind == "f":
            array = array.mean(axis=longest, keepdims=True)
        else:
            array = np.take(array, [array.shape[longest] // 2], axis=longest)
    return array
