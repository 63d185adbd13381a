"""Loops over as many rows as a number in memory says: `scripts/estimate_networks` counts them."""

import pytest
from fitting.known_extents import KnownExtents

from adrenoc.base.tvmapi import cast, floordiv, iconst, lane, load_texel, minimum
from adrenoc.ir.layout import Memory, OperandSpec
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.target.target import load_target

THREADS, MOST_ROWS, HALF_BYTES, FLOAT_BYTES, LANES = 8, 1000, 2, 4, 4


@pytest.fixture(scope="module")
def rows_kernel() -> tuple[object, object]:
    """A function whose threads go over the rows together, one texel each; and its loop."""
    from adrenoc.base.tvmapi import For

    def spec(count: int, dtype: str) -> OperandSpec:
        return OperandSpec(shape=(count,), dtype=dtype, memory=Memory.PLAIN, layout=None)

    builder = KernelBuilder("rows", compute="float32", limits=load_target("adreno:750").limits)
    there, x = builder.input(spec(1, "int32")), builder.input(spec(1 << 16, "float16"))
    out = builder.output(spec(1 << 20, "float32"))
    member, _, _ = builder.threads(THREADS, 1, 1, work_group=(THREADS, 1, 1), cooperate=True)
    rows = minimum(cast(there.element([iconst(0)]), "int32"), iconst(MOST_ROWS))
    runs = builder.let(floordiv(rows + iconst(THREADS - 1), THREADS), "runs")
    sums = builder.registers(1, dtype="float32")
    sums.fill(0.0)
    loops = []
    with builder.loop(runs, "run", rolled=True) as run:
        sums[0] = sums[0] + load_texel(x.buffer, run * iconst(THREADS) + member)
    out.write_element([member], lane(sums[0], 0))
    func = builder.build("rows")

    def visit(stmt: object) -> None:
        if isinstance(stmt, For):
            loops.append(stmt)

    from tvm_ffi.structural import structural_walk

    structural_walk(func.body, (For, visit))
    return func, loops[0]


@pytest.mark.parametrize(("rows", "runs"), [(0, 0), (1, 1), (100, 13), (5000, 125)])
def test_a_loop_runs_as_often_as_the_number_in_memory_says(rows_kernel, rows, runs):
    func, loop = rows_kernel
    known = KnownExtents(func, rows)
    assert known.extent(loop) == runs
    moved = known.bytes_moved(THREADS)
    assert moved["in1"] == runs * THREADS * LANES * HALF_BYTES
    assert moved["out"] == THREADS * FLOAT_BYTES  # however large the output is
