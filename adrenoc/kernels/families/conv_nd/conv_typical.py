"""What convolutions make of data of about one: one product of channels with the sums of taps."""

from __future__ import annotations

import math

import numpy as np

from adrenoc.ir.graph import Node
from adrenoc.kernels.families.conv_nd.conv_channels import channel_weights
from adrenoc.kernels.families.shared.typical import (
    TypicalRun,
    have_one_sign,
    middle,
    sums_of_squares,
    sums_of_terms,
    weights_of,
)


def typical_convolution(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Return the sums of a convolution of any rank, transposed ones too, away from borders."""
    layout, by_channel = str(node.attrs["data_layout"]), channel_weights(run.graph, node)
    letters, groups, by_group = by_channel.letters, by_channel.groups, by_channel.split_by_group
    channels = run.graph.tensors[node.inputs[0]].shape[layout.index("C")]
    channel = middle(data, keep=layout.index("C")).reshape(len(data), -1)
    x = np.broadcast_to(channel, (len(data), channels)).reshape(len(data), groups, -1)
    weights = weights_of(run, node)
    taps = tuple(a for a, letter in enumerate(letters) if letter not in "OI")
    phases = math.prod(int(s) for s in node.attrs["strides"]) if by_channel.transposed else 1
    sums = by_group(weights.sum(axis=taps, dtype=np.float64)) / phases
    squares = by_group(sums_of_squares(weights, taps)) / phases
    made = sums_of_terms(
        np.einsum("pgi,gio->pgo", x, sums),
        np.einsum("pgi,gio->pgo", x * x, squares),
        alike=have_one_sign(weights),
    ).reshape(len(data), -1)
    shape = [1] * len(layout)
    shape[by_channel.axis] = -1
    return made.reshape([len(made), *shape])
