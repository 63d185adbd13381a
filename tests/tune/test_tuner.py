"""The tuner's own decisions, with a rule in place of devices."""

from collections import Counter

import pytest

pytest.importorskip("xgboost", reason="pip install '.[tune]'")

from adrenoc.base.errors import RemoteError
from adrenoc.ir.tuning_log import Status, Trial, best_trials
from adrenoc.kernels.families.shared.schedule import actions_of
from adrenoc.lab.tune.farm import MeasureOutcome
from adrenoc.lab.tune.session import MeasureJob, TrialResult
from adrenoc.lab.tune.tasks import TunePlan, TuneTask, seeds
from adrenoc.lab.tune.tuner import CONTENDERS
from tests.tune.planted_kernels import DEVICE, RuleFarm, plan_small, small_model, tune_by_rule


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> TunePlan:
    return plan_small(tmp_path_factory.mktemp("plan"))


def _time(task: TuneTask, number: int, job: MeasureJob) -> float:
    """Long for the estimates' favourite, short for wide and flat work-groups."""
    x, y, z = actions_of(task.candidates[number])["work_group"]
    return 100.0 + 20 * (number == 0) + abs(x - 8) + 3 * abs(y - 2) + 5 * z + number % 3


def _refused(job: MeasureJob, status: Status) -> MeasureOutcome:
    return MeasureOutcome(
        job=job, status=status, device=DEVICE, result=TrialResult(detail="by rule")
    )


def _measured(trials: tuple[Trial, ...]) -> list[Trial]:
    return [t for t in trials if not (t.untuned or t.confirmed)]


def test_it_finds_better_schedules(plan, tmp_path):
    result, log, _ = tune_by_rule(plan, tmp_path / "log", _time, trials=40)
    assert result.phase == "done"
    assert result.trials == len(_measured(log)) == 40
    assert result.gain > 1.1
    assert max(Counter(t.key for t in _measured(log)).values()) == 1
    # What is in the log is what the result says.
    best = best_trials(log)
    for kernel in result.kernels:
        assert best[kernel.kernel].median_us == pytest.approx(kernel.best_us)
        assert kernel.best_us <= kernel.untuned_us


def test_the_search_beats_chance(plan, tmp_path):
    """Of a space of hundreds it finds one of the best few with fewer trials than luck needs."""
    _, log, _ = tune_by_rule(plan, tmp_path / "log", _time, trials=120)
    task = max(plan.tasks, key=lambda t: len(t.candidates))
    times = sorted(_time(task, number, None) for number in range(len(task.candidates)))
    spent = sum(t.kernel == task.digest for t in _measured(log))
    rank = times.index(min(t for t in times if t >= best_trials(log)[task.digest].median_us - 1e-6))
    assert rank < len(times) / spent


def test_a_second_run_starts_from_the_log(plan, tmp_path):
    path = tmp_path / "log"
    tune_by_rule(plan, path, _time, trials=20)
    again, log, farm = tune_by_rule(plan, path, _time, trials=20)
    assert again.resumed == again.trials == 20
    assert farm.jobs == []
    more, log, _ = tune_by_rule(plan, path, _time, trials=35)
    assert more.resumed == 20
    assert len(_measured(log)) == 35
    assert max(Counter(t.key for t in _measured(log)).values()) == 1


@pytest.mark.parametrize("after", [0, 1, 4, 9, 17])
def test_stopped_anywhere_it_goes_on_and_comes_to_the_same_end(plan, tmp_path, after):
    path = tmp_path / "log"
    stopped, log, _ = tune_by_rule(plan, path, _time, trials=25, interrupt_after=after)
    assert stopped.phase == "stopped"
    assert len(log) <= after
    resumed, log, _ = tune_by_rule(plan, path, _time, trials=25)
    assert resumed.phase == "done"
    assert len(_measured(log)) == 25
    assert resumed.gain > 1.1


