"""Validation on planted devices: times that follow known constants, and candidates that fail."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from adrenoc.base.errors import DeviceError, RemoteError
from adrenoc.ir.options import resolve_options
from adrenoc.lab.calibrate.measure import DeviceFacts, ProbeError
from adrenoc.lab.calibrate.validate import session
from adrenoc.lab.calibrate.validate.findings import (
    TOGETHER,
    Confirmed,
    JoinFinding,
    KernelClock,
    KernelTimes,
    confirm,
    overall,
    share_right,
)
from adrenoc.lab.calibrate.validate.session import (
    JOINS,
    Fit,
    Validation,
    ValidationRequest,
    best_threshold,
    fit_validation,
    fitted_toml,
    forms_of,
    run_validation,
    set_key,
)
from adrenoc.lab.calibrate.validate.table import families_in_turn, layer_rows, wanted_rows
from adrenoc.lab.tune.refit import Fitted, FittedKernel, quality_of, replace_values, value_of
from adrenoc.lab.tune.session import TrialResult
from adrenoc.lab.tune.tasks import Argument, TunePlan, Variant
from adrenoc.pages.calibration_page import fit_to_json
from adrenoc.target.cost import Cost
from adrenoc.target.target import load_target
from tests.commands import invoke, succeed
from tests.tune.planted_kernels import TASKS, named_variant

TARGET = load_target("adreno:750")
ROWS = layer_rows()
US = 1e3


class PlantedDevice:
    """Launches take what the cost model says under `cost`, times `clock` of each request."""

    def __init__(
        self, cost: Cost, clock: Callable[[int], float] = lambda _: 1.0, launch_us: float = 0.0
    ) -> None:
        self.cost, self._clock, self._launch_us = cost, clock, launch_us
        self.plans: dict[str, TunePlan] = {}
        self.requests = 0

    def launch(
        self, variants: Sequence[Variant], reference: Path, *, tolerance: float | None = None
    ) -> TrialResult:
        """Three rounds, each of them slower."""
        self.requests += 1
        rate = self._clock(self.requests)
        times = [self._time_us(*variant.kernel.split(":")) for variant in variants]
        return TrialResult(
            times_us=tuple(tuple(t * rate * r for r in (1, 1.1, 1.3)) for t in times)
        )

    def _time_us(self, digest: str, number: str) -> float:
        plan, task = self.plans[digest], TASKS[digest]
        tile = task.candidates[int(number)]
        known = FittedKernel(plan=plan, task=task, layer="", tiles=(tile,), times_ms=())
        return self._launch_us + known.estimates_ms(self.cost)[0] * US


def validated(
    monkeypatch: pytest.MonkeyPatch, device: PlantedDevice, *only: str, budget_s: float = 1e6
) -> Validation:
    """What is found on a planted device."""

    class Builder:
        def __init__(self, plan: TunePlan, scratch: Path) -> None:
            device.plans |= {task.digest: plan for task in plan.tasks}

        def __call__(self, task: object, number: int) -> Variant:
            return named_variant(task, number)

    @contextmanager
    def opened(request: ValidationRequest) -> Iterator[tuple[PlantedDevice, DeviceFacts, Path]]:
        from adrenoc.base.files.aside import TemporaryFolder

        with TemporaryFolder("calibrate") as scratch:
            yield device, DeviceFacts.from_facts({"name": "planted"}), scratch

    monkeypatch.setattr(session, "VariantBuilder", Builder)
    monkeypatch.setattr(session, "opened_bench", opened)
    request = ValidationRequest(
        place=None,
        cl_device="",
        budget_s=budget_s,
        limit_s=5.0,
        target=TARGET,
        options=resolve_options(TARGET, preset=None).options,
        rows=wanted_rows(only),
        schedules=16,
    )
    return run_validation(request)


SOME = ("1x1 32-16", "1x1 256", "depthwise", "vector", "layer norm")


def test_a_model_that_is_right_has_no_regret(monkeypatch):
    device = PlantedDevice(TARGET.cost, clock=lambda request: 1.0 + request % 3)
    found = validated(monkeypatch, device, *SOME)
    assert {kernel.layer for kernel in found.kernels} == {
        row.layer.name for row in wanted_rows(SOME)
    }
    assert [kernel.regret for kernel in found.kernels] == [1.0] * len(found.kernels)
    for kernel in found.kernels:
        assert kernel.rank > 0.98  # alike schedules may stand either way
        assert kernel.measured == min(16, kernel.offered)
        assert kernel.spread == kernel.noise == pytest.approx(0.0, abs=1e-9)
    assert {family.change for family in found.families} == {""}


def test_a_constant_that_is_wrong_is_named(monkeypatch):
    truth = replace_values(TARGET.cost, {("depthwise", "texel_slots"): 56.0})
    found = validated(monkeypatch, PlantedDevice(truth), "depthwise")
    (family,) = found.families
    assert family.change.startswith("depthwise.texel_slots 7 -> 56: regret 1.0")
    quality = overall(found.timed, truth)
    assert (quality.regret, quality.rank) == (1.0, pytest.approx(1.0))


def test_what_the_budget_leaves_out_is_told(monkeypatch):
    found = validated(monkeypatch, PlantedDevice(TARGET.cost), *SOME, budget_s=1e-9)
    assert not found.kernels
    assert {why for _, why in found.left_out} == {"the budget of time was spent before"}
    assert len(found.left_out) == len(wanted_rows(SOME))


@pytest.mark.parametrize("launch_us", [TARGET.performance.launch_us, 0.0])
def test_a_decision_is_held_against_both_ways(monkeypatch, launch_us):
    """A device whose launches take nothing: there the model's decision is wrong."""
    device = PlantedDevice(TARGET.cost, launch_us=launch_us)
    found = validated(monkeypatch, device, "separable 3x3 192")
    (join,) = found.joins
    assert (join.takes, join.is_clear) == ("joined", True)
    assert join.is_right is (launch_us > 0)
    assert share_right(found.joins) == (int(launch_us > 0), 1)


