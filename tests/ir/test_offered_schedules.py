"""Schedules that families offer: the local memory of their kernels, and their estimates.

A family offers a schedule where the device has as much local memory as the family reckons with: so
it is offered to a device that has what its kernel declares, and not to one that has a byte less.
"""

import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import adrenoc.kernels.families
from adrenoc.base.decision import DecisionLog
from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.decoder_plan import plan_decoder
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.ir.options import resolve_options
from adrenoc.kernels.families.shared.context import RuleContext
from adrenoc.kernels.families.shared.machine import Scored
from adrenoc.kernels.families.shared.schedule import TunedSchedules
from adrenoc.kernels.statements import SharedArray, Statements
from adrenoc.lab.net import Net
from adrenoc.lab.prove.case import add_to
from adrenoc.lab.prove.suite import CASES
from adrenoc.lab.tune.tasks import TunePlan, TuneTask, plan_model
from adrenoc.passes.lower.lower import kernel_of
from adrenoc.target.target import load_target
from tests.host.decoder_bundles import DecoderShape, write_decoder

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

    def choose(_: object, family: str, node: str, work: object, tiles: Any, estimate: Any) -> None:
        raise OfferedError(tiles)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TunedSchedules, "choose", choose)
        with pytest.raises(OfferedError) as caught:
            kernel_of(context, task.node)
    return caught.value.tiles


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.nightly)])
def tried(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[list[str], set[str]]:
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


def _find_wrong(plan: TunePlan, task: TuneTask, tile: Any) -> str:
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
        if "builder.allocate_shared(" in path.read_text()
    }
    assert tried[1] == declaring
