"""How large the numbers of a network become on data of about one: a run of one pixel.

Each tensor is taken to be the same in all places, so that a convolution is one product of its
channels with the sums of its taps.  That costs one look at each weight, and follows what factors
and signs cannot: weights of one sign make sums that grow with their length, weights of both do not,
and a bias takes off what a norm before it was folded from.  What is not known is taken as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adrenoc.ir.graph import PROLOGUE_SHAPE, Graph, Node, Tensor
from adrenoc.passes.precision.typical_expression import HIDING, NotKnownError, evaluate

_TRIALS = np.array([1.0, -1.0])
"""What the inputs are."""
_BYTES = {"uint8": (128.0, 128.0), "int8": (64.0, -64.0)}
_VAST = 1e300
_MOST_ELEMENTS = 1 << 13
"""Of an array: beyond it, the means along its longest axes are taken."""
_MOST_PRODUCTS = 1 << 19
_ROWS = 1024
"""Of a matrix, looked at together."""
_BEYOND_CHANCE = 4.0
"""Sums of terms of both signs are about the root of the sum of their squares; of this many times
that, they are none by chance: the terms have one sign, nearly."""
_FEW = 24
"""Fewer weights may have one sign by chance."""
_LOOKED_AT = 1 << 28
"""Elements of a convolution's or product's weights: beyond it, a look takes too long."""


def typical_sizes(graph: Graph) -> dict[str, float]:
    """The largest size of each tensor that nodes make."""
    run = _Run(graph)
    with np.errstate(all="ignore"):
        return {node.output: run.visit(node) for node in graph.nodes}


class _Run:
    """The numbers of tensors, in execution order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[str, np.ndarray] = {}

    def visit(self, node: Node) -> float:
        """Find a node's numbers; the largest size of them."""
        shape = self._graph.tensors[node.output].shape
        try:
            found = self._of_node(node)
            if found.ndim != 1 + len(shape) or np.isnan(found).any():
                raise NotKnownError
        except NotKnownError:
            found = _one(shape)
        self._known[node.output] = _short(np.clip(found, -_VAST, _VAST))
        return float(np.abs(found).max())

    def tensor(self, name: str) -> np.ndarray:
        """The numbers of a tensor."""
        if name not in self._known:
            self._known[name] = _given(self._graph.tensors[name])
        return self._known[name]

    def _of_node(self, node: Node) -> np.ndarray:
        shape, made = self._graph.tensors[node.output].shape, None
        if node.prologue is not None:
            first = node.attrs.get(PROLOGUE_SHAPE, self._graph.tensors[node.inputs[0]].shape)
            made = _short(evaluate(node.prologue, first, self.tensor, {}))
        if node.op in _OPERATORS:
            data = self.tensor(node.inputs[0]) if made is None else made
            made = _OPERATORS[node.op](self, node, data)
        elif node.body is not None:
            made = evaluate(node.body, shape, self.tensor, {})
        else:
            raise NotKnownError
        if node.epilogue is not None:
            more = {Node.RESULT: _short(np.nan_to_num(made, nan=1.0, posinf=_VAST, neginf=-_VAST))}
            made = evaluate(node.epilogue, shape, self.tensor, more)
        return made

    # Operators

    def _convolution(self, node: Node, data: np.ndarray) -> np.ndarray:
        layout, letters = (str(node.attrs[k]) for k in ("data_layout", "kernel_layout"))
        transposed, groups = "transpose" in node.op, int(node.attrs["groups"])
        channels = self._graph.tensors[node.inputs[0]].shape[layout.index("C")]
        middle = _middle(data, keep=layout.index("C")).reshape(len(data), -1)
        x = np.broadcast_to(middle, (len(data), channels)).reshape(len(data), groups, -1)

        def by_group(sums: np.ndarray) -> np.ndarray:
            """Sums of taps as [group, input, output]; a group's inputs or outputs are stated."""
            matrix = sums if letters.index("I") < letters.index("O") else sums.T
            inputs, outputs = matrix.shape
            if transposed:
                return matrix.reshape(groups, inputs // groups, outputs)
            return matrix.reshape(inputs, groups, outputs // groups).transpose(1, 0, 2)

        weights = self._weights(node)
        taps = tuple(a for a, letter in enumerate(letters) if letter not in "OI")
        phases = math.prod(int(s) for s in node.attrs["strides"]) if transposed else 1
        sums = by_group(weights.sum(axis=taps, dtype=np.float64)) / phases
        squares = by_group(_sums_of_squares(weights, taps)) / phases
        made = _sums_of_terms(
            np.einsum("pgi,gio->pgo", x, sums),
            np.einsum("pgi,gio->pgo", x * x, squares),
            alike=_of_one_sign(weights),
        ).reshape(len(data), -1)
        out = str(node.attrs["out_layout"] or layout)
        return made.reshape([len(made)] + [-1 if letter == "C" else 1 for letter in out])

    def _product(self, node: Node, data: np.ndarray) -> np.ndarray:
        terms = self._graph.tensors[node.inputs[0]].shape[-1]
        if self._graph.tensors[node.inputs[1]].value is None:
            return _of_matrices(data, self.tensor(node.inputs[1]), terms)
        matrix = self._weights(node)
        if matrix.ndim != 2 or data.ndim < 2:
            raise NotKnownError
        rows = _middle(data, keep=data.ndim - 2).reshape(len(data), -1)
        rows = np.broadcast_to(rows, (len(data), terms)).astype(np.float32)
        squares = np.zeros((len(data), matrix.shape[1]))
        for first in range(0, terms, _ROWS):
            part = matrix[first : first + _ROWS].astype(np.float32)
            squares += np.square(rows[:, first : first + _ROWS]) @ np.square(part)
        sums = (rows @ matrix).astype(np.float64)
        made = _sums_of_terms(sums, squares, alike=_of_one_sign(matrix))
        return made.reshape(len(made), *[1] * (data.ndim - 2), -1)

    def _weights(self, node: Node) -> np.ndarray:
        value = self._graph.tensors[node.inputs[1]].value
        if value is None or value.size > _LOOKED_AT or value.dtype.kind not in "fiu":
            raise NotKnownError
        return value

    def _pooled(self, node: Node, data: np.ndarray) -> np.ndarray:
        layout = str(node.attrs["layout"])
        return _middle(data, keep=layout.index("C"), also=layout.find("N"))

    def _reduced(self, node: Node, data: np.ndarray) -> np.ndarray:
        shape = self._graph.tensors[node.inputs[0]].shape
        if node.prologue is not None:
            shape = node.attrs.get(PROLOGUE_SHAPE, shape)
        stated = node.attrs["axis"]
        axes = range(len(shape)) if stated is None else [int(a) % len(shape) for a in stated]
        over = tuple(a + 1 for a in axes)
        keep = bool(node.attrs["keepdims"])
        if node.op in ("max", "min", "mean"):
            return np.asarray(getattr(np, node.op)(data, axis=over, keepdims=keep))
        unseen = math.prod(shape[a] for a in axes) / math.prod(data.shape[a] for a in over)
        if node.op == "sum":
            return np.asarray(data.sum(axis=over, keepdims=keep) * unseen)
        return np.asarray(np.prod(data, axis=over, keepdims=keep) ** unseen)

    def _softmax(self, node: Node, data: np.ndarray) -> np.ndarray:
        shape = self._graph.tensors[node.inputs[0]].shape
        axis = int(node.attrs["axis"]) % len(shape)
        powers = np.exp(data - data.max(axis=axis + 1, keepdims=True))
        unseen = shape[axis] / data.shape[axis + 1]
        shares = powers / (powers.sum(axis=axis + 1, keepdims=True) * unseen)
        return np.log(shares) if node.op == "log_softmax" else shares

    def _normed(self, node: Node, data: np.ndarray) -> np.ndarray:
        """What is normed over axes that are not looked at comes to one, times its factor."""
        rank = data.ndim - 1
        channel = int(node.attrs.get("channel_axis", -1)) % rank
        axes = [int(a) % rank for a in node.attrs["axes"]]
        if node.op in ("layer_norm", "rms_norm"):
            channel = axes[-1]
        x = data
        if node.op in ("layer_norm", "rms_norm") and len(axes) == 1:
            over = tuple(a + 1 for a in axes)
            if node.op == "layer_norm":
                x = x - x.mean(axis=over, keepdims=True)
            deviation = np.sqrt(np.mean(x * x, axis=over, keepdims=True))
            x = np.where(deviation > 1e-6 * np.abs(data), x / deviation, np.sign(data))
        else:
            x = np.sign(data)
        stated = [name for name in node.inputs[1:] if self._graph.tensors[name].value is not None]
        constants = [self._along(name, rank, channel) for name in stated]
        if len(constants) != len(node.inputs) - 1 or len(constants) > 2:
            raise NotKnownError
        if node.attrs.get("scale", True) and constants:
            x = x * constants.pop(0)
        return x + constants[0] if constants else x

    def _along(self, name: str, rank: int, channel: int) -> np.ndarray:
        value = self._graph.tensors[name].value
        if value is None or value.ndim != 1:
            raise NotKnownError
        return value.astype(np.float64).reshape(
            [-1 if a == channel + 1 else 1 for a in range(rank + 1)]
        )

    def _attended(self, node: Node, _data: np.ndarray) -> np.ndarray:
        """A mean of values: no larger than the largest."""
        sources = tuple(node.parts["v"].sources.values())
        largest = max(float(np.abs(self.tensor(name)).max()) for name in sources)
        shape = self._graph.tensors[node.output].shape
        return _one(shape) * largest * abs(float(node.attrs["value_scale"]))


def _given(tensor: Tensor) -> np.ndarray:
    """The numbers of a constant or an input; what a mask hides by is no number."""
    if tensor.value is not None and tensor.value.dtype.kind in "fiub":
        value = tensor.value[np.newaxis]
        if value.dtype.kind == "f" and value.size and value.min() <= -HIDING:
            hidden = value <= -HIDING
            if not np.isfinite(value.min()) or len(np.unique(value[hidden])) == 1:
                value = np.where(hidden, 0.0, value)
        return _short(value)
    shape = [-1] + [1] * len(tensor.shape)
    if tensor.dtype in _BYTES:
        return np.reshape(_BYTES[tensor.dtype], shape)
    return _TRIALS.reshape(shape)


def _one(shape: tuple[int, ...]) -> np.ndarray:
    return _TRIALS.reshape([-1] + [1] * len(shape))


def _middle(array: np.ndarray, *, keep: int, also: int = -1) -> np.ndarray:
    """The array, with one element alone of the axes other than those."""
    held = (0, keep + 1, also + 1) if also >= 0 else (0, keep + 1)
    return array[
        tuple(
            slice(None) if axis in held else slice(extent // 2, extent // 2 + 1)
            for axis, extent in enumerate(array.shape)
        )
    ]


def _short(array: np.ndarray) -> np.ndarray:
    """The array with at most so many elements."""
    if array.dtype.kind not in "iub":
        array = array.astype(np.float64)
    while array.size > array.shape[0] * _MOST_ELEMENTS:
        longest = max(range(1, array.ndim), key=lambda axis: array.shape[axis])
        if array.dtype.kind == "f":
            array = array.mean(axis=longest, keepdims=True)
        else:
            array = np.take(array, [array.shape[longest] // 2], axis=longest)
    return array


def _of_matrices(left: np.ndarray, right: np.ndarray, terms: int) -> np.ndarray:
    """The product of two matrices, or stacks of them, that are both computed."""
    if min(left.ndim, right.ndim) < 3:
        raise NotKnownError
    if left.shape[-1] == right.shape[-2] == 1:
        return left * right * terms
    rows = left if left.shape[-1] > 1 else np.repeat(left, terms, axis=-1)
    columns = right if right.shape[-2] > 1 else np.repeat(right, terms, axis=-2)
    if rows.size * columns.shape[-1] > _MOST_PRODUCTS:
        rows = _middle(rows, keep=rows.ndim - 2)
    rank = max(rows.ndim, columns.ndim)
    return np.asarray(np.matmul(_ranked(rows, rank), _ranked(columns, rank)))


def _ranked(array: np.ndarray, rank: int) -> np.ndarray:
    return array.reshape(array.shape[0], *[1] * (rank - array.ndim), *array.shape[1:])


def _sums_of_squares(weights: np.ndarray, taps: tuple[int, ...]) -> np.ndarray:
    """Over the taps of each pair of channels, without a second array of that size."""
    axes = list(range(weights.ndim))
    left = [a for a in axes if a not in taps]
    return np.asarray(np.einsum(weights, axes, weights, axes, left), np.float64)


def _sums_of_terms(sums: np.ndarray, squares: np.ndarray, *, alike: bool) -> np.ndarray:
    """Sums of terms that are `alike`, or no larger than terms of both signs make them."""
    if alike:
        return sums
    by_chance = np.sqrt(squares)
    return np.where(
        np.abs(sums) > _BEYOND_CHANCE * by_chance, sums, np.clip(sums, -by_chance, by_chance)
    )


def _of_one_sign(weights: np.ndarray) -> bool:
    first = weights.reshape(-1)[:_ROWS]
    if first.min() < 0 < first.max() or weights.size < _FEW:
        return False
    return bool(weights.min() >= 0 or weights.max() <= 0)


_OPERATORS: Mapping[str, Callable[[_Run, Node, np.ndarray], Any]] = {
    "conv1d": _Run._convolution,
    "conv2d": _Run._convolution,
    "conv1d_transpose": _Run._convolution,
    "conv2d_transpose": _Run._convolution,
    "matmul": _Run._product,
    "avg_pool1d": _Run._pooled,
    "avg_pool2d": _Run._pooled,
    "adaptive_avg_pool2d": _Run._pooled,
    "max_pool1d": _Run._pooled,
    "max_pool2d": _Run._pooled,
    "max": _Run._reduced,
    "min": _Run._reduced,
    "mean": _Run._reduced,
    "sum": _Run._reduced,
    "prod": _Run._reduced,
    "softmax": _Run._softmax,
    "log_softmax": _Run._softmax,
    "layer_norm": _Run._normed,
    "rms_norm": _Run._normed,
    "group_norm": _Run._normed,
    "instance_norm": _Run._normed,
    "attention": _Run._attended,
}
