"""Products of few vectors of bytes by a constant matrix, by dot products of four.

As `gemv`, with sixteen channels a step where it has four: the matrix is read once, and takes a
quarter of the memory of floats.
"""

from __future__ import annotations

import numpy as np

from adrenoc.base.tvmapi import Expr, cast, dot_products, iconst, lane, load_vector
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import WORDS
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.bytes_access import BytesAccess
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.matmul.gemv import GemvTile, places_of, team_of_block, visit_inputs
from adrenoc.kernels.families.shared.dot_products import SIXTEEN
from adrenoc.kernels.team import plus


def gemv_dot(
    builder: KernelBuilder,
    tile: GemvTile,
    x: BytesAccess,
    weight: Access,
    rest: Access,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit out[p, :] = x[p, :] . weight for each of at most `MAX_PIXELS` places p.

    Shapes:
        x: roles N, H, W of any small extents, C = K
        weight: `pack_rows` of [O, K], flat
        rest: `conv2d_dot.pack_rest`
        out: the same N, H, W, C = O
    """
    places, out_blocks = places_of(out.extents), out.extents.blocks
    steps = -(-x.extents.blocks // WORDS)
    words = min(x.extents.blocks, WORDS)
    team, block = team_of_block(builder, tile, out_blocks)
    sums = builder.registers(len(places), dtype="int32")
    sums.fill(0)
    row = builder.let(block * iconst(WORDS * steps), "wb")

    def add(chosen: list[Expr]) -> None:
        reads = []
        for step in chosen:
            at = builder.let(row + step, "k")
            columns = [
                builder.let(load_vector(weight.buffer, at, j * steps, "uint32"), "w")
                for j in range(words)
            ]
            vectors = [
                builder.let(x.words(iconst(n), step, iconst(h), iconst(w), padded=False), "x")
                for n, h, w in places
            ]
            reads.append((columns, vectors))
        for columns, vectors in reads:
            for p, vector in enumerate(vectors):
                total = sums[p]
                for j, column in enumerate(columns):
                    total = dot_products(column, lane(vector, j), total)
                sums[p] = total

    visit_inputs(builder, tile, team, steps, add)
    values = [sums[p] for p in range(len(places))]
    values = team.fold(builder, values, [plus] * len(places), dtype="int32")
    for p, (n, h, w) in enumerate(places):
        with builder.when(team.store_condition(builder, p)):
            total = values[p] + load_vector(rest.buffer, block, 0, "int32")
            value = builder.let(cast(total, "float32x4"), "total")
            epilogue.write(iconst(n), block, iconst(h), iconst(w), value)


def pack_rows(weight: np.ndarray) -> np.ndarray:
    """Pack whole numbers `[O, K, 1, 1]` as 32-bit words of four inputs, flat.

    The order is [output block, word, sixteen inputs, output channel], so that neighbouring threads
    of a team, which take neighbouring sixteens, read neighbouring vectors.
    """
    outputs, inputs = weight.shape[:2]
    blocks, steps = -(-outputs // LANES), -(-inputs // SIXTEEN)
    padded = np.zeros((blocks * LANES, steps * SIXTEEN), np.int8)
    padded[:outputs, :inputs] = weight[:, :, 0, 0]
    split = padded.reshape(blocks, LANES, steps, WORDS, LANES)
    return np.ascontiguousarray(split.transpose(0, 3, 2, 1, 4)).reshape(-1).view(np.uint32)
