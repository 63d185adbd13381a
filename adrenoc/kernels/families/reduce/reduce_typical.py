"""What reductions, softmaxes and norms make of data of about one."""

from __future__ import annotations

import math

import numpy as np

from adrenoc.ir.graph import PROLOGUE_SHAPE, Node
from adrenoc.kernels.families.shared.typical import NotKnownError, TypicalRun


def typical_reduction(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Typical results of a reduction, of data that stands for many equal elements.

    A sum counts each element of the data as often as the tensor has such elements."""
    shape = run.graph.tensors[node.inputs[0]].shape
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


def typical_softmax(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Shares of one, or their logarithms."""
    shape = run.graph.tensors[node.inputs[0]].shape
    axis = int(node.attrs["axis"]) % len(shape)
    powers = np.exp(data - data.max(axis=axis + 1, keepdims=True))
    unseen = shape[axis] / data.shape[axis + 1]
    shares = powers / (powers.sum(axis=axis + 1, keepdims=True) * unseen)
    return np.log(shares) if node.op == "log_softmax" else shares


def typical_norm(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Typical results of a norm.

    The data has one pixel, so what is normed over other axes as well is taken to come to one; the
    norm's own factors and offsets then apply."""
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
    stated = [name for name in node.inputs[1:] if run.graph.tensors[name].value is not None]
    constants = [_read_channel_vector(run, name, rank, channel) for name in stated]
    if len(constants) != len(node.inputs) - 1 or len(constants) > 2:
        raise NotKnownError
    if node.attrs.get("scale", True) and constants:
        x = x * constants.pop(0)
    return x + constants[0] if constants else x


def _read_channel_vector(run: TypicalRun, name: str, rank: int, channel: int) -> np.ndarray:
    value = run.graph.tensors[name].value
    if value is None or value.ndim != 1:
        raise NotKnownError
    return value.astype(np.float64).reshape(
        [-1 if a == channel + 1 else 1 for a in range(rank + 1)]
    )
