"""Schedules that families offer: local memory, few threads, convolutions of any extents."""

import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import helper

import adrenoc.kernels.families
from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import TargetError
from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.decoder_plan import plan_decoder
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.ir.layout import Extents
from adrenoc.ir.options import resolve_options
from adrenoc.kernels.families.conv import conv_rules
from adrenoc.kernels.families.conv.conv_tile_local import local_counts
from adrenoc.kernels.families.shared.context import RuleContext
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, ConvTile, ConvWork, Route
from adrenoc.kernels.families.shared.machine import Machine, Scored
from adrenoc.kernels.families.shared.schedule import TunedSchedules
from adrenoc.kernels.families.winograd.winograd import Tiling, multiply_candidates, winograd
from adrenoc.kernels.families.winograd.winograd_conv_rule import conv_candidates
from adrenoc.kernels.statements import SharedArray, Statements
from adrenoc.kernels.weights import whole_k_steps
from adrenoc.lab.net import Net
from adrenoc.lab.prove.cases import add_to
from adrenoc.lab.prove.suite import CASES
from adrenoc.lab.tune.tasks import TunePlan, TuneTask, plan_model
from adrenoc.passes.lower.lower import kernel_of
from adrenoc.passes.verify.check_program import check_kernels
from adrenoc.target.target import Target, load_target
from tests.host.decoder_bundles import DecoderShape, write_decoder
from tests.ir.planning import run_until
from tests.models import graph, parse_nodes, write

PLACES = (("adreno:660", "fp32"), ("adreno:750", "fp16"), ("adreno:830", "mixed"))
"""Devices and presets for which each family, and each form of it, is planned by one at least."""
TILES, ESTIMATES = 1, 4
"""Of a kernel, of thousands: those that are written beside one of each route, and those that are
estimated alone."""
ROOMY = {"n_bits"}
"""They reckon with the sums of a norm that the kernel may not compute."""
FAMILIES = Path(adrenoc.kernels.families.__file__).parent


class OfferedError(Exception):
    """The schedules that a family offers, in place of its kernel."""

    def __init__(self, tiles: Iterable[Any]) -> None:
        self.tiles = list(tiles)


def _plans(folder: Path, *, whole: bool) -> Iterator[TunePlan]:
    """The suite for each place, or a third of its cases for each; a convolution for a GPU with
    all routes; and a token of a decoder."""
    said: dict[str, Any] = {"int8_prompts": True, "keep_float32": False}
    for number, (name, preset) in enumerate(PLACES):
        net, model = Net(), folder / "suite.onnx"
        for case in CASES if whole else CASES[number :: len(PLACES)]:
            add_to(net, case)
        model.write_bytes(net.model())
        yield _plan(model, name, preset, said)
    net, model = Net(), folder / "built_ins.onnx"
    add_to(net, next(case for case in CASES if "constant file" in case.name))
    model.write_bytes(net.model())
    yield _plan(model, "adreno:850", "fp16", said)  # with matrix units, too
    decoder = write_decoder(folder, DecoderShape(hidden=256, head=64, mlp=512, layers=1, bits=0))
    form = find_decoder(decoder)
    assert form is not None
    plan = plan_decoder(form, None, (16,))
    yield _plan(decoder, "adreno:750", "mixed", {"shapes": plan.buckets[0], "caches": plan.caches})


def _plan(model: Path, name: str, preset: str, said: dict[str, Any]) -> TunePlan:
    target = load_target(name)
    options = resolve_options(target, preset=preset, command_line=said).options
    return plan_model(model, target=target, options=options, reporter=SilentReporter())