def test_failures_are_named_and_never_taken(plan, tmp_path):
    kinds = (Status.WRONG, Status.CRASH, Status.TIMEOUT, Status.BUILD)

    def rule(task: TuneTask, number: int, job: MeasureJob) -> MeasureOutcome | float:
        if number % 2:  # the fastest, and broken
            return _refused(job, kinds[number // 2 % len(kinds)])
        return _time(task, number, job)

    result, log, _ = tune_by_rule(plan, tmp_path / "log", rule, trials=40)
    broken = [t for t in log if t.status is not Status.OK]
    assert broken
    assert result.failed == len(broken)
    assert {t.detail for t in broken} == {"by rule"}
    numbers = {t.digest: t for t in plan.tasks}
    for trial in best_trials(log).values():
        position = numbers[trial.kernel].position(dict(trial.actions))
        assert position is not None
        assert position % 2 == 0


def test_an_unstable_group_is_tried_no_more(plan, tmp_path):
    seen: list[object] = []

    def rule(task: TuneTask, number: int, job: MeasureJob) -> MeasureOutcome | float:
        if number and not seen:
            seen.append(task.candidates[number].work_group)
            return _refused(job, Status.UNSTABLE)
        return _time(task, number, job)

    _, log, _ = tune_by_rule(plan, tmp_path / "log", rule, trials=30)
    (unstable,) = [t for t in log if t.status is Status.UNSTABLE]
    # Two jobs were built before its answer came.
    later = _measured(log)[_measured(log).index(unstable) + 3 :]
    assert later
    assert all(t.actions["work_group"] != unstable.actions["work_group"] for t in later)


def test_an_untuned_schedule_that_fails_is_replaced(plan, tmp_path):
    def rule(task: TuneTask, number: int, job: MeasureJob) -> MeasureOutcome | float:
        return _refused(job, Status.CRASH) if number < 2 else _time(task, number, job)

    result, log, _ = tune_by_rule(plan, tmp_path / "log", rule, trials=20)
    assert result.trials == 20
    for kernel in result.kernels:
        assert kernel.untuned_us > 0
    bases = [t for t in log if t.untuned and t.status is Status.OK]
    assert {t.kernel for t in bases} == {t.digest for t in plan.tasks}


def test_luck_is_not_taken_for_speed(plan, tmp_path):
    """A single fast measurement is repeated beside the untuned schedule, and loses."""

    def rule(task: TuneTask, number: int, job: MeasureJob) -> float:
        alone = len(job.variants) == 1
        return 100.0 if number == 0 else 10.0 if alone else 200.0

    result, log, _ = tune_by_rule(plan, tmp_path / "log", rule, trials=12)
    assert any(t.confirmed for t in log)
    untuned = {t.digest: actions_of(t.candidates[0]) for t in plan.tasks}
    tried = {t.kernel for t in _measured(log)}
    contested = {t.kernel for t in log if t.confirmed}
    assert tried == contested
    for kernel in contested:
        assert best_trials(log)[kernel].actions == untuned[kernel]
    assert result.gain == pytest.approx(1.0, abs=0.02)


def test_a_budget_ends_the_search(plan, tmp_path):
    result, _, _ = tune_by_rule(plan, tmp_path / "log", _time, trials=10**6, budget_s=2.0)
    assert result.trials < 10**6


class Clock:
    """Time that passes only where a device works."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr("adrenoc.lab.tune.tuner.time", self)

    def monotonic(self) -> float:
        """As in the module `time`."""
        return self.now_s


@pytest.mark.parametrize("trial_s", [0.5, 7.0, 60.0])
def test_the_end_keeps_to_the_budget_too(trial_s, plan, tmp_path, monkeypatch):
    """What is measured at last, in turn with the untuned schedules, takes its time as well."""
    clock = Clock(monkeypatch)

    def rule(task: TuneTask, number: int, job: MeasureJob) -> float:
        clock.now_s += trial_s
        return _time(task, number, job)

    result, log, _ = tune_by_rule(plan, tmp_path / "log", rule, trials=10**6, budget_s=100.0)
    assert clock.now_s - 1000.0 < 100.0 + trial_s * (1 + CONTENDERS)
    assert result.phase == "done"
    if trial_s < 1:  # there was time to make sure of the best
        assert any(t.confirmed for t in log)
        assert clock.now_s - 1000.0 > 80.0


def test_what_gains_most_is_made_sure_of_first(plan, tmp_path, monkeypatch):
    _, _, farm = tune_by_rule(plan, tmp_path / "log", _time, trials=60)
    contests = [job.tag.standing for job in farm.jobs if job.tag.kind == "contest"]
    gains = [
        s.task.calls * (s.untuned_us - (s.best.median_us if s.best else s.untuned_us))
        for s in contests
    ]
    assert len(gains) > 1
    assert gains == sorted(gains, reverse=True)


class SilentFarm(RuleFarm):
    """A farm whose devices never answer; `word` is why none is there, or empty."""

    def __init__(self, clock: Clock, word: str) -> None:
        super().__init__(_time)
        self._clock, self._word = clock, word

    def next_outcome(self, timeout_s: float) -> MeasureOutcome | None:
        self._clock.now_s += 0.5
        return None

    def check_presence(self, patience_s: float = 0.0) -> None:
        """See `Farm`."""
        if self._word:
            raise RemoteError(self._word, hint="")


@pytest.mark.parametrize("word", ["", "no device was there for 30 s"])
def test_a_budget_that_was_too_short_is_told(word, plan, tmp_path, monkeypatch):
    """Nothing measured is never a success without a word."""
    farm = SilentFarm(Clock(monkeypatch), word)
    told: list[str] = []
    if word:
        with pytest.raises(RemoteError, match=word):
            tune_by_rule(plan, tmp_path / "log", _time, trials=9, budget_s=30.0, farm=farm)
        return
    result, log, _ = tune_by_rule(
        plan, tmp_path / "log", _time, trials=9, budget_s=30.0, farm=farm, told=told
    )
    assert (result.trials, log) == (0, ())
    assert "budget of 30 s was spent before a device answered" in told[-1]


def test_all_of_a_small_space_is_enough(plan, tmp_path):
    """Where nothing is left to try, the tuner ends before its trials do."""
    task = min(plan.tasks, key=lambda t: len(t.candidates))
    alone = TunePlan(
        model=plan.model, target=plan.target, options=plan.options, graph=plan.graph, tasks=(task,)
    )
    result, log, _ = tune_by_rule(alone, tmp_path / "log", _time, trials=10**6)
    assert result.trials == len(task.candidates) - 1
    assert len({t.key for t in log}) == len(task.candidates)


def test_near_kernels_give_the_first_candidates(plan, tmp_path):
    other = plan_small(tmp_path, small_model(channels=12))
    (conv,) = [t for t in other.tasks if t.family == "conv2d"]

    def time_us(task: TuneTask, number: int, job: MeasureJob) -> float:
        """The best are schedules that both kernels have."""
        lacks = conv.position(actions_of(task.candidates[number])) is None
        return _time(task, number, job) + 1000 * lacks

    _, log, _ = tune_by_rule(plan, tmp_path / "log", time_us, trials=40)
    best = {t.family: t for t in best_trials(log).values()}
    assert conv.digest not in {t.kernel for t in log}
    assert actions_of(conv.candidates[seeds(conv, log)[0]]) == best["conv2d"].actions
