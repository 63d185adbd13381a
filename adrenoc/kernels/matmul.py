"""The product of two activations, batched."""

from __future__ import annotations

from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.layout import LANES
from adrenoc.tvmapi import floordiv, floormod, iconst, lane, splat


def matmul(builder: KernelBuilder, a: Access, b: Access, out: Access, epilogue: Epilogue) -> None:
    """Emit out[.., m, :] = sum over k of a[.., m, k] * b[.., k, :].

    One thread makes `rows` rows of one block of four columns.

    Shapes:
        a: roles N and H batch, W = m, C = k
        b: roles N and H batch (or extent 1), W = k, C = columns
        out: roles N and H batch, W = m, C = columns
    """
    e, depth = out.extents, a.extents.c
    rows = 4 if e.w >= 4 else 1
    gx, gy, gz = builder.threads(-(-e.w // rows), e.h, e.n * e.blocks)
    n, block = (iconst(0), gz) if e.n == 1 else (floordiv(gz, e.blocks), floormod(gz, e.blocks))
    a_n, a_h = _batch(a, n, gy)
    b_n, b_h = _batch(b, n, gy)
    first = builder.let(gx * iconst(rows), "m")
    sums = builder.registers(rows)
    sums.fill(0.0)
    with builder.loop(a.extents.blocks, "k") as kb:
        left = [
            builder.let(a.padded_texel(a_n, kb, a_h, first + iconst(m)), "a") for m in range(rows)
        ]
        # Beyond the last k the lanes of `a` are zero, and the row of `b` is read as zero too.
        for c in range(min(LANES, depth)):
            row = b.padded_texel(b_n, block, b_h, kb * iconst(LANES) + iconst(c))
            right = builder.let(row, "b")
            for m in range(rows):
                sums[m] = sums[m] + splat(lane(left[m], c)) * right
    for m in range(rows):
        inside = first + iconst(m) < iconst(e.w) if e.w % rows else None
        with builder.when(inside):
            epilogue.write(n, block, gy, first + iconst(m), sums[m])


def _batch(operand: Access, n: object, h: object) -> tuple[object, object]:
    """Batch coordinates of an operand, whose extents of one are broadcast."""
    e = operand.extents
    return (iconst(0) if e.n == 1 else n), (iconst(0) if e.h == 1 else h)