def _offered(plan: TunePlan, task: TuneTask, most: int) -> list[Any]:
    """What the family offers a device that has so many bytes of local memory."""
    target = plan.target
    context = RuleContext(
        graph=plan.graph,
        options=plan.options,
        limits=replace(target.limits, local_mem_bytes=most),
        performance=target.performance,
        cost=target.cost,
        log=DecisionLog(),
    )

    def choose(_: object, family: str, node: str, work: object, tiles, estimate) -> None:
        raise OfferedError(tiles)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TunedSchedules, "choose", choose)
        with pytest.raises(OfferedError) as caught:
            kernel_of(context, task.node)
    return caught.value.tiles


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.nightly)])
def tried(tmp_path_factory, request) -> tuple[list[str], set[str]]:
    """What is wrong with some schedules of each kernel, and the files whose arrays they share."""
    wrong: list[str] = []
    files: set[str] = set()
    allocate = Statements.allocate_shared

    def note(builder: Statements, count: int, *, dtype: str | None = None) -> SharedArray:
        path = Path(sys._getframe(1).f_code.co_filename)
        files.update({str(path.relative_to(FAMILIES))} if FAMILIES in path.parents else ())
        return allocate(builder, count, dtype=dtype)

    draw = random.Random(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Statements, "allocate_shared", note)
        for plan in _plans(tmp_path_factory.mktemp("plans"), whole=request.param):
            for task in plan.tasks:
                wrong += _find_wrong_estimates(task, draw)
                routes = {getattr(tile, "route", None): tile for tile in task.candidates}
                some = draw.sample(task.candidates, min(TILES, len(task.candidates)))
                for tile in (*some, *(routes.values() if len(routes) > 1 else ())):
                    if said := _find_wrong(plan, task, tile):
                        wrong.append(f"{task.family} {tile}: {said}")
    return wrong, files


def _find_wrong(plan: TunePlan, task: TuneTask, tile) -> str:
    builder = plan.call(task, tile)[0].builder
    declared = builder.shared_bytes
    if declared > plan.target.limits.local_mem_bytes:
        return f"declares {declared} bytes, more than there are"
    if declared and tile in _offered(plan, task, declared - 1):
        return f"declares {declared} bytes, and is offered with less"
    # What is multiplied in halves has to fit in floats, too.
    room = declared * (2 if builder.compute == "float16" else 1)
    if declared and task.family not in ROOMY and tile not in _offered(plan, task, room):
        return f"declares {declared} bytes, and is not offered with them"
    return ""


def _find_wrong_estimates(task: TuneTask, draw: random.Random) -> Iterator[str]:
    """What is estimated of all at once has the bits of what is estimated of each."""
    scored = task.choice.estimate
    if not isinstance(scored, Scored):
        return
    if len({*scored}) != len(scored):
        yield f"{task.family} offers a schedule twice"
    if scored(next(scored.rank())) != min(map(scored, scored)):
        yield f"{task.family} does not rank the least estimate first"
    for tile in draw.sample(task.candidates, min(ESTIMATES, len(task.candidates))):
        if scored(tile) != scored.alone(tile):
            yield f"{task.family} {tile}: {scored(tile)} among others, {scored.alone(tile)} alone"


def test_claims_and_estimates_are_those_of_each_schedule(tried):
    assert not tried[0]


def test_every_family_that_declares_local_memory_is_among_them(tried):
    declaring = {
        str(path.relative_to(FAMILIES))
        for path in FAMILIES.rglob("*.py")
        if ".allocate_shared(" in path.read_text()
    }
    assert tried[1] == declaring


TARGET = load_target("adreno")
LIMITS = TARGET.limits
MACHINE = Machine.from_performance(TARGET.performance, TARGET.cost)


def _work(
    kernel: int,
    out: tuple[int, int, int],
    in_blocks: int,
    *,
    stride: int = 1,
    pad: int = 0,
    channels: int = 4,
    bytes_each: int = 2,
    half: bool = False,
    **more: Any,
) -> ConvWork:
    """A convolution that makes channels, rows and columns of one image."""
    return ConvWork(
        geometry=ConvGeometry(
            kernel=(kernel, kernel), strides=(stride, stride), padding=(pad, pad)
        ),
        out=Extents(1, *out),
        in_blocks=in_blocks,
        channels=channels,
        storage_bytes=bytes_each,
        half=half,
        **more,
    )


