"""What convolutions make of data of about one: one product of channels with the sums of taps."""

from __future__ import annotations

import math

import numpy as np

from adrenoc.families.shared.typical import (
    TypicalRun,
    middle,
    of_one_sign,
    sums_of_squares,
    sums_of_terms,
    weights_of,
)
from adrenoc.ir.graph import Node


def typical_convolution(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """The sums of a convolution of any rank, transposed ones too, away from borders."""
    layout, letters = (str(node.attrs[k]) for k in ("data_layout", "kernel_layout"))
    transposed, groups = "transpose" in node.op, int(node.attrs["groups"])
    channels = run.graph.tensors[node.inputs[0]].shape[layout.index("C")]
    channel = middle(data, keep=layout.index("C")).reshape(len(data), -1)
    x = np.broadcast_to(channel, (len(data), channels)).reshape(len(data), groups, -1)

    def by_group(sums: np.ndarray) -> np.ndarray:
        """Sums of taps as [group, input, output]; a group's inputs or outputs are stated."""
        matrix = sums if letters.index("I") < letters.index("O") else sums.T
        inputs, outputs = matrix.shape
        if transposed:
            return matrix.reshape(groups, inputs // groups, outputs)
        return matrix.reshape(inputs, groups, outputs // groups).transpose(1, 0, 2)

    weights = weights_of(run, node)
    taps = tuple(a for a, letter in enumerate(letters) if letter not in "OI")
    phases = math.prod(int(s) for s in node.attrs["strides"]) if transposed else 1
    sums = by_group(weights.sum(axis=taps, dtype=np.float64)) / phases
    squares = by_group(sums_of_squares(weights, taps)) / phases
    made = sums_of_terms(
        np.einsum("pgi,gio->pgo", x, sums),
        np.einsum("pgi,gio->pgo", x * x, squares),
        alike=of_one_sign(weights),
    ).reshape(len(data), -1)
    out = str(node.attrs["out_layout"] or layout)
    return made.reshape([len(made)] + [-1 if letter == "C" else 1 for letter in out])