A_JOIN = JoinFinding(
    layer="a", join="pair", kept_out=False, takes="joined", joined_us=1.0, apart_us=10.0, spread=0.0
)


def test_small_differences_of_joins_do_not_count():
    def join(joined_us: float, takes: str) -> JoinFinding:
        return replace(A_JOIN, takes=takes, joined_us=joined_us)

    joins = [join(9.5, "apart"), join(10.5, "joined"), join(5.0, "joined"), join(5.0, "apart")]
    assert [j.is_clear for j in joins] == [False, False, True, True]
    assert share_right(joins) == (1, 2)


# One kernel's times


def variant(number: int) -> Variant:
    return Variant(
        kernel=str(number),
        source="",
        work_items=(1, 1, 1),
        work_group=(1, 1, 1),
        arguments=(Argument(shape=(1,), dtype="float32", scope="global", file=""),),
    )


class Failing:
    """Takes a hundred and the number; some are refused by name, some break all beside them."""

    def __init__(self, refused: set[int] = frozenset(), breaking: set[int] = frozenset()) -> None:
        self.refused, self.breaking = refused, breaking
        self.asked: list[list[int]] = []

    def launch(
        self, variants: Sequence[Variant], reference: Path, *, tolerance: float | None = None
    ) -> TrialResult:
        numbers = [int(v.kernel) for v in variants]
        self.asked.append(numbers)
        if self.breaking.intersection(numbers):
            raise ProbeError("lost: it is gone")
        for index, number in enumerate(numbers):
            if number in self.refused:
                raise ProbeError("wrong: off by a lot", index)
        return TrialResult(times_us=tuple((100.0 + n, 200.0 + 2 * n) for n in numbers))


def timed(device: Failing, numbers: Sequence[int], *, late: bool = False) -> KernelTimes | None:
    clock = KernelClock(
        bench=device, build=variant, reference=Path("none"), tolerance=1e-3, is_late=lambda: late
    )
    return clock.measure(numbers)


def test_what_fails_is_left_out_and_nothing_else():
    found = timed(Failing(refused={3}, breaking={7}), range(20))
    assert set(found.times_us) == set(range(20)) - {3, 7}
    base = found.times_us[0]
    for number, time_us in found.times_us.items():
        assert time_us / base == pytest.approx((100 + number) / 100)
    assert sorted(found.refused) == [
        "schedule 3: wrong: off by a lot",
        "schedule 7: lost: it is gone",
    ]


