"""The rule of a product that takes in the layer norm of what it reads (`centred_conv.py`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.families.conv.centred_conv import POINT, centred_conv
from adrenoc.kernels.families.conv.conv_tile import score_tiles
from adrenoc.kernels.families.shared.constant_runs import declare_run, has_texel_weights
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_work import conv_work
from adrenoc.kernels.families.shared.rounding import round_constant
from adrenoc.kernels.families.shared.row_product import CENTRED, read_form
from adrenoc.kernels.weights import blocks, fill_channels, pack_local

KIND = "centred"


def centred_rule(
    context: RuleContext, node: Node, oihw: Callable[[np.ndarray], np.ndarray]
) -> KernelCall:
    """Make the kernel of such a product; `oihw` transposes its matrix to [O, I, 1, 1].

    Its gains are in the weights, and what its offsets come to is a number for each output.
    """
    form, graph = read_form(node), context.graph
    ((name,),) = form.matrices
    gains, offsets = (_floats(graph.tensors[each].value) for each in form.centring)
    work = conv_work(graph, node, POINT, context.options)
    tiles = score_tiles(work, context.limits, context.machine)
    tile = context.choose(node, KIND, tiles, tiles)
    kernel = context.kernel(node, KIND)
    x = kernel.input(node.inputs[0])
    kind = f"{KIND}_by_{form.centring[0]}"

    def gain(matrix: np.ndarray) -> np.ndarray:
        return oihw(gained_matrix(matrix, gains))

    def sum_columns(matrix: np.ndarray) -> np.ndarray:
        stored = round_constant(gain(matrix), context.options.storage_dtype).value
        sums = stored.astype(np.float64).sum(axis=(1, 2, 3))
        both = np.stack([sums, offsets.astype(np.float64) @ matrix.astype(np.float64)])
        return both.astype(np.float32)

    weight = declare_run(
        kernel,
        name,
        f"{kind}_local{tile.packed_as}",
        lambda w: pack_local(w, *tile.packing),
        gain,
        texels=has_texel_weights(work, context.machine),
    )
    columns = kernel.pack_constant(
        name, f"{kind}_columns_{form.centring[1]}", _pack_rows, sum_columns, dtype="float32"
    )
    out, epilogue = kernel.output()
    epsilon = float(node.attrs[CENTRED])
    centred_conv(kernel.builder, tile, x, weight, columns, epsilon, out, epilogue)
    return kernel.call()


def gained_matrix(matrix: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """`[K, N]` with the gain of each input in its row."""
    return _floats(matrix) * _floats(gains).reshape(-1, 1)


def _floats(value: np.ndarray | None) -> np.ndarray:
    return np.asarray(value, dtype=np.float32)


def _pack_rows(rows: np.ndarray) -> np.ndarray:
    """`[R, O]` as `[1, R, O/4, 4]`."""
    whole = blocks(rows.shape[1])
    return fill_channels(rows, len(rows), whole * LANES).reshape(1, len(rows), whole, LANES)