@given(
    in_blocks=st.integers(1, 70),
    channels=st.integers(1, 300),
    tiles=st.integers(1, 70),
    half=st.booleans(),
)
@example(in_blocks=64, channels=1, tiles=1, half=False)
def test_a_product_of_tiles_has_schedules(in_blocks, channels, tiles, half):
    size = 2 if half else 4
    work = _work(1, (channels, 16, tiles), in_blocks, bytes_each=size, half=half, weight_sets=16)
    found = list(multiply_candidates(work, LIMITS, MACHINE))
    assert found
    for tile in found:
        window = whole_k_steps(in_blocks, tile.k_step)
        assert in_blocks <= window <= TARGET.cost.conv_local.most_padding * in_blocks
        assert tile.chunk % tile.unroll == 0
        assert tile.chunk * tile.split_k <= window


@given(
    in_blocks=st.integers(1, 70),
    channels=st.integers(1, 300),
    size=st.integers(1, 60),
    half=st.booleans(),
)
def test_schedules_of_winograd_in_one_kernel_fit(in_blocks, channels, size, half):
    shape = (channels, size, size)
    work = _work(3, shape, in_blocks, pad=1, bytes_each=2 if half else 4, half=half)
    tiling = Tiling.cover(winograd(2), work.out)
    for tile in conv_candidates(work, tiling, LIMITS, TARGET.cost, textures=True):
        assert tile.threads <= LIMITS.max_work_group_size
        assert tile.chunk % (tile.split_k * tile.unroll) == 0
        assert tile.work_group == (16 * tile.columns, 1, tile.bands * tile.split_k)
        # Each thread makes at most one row of a transformed tile of a chunk.
        assert 4 * tile.group_tiles * tile.chunk <= tile.threads


@pytest.mark.parametrize("half", [False, True])
def test_a_convolution_is_searched_once_by_all_passes(half):
    work, same = (_work(3, (32, 28, 28), 8, pad=1, half=half) for _ in range(2))
    tiles = conv_rules.score_tiles(work, LIMITS, MACHINE)
    assert conv_rules.score_tiles(same, LIMITS, MACHINE) is tiles
    assert conv_rules.least_clocks(same, LIMITS, MACHINE) == tiles.least
    for tile in list(tiles)[::100]:
        assert tiles(tile) == conv_rules.estimate_clocks(same, tile, MACHINE)


def _registers_660(work: ConvWork, **actions) -> float:
    tile = ConvTile(route=Route.LOCAL, work_group=(4, 32, 1), **actions)
    target = load_target("adreno:a660")
    return local_counts(
        work, tile, Machine.from_performance(target.performance, target.cost)
    ).registers


def test_registers_of_convolutions_as_built():
    """Sixteen leave four waves on an Adreno 660, one more leaves two."""
    point = _work(1, (1024, 14, 14), 64, half=True, textures=True)
    strided = _work(3, (128, 28, 28), 32, stride=2, pad=1, half=True, textures=True)
    dense = _work(3, (128, 28, 28), 32, pad=1, half=True, textures=True)
    for work, pixels, out_blocks, chunk, unroll, split_k, fits in (
        (point, 2, 4, 64, 4, 1, True),
        (point, 5, 2, 32, 2, 1, True),
        (point, 4, 3, 32, 2, 2, True),
        (point, 5, 3, 32, 2, 1, False),
        (point, 7, 2, 32, 1, 2, False),
        (strided, 2, 3, 8, 2, 1, True),
        (strided, 2, 4, 16, 1, 1, True),
        (dense, 3, 2, 4, 2, 1, True),
        (strided, 2, 2, 32, 2, 1, True),
    ):
        actions = {"pixels": pixels, "out_blocks": out_blocks, "chunk": chunk, "unroll": unroll}
        assert (_registers_660(work, **actions, split_k=split_k) <= 16) == fits


HALF_ONLY = 14
"""From this width on, weights in local memory are better in halves alone."""


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kernel, stride", [(16, 16), (14, 14), (9, 1), (11, 4)])
def test_wide_rows_of_texels_come_with_weights_in_local_memory(kernel, stride, half):
    """Patches of an image: 0.113 ms where texels of weights took 0.296 (Adreno 660, 16 x 16).
    In float a wide row leaves registers for one pixel: 0.47 ms if wide reads of local memory take
    longer, and 0.12 if not, where texels take 0.195 either way.
    """
    target = load_target("adreno:a660")
    machine = Machine.from_performance(target.performance, target.cost)
    size, said = 2 if half else 4, {"stride": stride, "channels": 3}
    work = _work(kernel, (192, 14, 14), 1, bytes_each=size, half=half, **said)
    tiles = conv_rules.score_tiles(work, target.limits, machine)
    local = [tile for tile in tiles if tile.route is Route.LOCAL]
    assert (min(tiles, key=tiles) in local) == (half or kernel < HALF_ONLY)


