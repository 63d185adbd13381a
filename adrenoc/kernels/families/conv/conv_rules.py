"""The schedules of a convolution: every route of its weights, and what each costs.

The model counts, for one wave, the clocks that each pipe of a micro shader processor is busy:
arithmetic, texture reads, buffer loads, local memory.  The busiest pipe gives the throughput;
registers give how many waves hide each other's latency.

Source: shared rate tables of the GPUs (`targets/gpu/*.toml`); the same model as the analyser
that `scripts/estimate_networks` asks, so that its figures can be held against each other.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

import numpy as np

from adrenoc.base.tvmapi import Expr, iconst
from adrenoc.ir.graph import Node
from adrenoc.ir.half import round_constant
from adrenoc.ir.layout import LANES, WORDS
from adrenoc.kernels.access import Access, BytesAccess, PlainAccess
from adrenoc.kernels.families.conv.built_in_conv import (
    constant_candidates,
    constant_clocks,
    conv2d_constants,
    conv2d_matrices,
    matrix_candidates,
    matrix_clocks,
    pack_steps,
    pack_tiles,
)
from adrenoc.kernels.families.conv.centred_conv import CentredConv
from adrenoc.kernels.families.conv.conv2d import conv2d, texture_candidates, texture_clocks
from adrenoc.kernels.families.conv.conv_tile_local import local_candidates, local_clocks
from adrenoc.kernels.families.conv.local_conv import WIDEST_ROW, WIDEST_ROW_OF_TEXELS, conv2d_local
from adrenoc.kernels.families.conv.local_inputs import DotConv, ImageConv, Normalise, pack_words
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import (
    POINT,
    ConvGeometry,
    ConvTile,
    ConvWork,
    Oihw,
    Route,
    conv_work,
)
from adrenoc.kernels.families.shared.conv_weights import (
    WORD_BYTES,
    declare_run,
    has_texel_weights,
    pack_uniform,
    split_bias,
    suits_dot,
)
from adrenoc.kernels.families.shared.machine import (
    MOST_KNOWN,
    Column,
    CostModel,
    Machine,
    Scored,
    TileTables,
)
from adrenoc.kernels.families.shared.row_product import CENTRED, read_form
from adrenoc.kernels.fused_bodies import Finished
from adrenoc.kernels.weights import blocks, fill_channels, pack_conv, pack_local
from adrenoc.target.gpu import Limits

MOST_TILES = 32
"""Tiles that are tried again for a convolution with a prologue."""


def candidates(work: ConvWork, limits: Limits, machine: Machine) -> TileTables[ConvTile]:
    """Return the tiles that suit the extents of a convolution."""
    costs = machine.cost
    tables = [
        constant_candidates(work, limits, machine),
        matrix_candidates(work, limits, machine),
    ]
    if work.geometry.groups == 1 and work.geometry.kernel[1] <= WIDEST_ROW_OF_TEXELS:
        tables.append(local_candidates(work, limits, costs))
    if work.image is None and not work.centred:
        tables.append(texture_candidates(work, limits, costs))
    return TileTables(*tables)


@lru_cache(maxsize=MOST_KNOWN)
def score_tiles(work: ConvWork, limits: Limits, machine: Machine) -> Scored[ConvTile]:
    """Return the tiles that suit a convolution, each with its estimate."""
    return Scored(
        lambda: candidates(work, limits, machine),
        lambda tile: estimate_clocks(work, tile, machine),
    )


def conv_clocks(_node: Node, work: ConvWork, costs: CostModel) -> float:
    """Return the least estimate of a convolution's work by the tiles that suit it."""
    return score_tiles(work, costs.limits, costs.machine).least


def least_clocks(work: ConvWork, limits: Limits, machine: Machine) -> float:
    """Return the least estimate of a convolution as one kernel; infinite where no tile suits it.

    With a prologue, of the tiles that suit it best without: what it costs differs little.
    """
    plain = replace(work, texel_work=0, block_texels=0)
    tiles = _best_tiles(plain, limits, machine)
    return min((estimate_clocks(work, tile, machine) for tile in tiles), default=math.inf)


@lru_cache(maxsize=512)
def _best_tiles(work: ConvWork, limits: Limits, machine: Machine) -> Sequence[ConvTile]:
    """Return the tiles of the least estimates; a network repeats the same few convolutions."""
    return tuple(islice(score_tiles(work, limits, machine).rank(), MOST_TILES))


def estimate_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> Column:
    """Return clocks of the whole convolution on the target."""
    if tile.route is Route.CONSTANTS:
        return constant_clocks(work, tile, machine)
    if tile.route is Route.MATRICES:
        return matrix_clocks(work, tile, machine)
    clocks = local_clocks if tile.route is Route.LOCAL else texture_clocks
    return clocks(work, tile, machine)


def local_weights(
    kernel: NodeKernel,
    name: str,
    kind: str,
    tile: ConvTile,
    oihw: Oihw,
    *,
    texels: bool,
) -> Access:
    """Declare a constant that `oihw` transposes to OIHW: as texels, or in a flat buffer."""
    kind = f"{kind}_local{tile.packed_as}"
    return declare_run(
        kernel, name, kind, lambda w: pack_local(oihw(w), *tile.packing), texels=texels
    )


def no_dot_conv(geometry: ConvGeometry) -> str:
    """Return why a dense convolution of this geometry has no kernel of dot products, if so."""
    if geometry.groups == 1 and geometry.kernel[1] <= WIDEST_ROW:
        return ""
    return f"{geometry.groups} groups, {geometry.kernel[1]} taps a row"