def test_the_next_schedule_stands_in_where_the_first_does_not_run():
    found = timed(Failing(refused={0}), range(5))
    assert next(iter(found.times_us)) == 1
    assert timed(Failing(refused={0, 1, 2}), range(5)) is None


def test_a_kernel_that_is_late_keeps_what_it_has():
    found = timed(Failing(), range(40), late=True)
    assert list(found.times_us) == list(range(TOGETHER + 1))


def test_the_fastest_run_again_against_each_other():
    device = Failing()
    timed(device, (9, 8, 7, 6, 5, 4, 3, 2, 1))
    assert device.asked[-1] == device.asked[-2] == [9, 1, 2, 3, 4, 9]


def test_a_device_that_leaves_is_told():
    class Gone(Failing):
        def launch(self, variants, reference, *, tolerance=None):
            raise RemoteError("no device is there", hint="")

    with pytest.raises(RemoteError):
        timed(Gone(), range(5))


# The table


def test_the_table_has_thirty_layers_and_a_split():
    assert len(ROWS) == len({row.layer.name for row in ROWS}) == 30
    for family in {row.family for row in ROWS}:
        kept = {row.kept_out for row in ROWS if row.family == family}
        assert kept == {True, False}, family
    assert {row.join for row in ROWS} == {"", *JOINS}


def test_a_short_budget_reaches_all_families():
    rows = families_in_turn(ROWS)
    families = {row.family for row in ROWS}
    assert {row.family for row in rows[: len(families)]} == families
    assert sorted(row.layer.name for row in rows) == sorted(row.layer.name for row in ROWS)


@pytest.mark.parametrize("row", [r for r in ROWS if r.join], ids=lambda row: row.layer.name)
def test_joins_can_be_either(row, tmp_path):
    forms = forms_of(row, TARGET, resolve_options(TARGET, preset=None).options, tmp_path)
    (_, joined), (_, apart) = forms.compared
    assert joined and apart
    assert forms.validated


def test_the_command_tells_of_a_layer(tmp_path):
    page = tmp_path / "here.html"
    command = ["device", "calibrate", "--validate", "--device", "host", "--only", "mean 512"]
    told = json.loads(succeed(*command, "--html", page, "--json").stdout)["validation"]
    (kernel,) = told["kernels"]
    assert (kernel["layer"], kernel["kernel"]) == ("mean 512@7", "mean")
    assert kernel["measured"] == kernel["offered"] > 1
    assert kernel["regret"] >= 1.0
    assert told["families"][0]["family"] == "pool and reduce"
    assert "mean 512@7" in page.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--validate", "--only", "nothing"], "no layer has nothing in its name"),
        (["--preset", "fp16"], "--preset goes with --validate"),
        (["--validate", "much"], "is not one of"),
        (["--validate", "--device", "host", "-o", "x.toml"], "writes no target file"),
    ],
)
def test_wrong_words_are_told_at_once(words, said):
    outcome = invoke("device", "calibrate", *words, catch=True)
    assert outcome.exit_code == 2
    assert said in outcome.output + str(outcome.exception)


# What is fitted


def ran(found: Validation, device: PlantedDevice, cost: Cost) -> Confirmed:
    """What `cost` chooses, run on a device beside what the target does."""
    return confirm(
        found.timed,
        TARGET.cost,
        cost,
        bench=device,
        build=lambda kernel, number: named_variant(kernel.task, number),
        scratch=Path("none"),
    )


def fit_on(found: Validation, device: PlantedDevice, *only: str) -> Fit:
    """A fit that the device is asked about."""
    return fit_validation(found, wanted_rows(only), lambda cost: ran(found, device, cost))


