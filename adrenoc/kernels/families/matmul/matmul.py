"""The product of two activations, batched."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst, lane, minimum, splat
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.runs import Runs
from adrenoc.kernels.sums import add_products, adds_in_runs, total_dtype


@dataclass(frozen=True, kw_only=True)
class MatmulTile:
    """A thread makes `rows` rows of `blocks` blocks of four columns."""

    rows: int
    blocks: int
    work_group: tuple[int, int, int]


def matmul(
    builder: KernelBuilder, tile: MatmulTile, a: Access, b: Access, out: Access, epilogue: Epilogue
) -> None:
    """Emit out[.., m, :] = sum over k of a[.., m, k] * b[.., k, :].

    Shapes:
        a: roles N and H batch, W = m, C = k
        b: roles N and H batch (or extent 1), W = k, C = columns
        out: roles N and H batch, W = m, C = columns
    """
    e, depth, rows, blocks = out.extents, a.extents.c, tile.rows, tile.blocks
    columns = -(-e.blocks // blocks)
    gx, gy, gz = builder.threads(-(-e.w // rows), e.h, e.n * columns, work_group=tile.work_group)
    n, group = (iconst(0), gz) if e.n == 1 else (floordiv(gz, columns), floormod(gz, columns))
    a_n, a_h = _batch(a, n, gy)
    b_n, b_h = _batch(b, n, gy)
    first = builder.let(gx * iconst(rows), "m") if rows > 1 else gx
    first_block = builder.let(group * iconst(blocks), "block") if blocks > 1 else group
    sums = builder.registers(rows * blocks, dtype=total_dtype(builder, depth))
    sums.fill(0.0)
    several = adds_in_runs(out, depth)
    runs = Runs(builder, sums, range(rows * blocks), depth, several=several)

    def multiply(kb: Expr) -> None:
        left = [
            builder.let(a.padded_texel(a_n, kb, a_h, first + iconst(m)), "a") for m in range(rows)
        ]
        # Beyond the last k the lanes of `a` are zero, and the row of `b` is read as zero too.
        right = [
            [
                builder.let(b.padded_texel(b_n, at, b_h, kb * iconst(LANES) + iconst(c)), "b")
                for c in range(min(LANES, depth))
            ]
            for at in _existing(builder, first_block, blocks, b.extents.blocks)
        ]
        for block, texels in enumerate(right):
            for m, texel in enumerate(left):
                products = [splat(lane(texel, c)) * row for c, row in enumerate(texels)]
                at = block * rows + m
                runs[at] = add_products(builder, runs[at], products)

    runs.loop(a.extents.blocks, LANES, "k", multiply)
    for some_blocks, some_rows in epilogue.parts(blocks, rows):
        for block, m in product(some_blocks, some_rows):
            column = first_block + iconst(block) if block else first_block
            row = first + iconst(m)
            conditions = [row < iconst(e.w)] if e.w % rows and m else []
            if e.blocks % blocks and block:
                conditions.append(column < iconst(e.blocks))
            inside = conditions[0] & conditions[1] if len(conditions) > 1 else None
            with builder.when(inside if inside is not None else next(iter(conditions), None)):
                epilogue.write(n, builder.let(column, "column"), gy, row, sums[block * rows + m])


def _existing(builder: KernelBuilder, first: Expr, count: int, blocks: int) -> list[Expr]:
    """Blocks from `first` on, the last one instead of those behind it."""
    if count == 1:
        return [first]
    last = iconst(blocks - 1)
    return [
        builder.let(minimum(first + iconst(i), last) if blocks % count else first + iconst(i), "o")
        for i in range(count)
    ]


def _batch(operand: Access, n: Expr, h: Expr) -> tuple[Expr, Expr]:
    """Batch coordinates of an operand, whose extents of one are broadcast."""
    e = operand.extents
    return (iconst(0) if e.n == 1 else n), (iconst(0) if e.h == 1 else h)