def dot_conv(
    context: RuleContext,
    node: Node,
    family: str,
    geometry: ConvGeometry,
    work: ConvWork,
    oihw: Oihw,
) -> KernelCall:
    """Make the kernel of a convolution of integers that multiplies four bytes an instruction.

    The node's first input is convolved with its second, which `oihw` transposes to OIHW."""
    x_name, weight_name = node.inputs[:2]
    spec = context.graph.operand(x_name)
    blocks = spec.extents.blocks
    # A read gives sixteen channels as four words: as a float texel gives four channels.
    machine = context.machine
    cost = machine.cost.conv_dot
    words = replace(
        work,
        in_blocks=-(-blocks // WORDS),
        channels=min(blocks, WORDS),
        storage_bytes=WORD_BYTES,
        half=False,
        texel_work=cost.load_work + (cost.edge_work if geometry.kernel != (1, 1) else 0),
        words=context.limits.dot_instructions,
    )
    tile = context.search(node, f"{family}_dot", words, local_candidates, local_clocks)
    context.byte_costs.add(
        local_clocks(words, tile, machine), score_tiles(work, context.limits, machine).least
    )
    bias = split_bias(context.graph, node, oihw)
    kernel = context.kernel(bias.node, f"{family}_dot")
    x = kernel.input(x_name)
    if not isinstance(x, BytesAccess):
        raise ValueError(f"{x_name} does not lie in bytes")
    weight = kernel.flat(
        weight_name,
        f"{family}_words{tile.packed_as}",
        lambda w: pack_words(w, *tile.packing),
        oihw,
        "float32",
    )
    rest = bias.operand(kernel, family, spec.low, oihw)
    conv = DotConv(kernel, geometry, tile, x, weight)
    conv.bytes, conv.rest = x, rest
    conv.emit()
    return kernel.call()


def dense_conv(
    context: RuleContext,
    node: Node,
    family: str,
    geometry: ConvGeometry,
    oihw: Oihw,
) -> KernelCall:
    """Make the kernel of a convolution whose outputs read all input channels of their group.

    The node's first input is convolved with its second, which `oihw` transposes to OIHW."""
    weight_name = node.inputs[1]
    work = conv_work(context.graph, node, geometry, context.options)
    if suits_dot(context, node, oihw, no_dot_conv(geometry)):
        return dot_conv(context, node, family, geometry, work, oihw)
    tiles = score_tiles(work, context.limits, context.machine)
    tile = context.choose(node, family, tiles, tiles)
    kernel = context.kernel(node, family, half=work.half)
    x = kernel.input_or_prologue()
    if tile.route is Route.CONSTANTS:
        tell_trial(kernel, "weights in the constant file", "a copy in local memory")
        kind = f"{family}_steps{tile.out_blocks}x{tile.unroll}"
        weight = kernel.flat(weight_name, kind, lambda w: pack_steps(oihw(w), tile))
        return conv2d_constants(kernel, work, tile, x, weight)
    if tile.route is Route.MATRICES:
        tell_trial(kernel, "tiles by matrix units", "tiles that threads make")
        kind = f"{family}_tiles{tile.out_blocks}"
        weight = kernel.flat(weight_name, kind, lambda w: pack_tiles(oihw(w), tile))
        return conv2d_matrices(kernel, tile, x, weight)
    if tile.route is Route.TEXTURE:
        kind, groups = f"{family}{geometry.groups}", geometry.groups
        weight = kernel.pack_constant(weight_name, kind, lambda w: pack_conv(oihw(w), groups))
    elif tile.route is Route.LOCAL:
        as_texels = has_texel_weights(work, context.machine)
        weight = local_weights(kernel, weight_name, family, tile, oihw, texels=as_texels)
    else:
        kind = f"{family}_uniform{tile.out_blocks}"
        weight = kernel.flat(weight_name, kind, lambda w: pack_uniform(oihw(w), tile.out_blocks))
    rows, image = work.image_rows(tile.pixels), kernel.accesses[node.inputs[0]]
    if rows is not None and isinstance(image, PlainAccess):
        normalise = _normalise(kernel, image) if node.prologue else None
        ImageConv(kernel, geometry, tile, image, weight, rows, normalise).emit()
        return kernel.call()
    make = conv2d_local if tile.route is Route.LOCAL else conv2d
    return make(kernel, geometry, tile, x, weight)


def tell_trial(kernel: NodeKernel, taken: str, instead: str) -> None:
    """Log what the runtime decides on the device."""
    reason = f"estimated the fastest; where the runtime's trial on the device fails: {instead}"
    kernel.context.log.add(kernel.node.name, taken, reason)


def _normalise(kernel: NodeKernel, image: PlainAccess) -> Normalise:
    """Return what the prologue makes of a pixel of an image."""
    node = kernel.node
    finished = Finished(kernel.builder, node.prologue, kernel.accesses, image.spec)

    def normalise(n: Expr, row: Expr, column: Expr, texel: Expr) -> Expr:
        return finished.value(n, iconst(0), row, column, texel, {node.inputs[0]: texel})

    return normalise


KIND = "centred"


def centred_rule(context: RuleContext, node: Node, oihw: Oihw) -> KernelCall:
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
    CentredConv(kernel, tile, x, weight, columns, float(node.attrs[CENTRED])).emit()
    return kernel.call()


def gained_matrix(matrix: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """Return `[K, N]` with the gain of each input in its row."""
    return _floats(matrix) * _floats(gains).reshape(-1, 1)


def _floats(value: np.ndarray | None) -> np.ndarray:
    return np.asarray(value, dtype=np.float32)


def _pack_rows(rows: np.ndarray) -> np.ndarray:
    """Return `[R, O]` as `[1, R, O/4, 4]`."""
    whole = blocks(rows.shape[1])
    return fill_channels(rows, len(rows), whole * LANES).reshape(1, len(rows), whole, LANES)
