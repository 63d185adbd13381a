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
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    model = ModelBuilder()
    main = model.graph()
    x = main.add(T(data=np.zeros((2, 3), np.float32)), "x")
    results = [T(shape=(2, 3)), T(shape=(2, 3))]
    _, second = main.op("SOFTMAX", [x], results, "SoftmaxOptions", {"beta": 1.0})
    main.outputs = [second]
    (tmp_path / "model.tflite").write_bytes(model.write())
    with pytest.raises(errors.ModelFormatError, match="no operator makes it") as caught:
        plan_as_user(tmp_path / "model.tflite")
    assert caught.value.hint


@pytest.mark.parametrize("kind", ("CONV_2D", "TRANSPOSE_CONV", "AVERAGE_POOL_2D"))
def test_tflite_windows_that_do_not_move(tmp_path, kind):
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    model = ModelBuilder()
    main = model.graph()
    x = main.add(T(data=np.zeros((1, 4, 4, 2), np.float32)), "x")
    weight = main.add(T(data=np.zeros((3, 2, 2, 2), np.float32), is_constant=True))
    shape = main.add(T(dtype="int32", data=np.array([1, 4, 4, 3], np.int32), is_constant=True))
    inputs, options = {
        "CONV_2D": ([x, weight], "Conv2DOptions"),
        "TRANSPOSE_CONV": ([shape, weight, x], "TransposeConvOptions"),
        "AVERAGE_POOL_2D": ([x], "Pool2DOptions"),
    }[kind]
    main.outputs = main.op(kind, inputs, [T(shape=(1, 4, 4, 3))], options, {"strideH": 0})
    (tmp_path / "model.tflite").write_bytes(model.write())
    with pytest.raises(errors.UnsupportedOperatorError, match=r"StrideHW of .*expected 1 or more"):
        plan_as_user(tmp_path / "model.tflite")


VAST = 1 << 28
TFLITE: dict[str, tuple[list[object], str, dict[str, object], str]] = {
    "MIRROR_PAD": (
        [[[0, 0], [0, VAST]]],
        "MirrorPadOptions",
        {"mode": 1},
        f"mirrors 0 and {VAST} of 3",
    ),
    "RANGE": ([0, VAST, 1], "RangeOptions", {}, "constant elements, expected up to"),
    "ONE_HOT": ([VAST, 1, 0], "OneHotOptions", {"axis": -1}, "constant elements, expected up to"),
    "SPARSE_TO_DENSE": (
        [[0], [VAST], 1, 0],
        "SparseToDenseOptions",
        {},
        "constant elements, expected up to",
    ),
    "SCATTER_ND": ([[[0]], [1], [VAST]], "ScatterNdOptions", {}, "constant elements, expected"),
}


@pytest.mark.parametrize("kind", TFLITE)
def test_tflite_constants_of_a_gibibyte(tmp_path, kind):
    """A few numbers of the file that ask for a constant which fills all memory."""
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    held, options, values, said = TFLITE[kind]
    model = ModelBuilder()
    main = model.graph()
    x = main.add(T(dtype="int32", data=np.zeros((2, 3), np.int32)), "x")
    numbers = [np.array(v, np.int32) for v in held]
    inputs = [main.add(T(dtype="int32", data=n, is_constant=True)) for n in numbers]
    takes_x = kind in ("MIRROR_PAD", "ONE_HOT")
    made = main.op(kind, [x] * takes_x + inputs, [T(dtype="int32", shape=(2, 3))], options, values)
    main.outputs = made
    (tmp_path / "model.tflite").write_bytes(model.write())
    before = peak_bytes()
    with pytest.raises(errors.UnsupportedOperatorError, match=said):
        plan_as_user(tmp_path / "model.tflite")
    assert peak_bytes() - before < 1 << 28


def test_a_tflite_operator_that_is_refused_costs_no_memory(tmp_path):
    """What stands in for its result is not filled with a gibibyte of zeros."""
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    model = ModelBuilder()
    main = model.graph()
    x = main.add(T(data=np.zeros((2, 3), np.float32)), "x")
    main.outputs = main.op("SKIP_GRAM", [x], [T(shape=(1 << 14, 1 << 14))])
    (tmp_path / "model.tflite").write_bytes(model.write())
    before = peak_bytes()
    with pytest.raises(errors.UnsupportedOperatorError, match="SKIP_GRAM"):
        plan_as_user(tmp_path / "model.tflite")
    assert peak_bytes() - before < 1 << 28


@pytest.mark.parametrize("scale", (0.0, -0.02, np.nan, np.inf))
@pytest.mark.parametrize("each", (False, True), ids=("one", "a channel"))
def test_tflite_scales_that_measure_nothing(tmp_path, scale, each):
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    scales = (0.5, scale) if each else (scale,)
    model = ModelBuilder()
    main = model.graph()
    x = T(shape=(1, 2), dtype="int8", scales=scales, zeros=(0,) * len(scales), axis=1)
    main.outputs = main.op("DEQUANTIZE", [main.add(x, "x")], [T(shape=(1, 2))])
    (tmp_path / "model.tflite").write_bytes(model.write())
    with pytest.raises(errors.ModelFormatError) as caught:
        plan_as_user(tmp_path / "model.tflite")
    where = " at channel 1" if each else ""
    assert f"'x' has the scale {scale:g}{where}; expected" in str(caught.value)
