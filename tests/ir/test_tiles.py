"""Which tiles kernels take, what their local memory holds, and how often their loops run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from fitting.known_extents import KnownExtents

from adrenoc.base.decision import DecisionLog
from adrenoc.base.reporter import SilentReporter
from adrenoc.base.tvmapi import cast, floordiv, iconst, lane, load_texel, minimum
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.compile.steps import graph_of
from adrenoc.ir.layout import Memory, OperandSpec
from adrenoc.ir.options import resolve_options
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.cache.operator import (
    CachedWork,
    count_splits,
    estimate_step_clocks,
    step_candidates,
)
from adrenoc.kernels.families.n_bits.n_bits import (
    NBitsTile,
    NBitsWork,
)
from adrenoc.kernels.families.n_bits.n_bits import (
    candidates as n_bits_candidates,
)
from adrenoc.kernels.families.n_bits.n_bits import (
    estimate_clocks as n_bits_clocks,
)
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.winograd.winograd import Tiling, winograd
from adrenoc.passes.fuse.split_winograd import MOST, WinogradWay, choose_within_budget
from adrenoc.target.target import load_target
from tests.decided import slow_host
from tests.ir.planning import run_until
from tests.models import graph, write

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


ROWS, QUARTER = 4096, 1024
HEADS = {"qwen3": (8, 2, 128), "llama-3.2-1b": (8, 4, 64), "smollm2-135m": (3, 3, 64)}
"""Heads of keys, query heads for each, numbers of a head."""


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("gpu", ["adreno:660", "adreno:750"])
def test_no_thread_is_idle_in_a_cache_that_is_filled_by_a_quarter(gpu, heads):
    """With 256 threads half of them had no row: 1,000 tokens took twice as long on a 750."""
    kept, group, head = HEADS[heads]
    target = load_target(gpu)
    machine = Machine.from_performance(target.performance, target.cost)
    splits = count_splits(kept, ROWS, machine)
    work = CachedWork(
        kept=kept, group=group, blocks=head // 4, rows=ROWS, splits=splits, element_bytes=2.0
    )
    tile = min(
        step_candidates(work, target.limits, machine.cost),
        key=lambda tile: estimate_step_clocks(work, tile, machine, target.limits),
    )
    assert tile.threads <= QUARTER // splits


@pytest.mark.parametrize("gpu", ["adreno:750", "adreno:830"])
def test_queries_of_wide_heads_stay_in_registers(gpu):
    """Four heads of 256, as Gemma 3 has them, took four times as long, for they were spilled."""
    target = load_target(gpu)
    machine = Machine.from_performance(target.performance, target.cost)
    work = CachedWork(
        kept=1,
        group=4,
        blocks=64,
        rows=ROWS,
        splits=count_splits(1, ROWS, machine),
        element_bytes=2.0,
    )
    tile = min(
        step_candidates(work, target.limits, machine.cost),
        key=lambda tile: estimate_step_clocks(work, tile, machine, target.limits),
    )
    assert 4 * 64 // tile.lanes <= machine.registers / 2


def _work(tokens: int) -> NBitsWork:
    return NBitsWork(
        tokens=tokens, steps=256, word_inputs=8, out_blocks=512, storage_bytes=2, zeros=False
    )


@pytest.mark.parametrize("gpu", ["660", "750"])
@pytest.mark.parametrize("tokens", [4, 8])
def test_teams_that_fold_many_sums_are_small(gpu, tokens):
    """Each member more takes every sum through local memory once more: it would be waited for."""
    target = load_target(f"adreno:{gpu}")
    machine = Machine.from_performance(target.performance, target.cost)
    work = _work(tokens)

    def clocks(tile: NBitsTile) -> float:
        return n_bits_clocks(work, tile, machine)

    tiles = list(n_bits_candidates(work, target.limits, target.cost))
    best = min(tiles, key=clocks)
    widest = [tile for tile in tiles if tile.splits == 64]
    assert best.splits < 64
    assert clocks(best) < 0.99 * min(map(clocks, widest))


LAYERS = 6
CHANNELS = 64


def _chain() -> onnx.ModelProto:
    """3x3 convolutions that the algorithm wins at, one behind the other."""
    random = np.random.default_rng(0)
    shape = (CHANNELS, CHANNELS, 3, 3)
    weights = {f"w{i}": random.normal(0, 0.04, shape).astype(np.float32) for i in range(LAYERS)}
    for name, shape in (("u", (CHANNELS, 3, 1, 1)), ("v", (8, CHANNELS, 1, 1))):
        weights[name] = random.normal(0, 0.1, shape).astype(np.float32)
    nodes = [f"t{i + 1} = Conv <pads = [1, 1, 1, 1]>(t{i}, w{i})" for i in range(LAYERS)]
    nodes = ["t0 = Conv(x, u)", *nodes, f"y = Conv(t{LAYERS}, v)"]
    return graph(" ".join(nodes), {"x": [1, 3, 112, 112]}, ["y"], weights)


def _by_winograd(folder: Path, preset: str) -> tuple[int, list[str]]:
    """How many of them go by the algorithm, and why others do not."""
    model = write(_chain(), folder)
    state = run_until("split_winograd", model, "adreno:750", preset=preset)
    count = sum(node.op.startswith("winograd_") for node in graph_of(state).nodes)
    return count, [d.reason for d in state.log if d.taken == "not by Winograd's algorithm"]


def test_mixed_takes_what_its_rounding_allows_and_says_what_it_leaves(tmp_path):
    count, left = _by_winograd(tmp_path, "mixed")
    assert 0 < count < LAYERS
    assert len(left) == LAYERS - count
    assert all("it would save" in reason and f"beyond {MOST}" in reason for reason in left)


def test_floats_take_all(tmp_path):
    assert _by_winograd(tmp_path, "fp32") == (LAYERS, [])


def test_what_saves_most_is_taken_first(tmp_path):
    target = load_target("adreno:750")
    options = resolve_options(target, preset="mixed").options
    state = State(model=write(_chain(), tmp_path), target=target, options=options)
    state, _ = run_stages(state, reporter=SilentReporter(), stop_after="fuse_depthwise")
    placed = graph_of(state)
    names = [node.output for node in placed.nodes if node.op == "conv2d"][1:-1]
    way = WinogradWay(
        geometry=ConvGeometry(kernel=(3, 3)),
        clocks=1000,
        direct=2000,
        tiling=Tiling.cover(winograd(2), placed.operand(names[0]).extents),
        whole=True,
    )
    savings = {name: replace(way, clocks=1000 - 100 * at) for at, name in enumerate(names)}
    taken = choose_within_budget(placed, savings, options, DecisionLog())
    assert 0 < len(taken) < len(names)
    assert taken == frozenset(names[-len(taken) :])
    halves = resolve_options(target, preset="fp16").options
    assert choose_within_budget(placed, savings, halves, DecisionLog()) == frozenset(names)


def test_long_kernels_do_not_wait_for_the_host(tmp_path, monkeypatch):
    slow_host(monkeypatch, 1e5)
    assert _by_winograd(tmp_path, "fp32") == (LAYERS, [])
