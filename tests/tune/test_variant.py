"""What candidates are launched on."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.cli.plan_shapes import plan_shapes
from adrenoc.ir.layout import Layout, Memory, OperandSpec
from adrenoc.ir.options import resolve_options
from adrenoc.lab.tune import tasks
from adrenoc.lab.tune.tasks import TunePlan, plan_model
from adrenoc.lab.tune.variant import PATTERN, VariantBuilder, is_repeated, random_value
from adrenoc.target.target import load_target
from tests.host.decoder_bundles import DecoderShape, write_decoder
from tests.tune.planted_kernels import plan_small

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
def plan(tmp_path_factory: pytest.TempPathFactory) -> TunePlan:
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
