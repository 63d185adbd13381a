"""Files that random damage broke the importers with: each ends in an error."""

import resource

import numpy as np
import onnx
import pytest
from fuzz import harness, mutate

from adrenoc.base import errors
from tests.ir import fuzz_judges
from tests.ir.damaged_onnx import CASES, joined, looping, scanning
from tests.ir.planning import plan_as_user
from tests.models import network
from tests.tflite.build import ModelBuilder, T, constant, write_operator


@pytest.mark.parametrize("name", CASES)
def test_damaged_onnx(tmp_path, name):
    make, said = CASES[name]
    made = make()
    content = made if isinstance(made, bytes) else made.SerializeToString()
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(errors.AdrenocError, match=said) as caught:
        plan_as_user(tmp_path / "model.onnx")
    assert caught.value.hint


def test_what_the_damaged_control_flow_was_made_from_is_sound(tmp_path):
    for number, model in enumerate((scanning(), joined(), looping(takes=3))):
        onnx.save(model, tmp_path / f"{number}.onnx")
        plan_as_user(tmp_path / f"{number}.onnx")


@pytest.mark.parametrize("number", range(24))
def test_random_damage_ends_in_a_result_or_an_error(tmp_path, number):
    """The same damage each time; thousands of others: scripts/fuzz_models."""
    seeds = [
        ("mixed_small.tflite", network("mixed_small", size=17, width=0.5)),
        ("squeezenet.onnx", network("squeezenet", size=32, width=0.25)),
    ]
    name, content = mutate.case(seeds, seed=1, number=number)
    (tmp_path / name).write_bytes(content)
    assert not harness.judge(tmp_path / name, raises=True).is_finding


@pytest.mark.parametrize(
    ("judges", "kind"),
    [
        (fuzz_judges.spin, "hang"),
        (fuzz_judges.wait, "planned"),
        (fuzz_judges.fill, "memory"),
        (fuzz_judges.end, "died"),
    ],
)
def test_what_becomes_of_a_case_is_seen(tmp_path, monkeypatch, judges, kind):
    """A case that waits for the processor longer than the limit has not used it up."""
    monkeypatch.setattr(harness, "LIMIT_S", 1.0)
    monkeypatch.setattr(harness, "LIMIT_BYTES", 1 << 28)
    found = harness.run(range(2), lambda n: ("m.onnx", str(n).encode()), tmp_path, judges)
    assert [outcome.kind for _, outcome in found] == [kind, "planned"]


def peak_bytes() -> int:
    """The most that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_a_tflite_output_that_its_operator_never_makes(tmp_path):
    """SOFTMAX has one result; the file says two, and that the second is the graph's output."""
    model = ModelBuilder()
    main = model.graph()
    results = [T(shape=(2, 3)), T(shape=(2, 3))]
    _, second = main.op("SOFTMAX", [main.add(FLOATS)], results, "SoftmaxOptions", {"beta": 1.0})
    main.outputs = [second]
    (tmp_path / "model.tflite").write_bytes(model.write())
    with pytest.raises(errors.ModelFormatError, match="no operator makes it") as caught:
        plan_as_user(tmp_path / "model.tflite")
    assert caught.value.hint


FLOATS, WHOLE = (T(dtype=d, data=np.zeros((2, 3), d)) for d in ("float32", "int32"))
IMAGE = T(data=np.zeros((1, 4, 4, 2), np.float32))
WEIGHT = constant(np.zeros((3, 2, 2, 2)), "float32")
VAST = 1 << 28
STILL = r"StrideHW of .*expected 1 or more"
FULL = "constant elements, expected up to"
TFLITE: dict[str, tuple[list[T], str, dict[str, object], str]] = {
    "CONV_2D": ([IMAGE, WEIGHT], "Conv2DOptions", {"strideH": 0}, STILL),
    "TRANSPOSE_CONV": (
        *([constant([1, 4, 4, 3]), WEIGHT, IMAGE], "TransposeConvOptions", {"strideH": 0}),
        STILL,
    ),
    "AVERAGE_POOL_2D": ([IMAGE], "Pool2DOptions", {"strideH": 0}, STILL),
    "MIRROR_PAD": (
        *([WHOLE, constant([[0, 0], [0, VAST]])], "MirrorPadOptions", {"mode": 1}),
        f"mirrors 0 and {VAST} of 3",
    ),
    "RANGE": ([constant(n) for n in (0, VAST, 1)], "RangeOptions", {}, FULL),
    "ONE_HOT": ([WHOLE, *map(constant, (VAST, 1, 0))], "OneHotOptions", {"axis": -1}, FULL),
    "SPARSE_TO_DENSE": ([*map(constant, ([0], [VAST], 1, 0))], "SparseToDenseOptions", {}, FULL),
    "SCATTER_ND": ([*map(constant, ([[0]], [1], [VAST]))], "ScatterNdOptions", {}, FULL),
    "SKIP_GRAM": ([FLOATS], "", {}, "SKIP_GRAM"),
}


@pytest.mark.parametrize("kind", TFLITE)
def test_tflite_operators_that_are_refused_cost_no_memory(tmp_path, kind):
    """Neither a few numbers that ask for a vast constant nor what stands in for a result do."""
    operands, options, values, said = TFLITE[kind]
    extents = {"SKIP_GRAM": (1 << 14, 1 << 14), STILL: (1, 4, 4, 3)}
    shape = extents.get(kind) or extents.get(said, (2, 3))
    result = T(dtype=operands[-1].dtype, shape=shape)
    model = write_operator(tmp_path, kind, operands, result, options, values)
    before = peak_bytes()
    with pytest.raises(errors.UnsupportedOperatorError, match=said):
        plan_as_user(model)
    assert peak_bytes() - before < VAST


@pytest.mark.parametrize("scale", (0.0, -0.02, np.nan, np.inf))
@pytest.mark.parametrize("each", (False, True), ids=("one", "a channel"))
def test_tflite_scales_that_measure_nothing(tmp_path, scale, each):
    scales = (0.5, scale) if each else (scale,)
    x = T(shape=(1, 2), dtype="int8", scales=scales, zeros=(0,) * len(scales), axis=1)
    model = write_operator(tmp_path, "DEQUANTIZE", [x], T(shape=(1, 2)))
    with pytest.raises(errors.ModelFormatError) as caught:
        plan_as_user(model)
    where = " at channel 1" if each else ""
    assert f"'x' has the scale {scale:g}{where}; expected" in str(caught.value)