def test_constants_that_made_the_times_are_found_again(monkeypatch):
    planted = {("depthwise", "texel_slots"): 42.0, ("gemv", "texel_slots"): 40.0}
    truth = replace_values(TARGET.cost, planted)
    only = ("depthwise", "1x1 256", "vector")
    device = PlantedDevice(truth)
    fit = fit_on(validated(monkeypatch, device, *only), device, *only)
    quality = fit.fitted
    assert (quality.before.kernels, quality.kept_before.kernels) == (3, 1)
    assert quality.after.regret == pytest.approx(1.0, abs=0.02)
    assert quality.after.rank > quality.before.rank
    assert quality.kept_after.regret == pytest.approx(1.0, abs=0.02)
    assert abs(math.log(quality.kept_after.scale)) < abs(math.log(quality.kept_before.scale))
    for key, value in planted.items():
        off = abs(math.log(value_of(fit.cost, key) / value))
        assert off < 0.3 * abs(math.log(value_of(TARGET.cost, key) / value)), key


def test_a_fit_stands_in_the_target_file(monkeypatch, tmp_path):
    truth = replace_values(TARGET.cost, {("depthwise", "texel_slots"): 42.0})
    only = ("depthwise", "1x1 256", "1x1 32")
    device = PlantedDevice(truth)
    found = validated(monkeypatch, device, *only)
    fit = fit_on(found, device, *only)
    assert fit.changed
    path = tmp_path / "fitted.toml"
    path.write_text(fitted_toml(found, fit))
    target = load_target(str(path))
    assert replace(target.cost, name=TARGET.cost.name) == fit.cost
    assert target.limits == TARGET.limits
    source = target.source_of("cost.depthwise.texel_slots")
    assert source.startswith("fitted to schedules of 3 kernels, measured on planted")
    # A file that has such values gets others in their place.
    assert fitted_toml(replace(found, target=target), fit) == path.read_text()


def test_a_fit_that_chooses_worse_is_not_taken(monkeypatch, tmp_path):
    only = ("depthwise", "1x1 256", "1x1 32")
    device = PlantedDevice(TARGET.cost)
    found = validated(monkeypatch, device, *only)
    key = ("depthwise", "texel_slots")
    worse = replace_values(TARGET.cost, {key: 500.0})

    def fit_badly(seen: Sequence[FittedKernel], kept: Sequence[FittedKernel], cost: Cost) -> Fitted:
        before, after = quality_of([*seen, *kept], cost), quality_of([*seen, *kept], worse)
        assert before.rank > after.rank
        qualities = {"before": before, "after": after, "kept_before": before, "kept_after": after}
        return Fitted(cost=worse, changed=((key, value_of(cost, key), 500.0),), **qualities)

    monkeypatch.setattr(session, "fit_cost", fit_badly)
    fit = fit_on(found, device, *only)
    assert fit.fitted.before.regret == fit.fitted.after.regret == 1.0
    assert fit.fitted.kept_after.regret == 1.0
    assert (fit.changed, fit.cost) == ((), TARGET.cost)
    (decision,) = fit.decisions
    assert decision.subject == "cost.depthwise"
    assert decision.taken.startswith("kept as ")
    assert fit_to_json(fit)["decisions"] == fit.decisions
    path = tmp_path / "fitted.toml"
    path.write_text(fitted_toml(found, fit))
    target = load_target(str(path))
    assert replace(target.cost, name=TARGET.cost.name) == TARGET.cost
    assert "fitted to" not in path.read_text()


@pytest.mark.nightly
def test_a_fit_is_confirmed_by_what_it_chooses_of_all(monkeypatch):
    truth = replace_values(TARGET.cost, {("depthwise", "texel_slots"): 56.0})
    only = ("depthwise", "1x1 256", "1x1 32")
    device = PlantedDevice(truth)
    found = validated(monkeypatch, device, *only)
    right = ran(found, device, truth)
    assert right.is_better and right.others and right.seen < 1.0
    device.cost = TARGET.cost
    wrong = ran(found, device, truth)
    assert wrong.others == right.others and not wrong.is_better and wrong.seen > 1.0
    assert ran(found, device, TARGET.cost) == Confirmed(seen=1.0, kept=1.0, others=0)

    for told, taken in ((right, True), (wrong, False)):
        fit = fit_validation(found, wanted_rows(only), lambda _, told=told: told)
        assert bool(fit.changed) is taken
        assert (fit.cost == TARGET.cost) is not taken
        assert fit.confirmed == told
    (decision,) = fit.decisions
    assert decision.taken == "kept as they were"
    assert "of all schedules they choose others" in decision.reason


