"""Which candidates are tried next, on what they are launched, and as the cost model ranks."""

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.cli.main import main
from adrenoc.cli.plan_shapes import plan_shapes
from adrenoc.ir.layout import Layout, Memory, OperandSpec
from adrenoc.ir.options import resolve_options
from adrenoc.ir.tuning_log import read_log
from adrenoc.kernels.families.shared.schedule import actions_of
from adrenoc.lab.tune import tasks
from adrenoc.lab.tune.tasks import (
    PATTERN,
    TunePlan,
    VariantBuilder,
    is_repeated,
    plan_model,
    random_value,
)
from adrenoc.target.target import load_target
from tests.host.decoder_bundles import DecoderShape, write_decoder
from tests.tune.planted_kernels import plan_small, small_model

pytest.importorskip("xgboost", reason="pip install '.[tune]'")

from adrenoc.lab.tune.search import LearnedCostModel, Search, features


@dataclass(kw_only=True, eq=False)
class PlantedTask:
    """A grid of two actions; the estimate knows of the first one alone."""

    digest: str = "planted"
    family: str = "conv2d"
    width: int = 16
    hopeless: frozenset[int] = frozenset()
    choice: Any = field(default_factory=lambda: SimpleNamespace(work={"output": [[1, 8, 16, 16]]}))

    @property
    def candidates(self) -> tuple[int, ...]:
        return tuple(range(self.width * self.width))

    @property
    def actions(self) -> tuple[dict[str, int], ...]:
        return tuple({"a": 1 + n // self.width, "b": 1 + n % self.width} for n in self.candidates)

    @property
    def estimates(self) -> tuple[float, ...]:
        return tuple(
            math.inf if n in self.hopeless else 1.0 + n // self.width for n in self.candidates
        )

    def time_us(self, number: int) -> float:
        """The best one has the least estimate's neighbour and a `b` that nobody estimates."""
        a, b = divmod(number, self.width)
        return 10.0 * (1 + abs(math.log2((1 + a) / 2)) + abs(math.log2((1 + b) / 11)))


def _found(task, trials: int, *, seed: int = 1, batch: int = 8) -> list[int]:
    """What a search proposes, in its order."""
    search = Search(task, LearnedCostModel([task]), seed=seed)
    order: list[int] = []
    while len(order) < trials and not search.is_exhausted:
        numbers = search.propose(batch)
        order += numbers
        search.tell({n: task.time_us(n) for n in numbers})
    return order


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_measured_leads_to_the_best(seed):
    task = PlantedTask()
    order = _found(task, 80, seed=seed)
    best_us = min(map(task.time_us, order))
    ranks = sorted(map(task.time_us, task.candidates))
    assert best_us <= ranks[5], "a third of the space finds one of its best two in a hundred"
    assert best_us < min(map(task.time_us, order[:8])), "the estimates alone do not"


def test_all_are_proposed_once():
    task = PlantedTask(width=7)
    assert sorted(_found(task, 1000)) == list(task.candidates)


def test_the_same_seed_proposes_the_same():
    assert _found(PlantedTask(), 64, seed=5) == _found(PlantedTask(), 64, seed=5)


def test_seeds_come_first_and_what_is_known_not_again():
    task = PlantedTask()
    known = {n: task.time_us(n) for n in (3, 4)}
    search = Search(task, LearnedCostModel([task]), known=known, seeds=(9, 4, 9, 200))
    first = search.propose(4)
    assert first[:2] == [9, 200]
    assert not {3, 4} & {*first, *search.propose(300)}
    assert search.is_exhausted


def test_hopeless_estimates_are_finite_features():
    """XGBoost takes no infinite numbers: a tuner that met one ended with a traceback."""
    task = PlantedTask(hopeless=frozenset(range(100, 256)))
    assert np.isfinite(features(task)).all()
    assert len(_found(task, 300)) == 256
    hopeless = PlantedTask(hopeless=frozenset(range(256)))
    assert np.isfinite(features(hopeless)).all()


def test_failures_teach_without_an_end():
    """Nothing runs on this device: the search goes on to the end of the space."""
    task = PlantedTask(width=8)
    search = Search(task, LearnedCostModel([task]))
    for _ in range(8):
        search.tell({n: None for n in search.propose(8)})
    assert search.is_exhausted


def test_one_task_teaches_about_another():
    """Kernels of a family share the model: what was good for one is tried first for the next."""
    first, second = PlantedTask(digest="first"), PlantedTask(digest="second")
    model = LearnedCostModel([first, second])
    numbers = list(first.candidates)
    model.learn("first", {n: first.time_us(n) for n in numbers})
    proposed = Search(second, model).propose(8)
    ranks = sorted(map(second.time_us, second.candidates))
    assert min(map(second.time_us, proposed)) <= ranks[8]


def _tune(folder: Path, *options: str) -> int:
    onnx.save(small_model(), folder / "small.onnx")
    log = str(folder / "log")
    return main(
        ["tune", "run", str(folder / "small.onnx"), "--device", "adreno:750", "-o", log, *options]
    )


def test_the_cost_model_ranks(tmp_path, capsys):
    assert _tune(tmp_path, "--offline") == 0
    assert "ranked by the cost model" in capsys.readouterr().out
    assert read_log(tmp_path / "log") == ()


def test_the_next_command_compiles_the_kernels_that_were_tuned(tmp_path, capsys):
    assert _tune(tmp_path, "--offline", "--preset", "fp16", "--set", "int8_prompts=true") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert " --preset fp16 --set int8_prompts=true --tuning-log " in told


def test_candidates_are_in_the_order_of_the_estimate(tmp_path):
    for task in plan_small(tmp_path).tasks:
        assert list(task.estimates) == sorted(task.estimates)
        assert task.position(actions_of(task.candidates[3])) == 3
        assert task.position({"work_group": [7, 7, 7]}) is None


LARGE = (1, 16, 40, 40)


def _spec(
    shape: tuple[int, ...], dtype: str = "float32", memory: Memory = Memory.TEXTURE
) -> OperandSpec:
    return OperandSpec(shape, dtype, memory, Layout("NCHW"))


@pytest.mark.parametrize("memory", [Memory.TEXTURE, Memory.PLAIN])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_a_large_input_is_sent_as_a_pattern(memory, dtype):
    spec = _spec(LARGE, dtype, memory)
    assert is_repeated(spec)
    value = random_value(spec, "seed")
    assert (value.shape, value.dtype) == ((PATTERN,), np.dtype(dtype))
    assert len(np.unique(value)) > 1


def test_rows_and_blocks_of_a_pattern_differ():
    """A kernel that reads the wrong row or block is found: the period divides neither."""
    assert all(PATTERN % factor for factor in range(2, math.isqrt(PATTERN) + 1))


@pytest.mark.parametrize("shape", [(1, 15, 40, 40), (1, 4, 5, 5)])
def test_inputs_with_empty_lanes_and_small_ones_are_sent_whole(shape):
    spec = _spec(shape)
    assert not is_repeated(spec)
    value = random_value(spec, "seed")
    assert value.shape == spec.physical
    if shape[1] % 4:
        assert not value[-1, ..., shape[1] % 4 :].any()


def test_words_of_bytes_are_sent_whole():
    spec = _spec((1, 64, 40, 40), "uint32", Memory.BYTES)
    assert not is_repeated(spec)
    assert random_value(spec, "seed").shape == spec.physical


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> TunePlan:
    return plan_small(tmp_path_factory.mktemp("plan"))


def _constants(plan: TunePlan) -> list[dict[str, Any]]:
    """What each candidate of the convolution has of constants, by name."""
    (conv,) = [task for task in plan.tasks if task.family == "conv2d"]
    found = []
    for tile in conv.candidates:
        call, context = plan.call(conv, tile)
        names = [name for name in call.arguments if name in context.params]
        found.append({name: context.params[name].value for name in names})
    return found


def test_candidates_share_packed_constants(plan):
    """Packing a weight takes longer than writing the kernel that reads it."""
    packed: Counter[int] = Counter()
    for constants in _constants(plan):
        assert constants
        packed.update({id(value): 1 for value in constants.values()})
    assert max(packed.values()) > 1
    assert len(packed) == len(plan.packed)


def test_packed_constants_stay_few(plan, monkeypatch):
    wanted = _constants(plan)
    monkeypatch.setattr(tasks, "PACKED_BYTES", 1)
    assert len(plan.packed) > 2
    for ours, theirs in zip(_constants(plan), wanted, strict=True):
        assert ours.keys() == theirs.keys()
        assert all((ours[name] == theirs[name]).all() for name in ours)
    assert len(plan.packed) <= len(ours)


@pytest.mark.parametrize(("tokens", "family"), [(1, "step_attention"), (9, "cached_attention")])
def test_kernels_over_caches_are_measured_with_half_of_the_rows(tmp_path, tokens, family):
    model = write_decoder(tmp_path, DecoderShape(layers=2, context=64))
    shaped = plan_shapes(model, (), (None, str(tokens)), (), accurate=False)
    target = load_target("host")
    said = {"shapes": shaped.buckets[-1], "caches": shaped.caches}
    options = resolve_options(target, preset=None, command_line=said).options
    plan = plan_model(model, target=target, options=options, reporter=SilentReporter())
    by_family = {task.family: task for task in plan.tasks}
    # What adds rows leaves the others as they were: two runs onto other contents differ.
    assert "append_rows" not in by_family
    assert len(by_family[family].candidates) > 1
    variant = VariantBuilder(plan, tmp_path)(by_family[family], 0)
    whole = [argument.file for argument in variant.arguments if argument.dtype.startswith("int")]
    assert [np.load(file).tolist() for file in whole] == [[32]]