@pytest.mark.parametrize("gpu", ["a618", "a660", "a750"])
@pytest.mark.parametrize("kernel, stride", [(16, 16), (14, 14), (8, 8), (7, 4)])
def test_patches_of_floats_stay_in_registers(gpu, kernel, stride):
    """A row of seven patches of 16 texels went to memory: 0.96 ms in place of 0.20 (660, mixed)."""
    target = load_target(f"adreno:{gpu}")
    machine = Machine.from_performance(target.performance, target.cost)
    work = _work(kernel, (192, 14, 14), 1, stride=stride, channels=3, textures=True)
    best = next(conv_rules.score_tiles(work, target.limits, machine).rank())
    if best.route is Route.LOCAL:
        assert local_counts(work, best, machine).registers <= machine.registers / 2


SUITE = [case for case in CASES if not case.title.startswith("map: ")]


def _with_groups_of(most: int, sides: tuple[int, int, int] | None = None) -> Target:
    target = load_target("adreno:660")
    changed = {"max_work_item_sizes": sides} if sides else {}
    limits = replace(target.limits, max_work_group_size=most, **changed)
    return replace(target, gpu=replace(target.gpu, limits=limits))


def _check(model: Path, most: int, sides: tuple[int, int, int] | None = None) -> None:
    """Lower a model for groups of so many threads, and hold its kernels against that."""
    target = _with_groups_of(most, sides)
    state = run_until("lower", model, target, preset="mixed")
    assert state.program is not None
    check_kernels(state.program, target.limits)


@pytest.mark.parametrize(
    ("most", "sides"),
    [
        pytest.param(48, None, marks=pytest.mark.nightly),
        (8, None),
        pytest.param(1024, (1024, 1024, 64), marks=pytest.mark.nightly),
        (1024, (1024, 1024, 2)),
    ],
)
def test_every_family_fits(most, sides, tmp_path):
    net = Net()
    for case in SUITE:
        add_to(net, case)
    model = tmp_path / "m.onnx"
    model.write_bytes(net.model())
    _check(model, most, sides)


@pytest.mark.parametrize("most", [32, 4])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_product_of_many_outputs_fits(rows, most, tmp_path):
    """Its teams would fill a wave, and there are outputs for any number of them."""
    weights = np.zeros((130, 1000), np.float32)
    made = graph("y = MatMul(x, w)", {"x": (rows, 130)}, ["y"], {"w": weights})
    _check(write(made, tmp_path), most)


def test_heads_that_no_group_can_hold_are_an_error(tmp_path):
    net = Net()
    add_to(net, next(case for case in CASES if case.family == "cached_attention"))
    model = tmp_path / "m.onnx"
    model.write_bytes(net.model())
    with pytest.raises(TargetError, match=r"no schedule of cached_attention fits .* 2 threads"):
        _check(model, 2)


@pytest.mark.parametrize("channels", [512, 1024])
def test_groups_of_one_pixel_are_not_deeper_than_their_limit(channels, tmp_path):
    """What has no width and no height fills its groups with blocks of channels."""
    rng = np.random.default_rng(0)
    shapes = {"d": (channels, 1, 3, 3), "w": (channels, channels, 1, 1), "v": (64, channels, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "d"], ["a"], group=channels, pads=[1, 1, 1, 1]),
        *parse_nodes("b = Conv(a, w) y = Conv <pads = [1, 1, 1, 1]>(b, v)"),
    ]
    weights = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    model = write(graph(nodes, {"x": (1, channels, 1, 2)}, ["y"], weights), tmp_path)
    for sides in ((1024, 1024, 64), (1024, 1024, 4)):
        _check(model, 1024, sides)