def test_a_choice_that_does_not_run_confirms_nothing(monkeypatch):
    truth = replace_values(TARGET.cost, {("depthwise", "texel_slots"): 56.0})
    device = PlantedDevice(truth)
    found = validated(monkeypatch, device, "depthwise")

    def fail(*_: object, **__: object) -> TrialResult:
        raise ProbeError("build: no registers are left")

    monkeypatch.setattr(device, "launch", fail)
    told = ran(found, device, truth)
    assert not told.is_better
    assert told.decision("cost.depthwise").reason == (
        "depthwise 3x3 96@28 does not run as they choose: build: no registers are left"
    )


def test_too_little_to_fit_to(monkeypatch):
    found = validated(monkeypatch, PlantedDevice(TARGET.cost), "depthwise")
    with pytest.raises(DeviceError, match="1 kernels were measured to fit to"):
        fit_on(found, PlantedDevice(TARGET.cost), "depthwise")


def test_what_no_layer_kept_out_confirms_is_not_taken(monkeypatch):
    truth = replace_values(TARGET.cost, {("depthwise", "texel_slots"): 42.0})
    only = ("depthwise", "1x1 256", "1x1 32")
    device = PlantedDevice(truth)
    found = validated(monkeypatch, device, *only)
    seen = tuple(replace(timed, kept_out=False) for timed in found.timed)
    fit = fit_on(replace(found, timed=seen), device, *only)
    assert (fit.changed, fit.cost, fit.confirmed) == ((), TARGET.cost, None)
    (decision,) = fit.decisions
    assert decision.reason == "no layer that the fit has not seen was measured to hold it against"


TEXT = 'title = "t"\n\n[sources]\na = "b"\n\n[cost.pipes]\nx = 1\nxy = 2\n\n[limits]\nz = 3\n'


@pytest.mark.parametrize(
    ("section", "key", "expected"),
    [
        ("cost.pipes", "x", TEXT.replace("x = 1\nxy = 2\n", "xy = 2\nx = 9\n")),
        ("cost.pipes", "new", TEXT.replace("xy = 2\n", "xy = 2\nnew = 9\n")),
        ("limits", "z", TEXT.replace("z = 3", "z = 9")),
        ("cost.rows", "x", TEXT + "\n[cost.rows]\nx = 9\n"),
    ],
)
def test_a_line_of_a_section_is_replaced_or_added(section, key, expected):
    assert set_key(TEXT, section, key, "9") == expected


def join_of_ratio(ratio: float) -> JoinFinding:
    return replace(A_JOIN, joined_us=1.0, apart_us=ratio)


def test_a_threshold_moves_to_where_decisions_are_right():
    # Joined up to a threshold of 1.4, though apart is twice as fast; the other one up to 4.
    wrong, right = (join_of_ratio(0.5), 1.4), (join_of_ratio(3.0), 4.0)
    assert best_threshold([wrong, right], 1.1) == 1.8
    assert best_threshold([right], 1.1) == 1.1
    assert best_threshold([(join_of_ratio(1.05), 0.0)], 1.1) == 1.1  # it does not count
    assert best_threshold([(join_of_ratio(2.0), 0.9)], 1.1) == 0.9


@pytest.mark.nightly
def test_a_threshold_that_is_wrong_where_it_was_not_fitted_stays(monkeypatch):
    joins = [replace(A_JOIN, joined_us=2.0, apart_us=1.0), replace(A_JOIN, kept_out=True)]
    row = next(row for row in ROWS if row.join == "pair")
    joins = [replace(join, layer=row.layer.name) for join in joins]
    device = PlantedDevice(TARGET.cost)
    found = validated(monkeypatch, device, "1x1", "depthwise")
    monkeypatch.setattr(session, "_end_of_joining", lambda *_: 1.4)
    joined = replace(found, joins=tuple(joins))
    fit = fit_validation(joined, ROWS, lambda cost: ran(found, device, cost))
    assert fit.cost.joins == TARGET.cost.joins
    (decision,) = (d for d in fit.decisions if "joins" in d.subject)
    assert (decision.subject, decision.taken) == ("cost.joins.pair", "kept at 1.1")
    assert decision.reason == "1.8 decides worse on the layers kept out of the fit"
