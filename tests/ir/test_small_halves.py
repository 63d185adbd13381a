"""What halves hold of small numbers, and what the analysis of precision knows."""

import itertools
import math
import time
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from adrenoc.base.tvmapi import BufferLoad, Var, call, decl_buffer, fconst, tirx
from adrenoc.check.accuracy.bench import HalfTensors
from adrenoc.check.accuracy.judge_preset import NODES, Effort, Unit, rank_units
from adrenoc.ir.graph import Body, Graph, Node, Tensor
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.kernels.families.shared.operator import sums_over_taps
from adrenoc.passes.precision.analysis import FROM_ZERO, Analysis, Expression, Interval, Known
from adrenoc.passes.precision.keep_float32 import SHARE
from tests.ir.planning import plan
from tests.models import graph

FLUSHES = """title = "one that flushes"
base = "adreno:750"
[[quirks]]
name = "measured-half-denormals"
text = "Halves below 6.1e-5 are zeros."
source = "measured on one"
avoid = ["half-denormals"]
"""


@pytest.mark.parametrize(
    ("epsilon", "kept"), [(1e-8, (True, True)), (5e-5, (False, True)), (1e-3, (False, False))]
)
def test_a_distance_kept_from_zero(epsilon, kept, tmp_path):
    file = tmp_path / "flushes.toml"
    file.write_text(FLUSHES)
    weights = np.random.default_rng(1).standard_normal((4, 4, 1, 1)).astype(np.float32)
    model = graph(
        "c = Conv(x, w) a = Abs(c) d = Add(a, e) p = MaxPool <kernel_shape = [2, 2]>(d) "
        "r = Reciprocal(p) y = Conv(r, w)",
        {"x": [1, 4, 8, 8]},
        ["y"],
        {"e": np.array(epsilon, np.float32), "w": weights},
    )
    found = []
    for device in ("adreno:750", str(file)):
        state = plan(model, until="keep_float32", device=device, keep_float32=True)
        found.append(bool([d for d in state.log if "makes more of a rounding" in d.reason]))
    assert tuple(found) == kept
    assert [d.reason for d in state.log if d.taken == "without half-denormals"] == [
        "quirk measured-half-denormals: measured on one"
    ]


_RANDOM = np.random.default_rng(3)


def _gated(*, side: int = 48, weights: float = 1.0, exact: bool = False) -> onnx.ModelProto:
    """Two convolutions of a picture, and a gate for each channel of its mean."""

    def draw(*shape: int) -> np.ndarray:
        value = _RANDOM.uniform(-weights, weights, shape).astype(np.float32)
        return value.astype(np.float16).astype(np.float32) if exact else value

    nodes = (
        "a = Conv <pads = [1, 1, 1, 1]>(x, w0) map = Relu(a) mean = GlobalAveragePool(map) "
        "b = Conv(mean, w1) gate = Sigmoid(b) gated = Mul(map, gate) "
        "y = Conv <pads = [1, 1, 1, 1]>(gated, w2)"
    )
    constants = {"w0": draw(16, 3, 3, 3), "w1": draw(16, 16, 1, 1), "w2": draw(16, 16, 3, 3)}
    return graph(nodes, {"x": [1, 3, side, side]}, ["y"], constants)


def _kept(model: onnx.ModelProto, preset: str = "mixed") -> set[str]:
    state = plan(model, until="keep_float32", preset=preset, keep_float32=True)
    kept = set(state.graph.float32_names)
    sizes = {n: int(np.prod(state.graph.tensors[n].shape)) for n in kept}
    told = [d for d in state.log if "smallest" in d.subject]
    assert len(told) == (preset == "mixed" and any(s < 1000 for s in sizes.values()))
    return kept


def test_a_gate_its_mean_and_small_weights_are_exact():
    kept = _kept(_gated())
    assert {"mean", "gate"} <= kept
    assert not {"map", "gated"} & kept
    small = [n for n in kept if n.startswith("const") or n in ("w0", "w1")]
    assert len(small) >= 2, kept


def test_a_small_part_lies_in_the_whole():
    """So as the halves of ShuffleNetV2's units: a part of another dtype would be moved."""
    nodes = "a = Conv(x, w0) b = Conv(x, w1) c = Concat <axis=1>(a, b) y = Conv(c, w2)"
    shapes = {"w0": (252, 3, 1, 1), "w1": (4, 3, 1, 1), "w2": (16, 256, 1, 1)}
    constants = {n: _RANDOM.uniform(-1, 1, s).astype(np.float32) for n, s in shapes.items()}
    kept = _kept(graph(nodes, {"x": [1, 3, 96, 96]}, ["y"], constants))
    assert not kept & {"a", "b", "c"}
    assert any(n.startswith("const") or n == "w1" for n in kept), kept


def test_weights_that_halves_hold_need_no_more():
    assert not any(n.startswith("const") or n in ("w0", "w1") for n in _kept(_gated(exact=True)))


def test_no_more_than_the_share_is_spent():
    """Of a small picture the weights are too large a part of what is in half."""
    state = plan(_gated(side=8), until="keep_float32", keep_float32=True)
    tensors = state.graph.tensors
    learned = [n for n in state.graph.float32_names if n != "x" and n not in state.graph.outputs]
    total = sum(int(np.prod(t.shape)) for t in tensors.values())
    assert sum(int(np.prod(tensors[n].shape)) for n in learned) <= SHARE * total


@pytest.mark.parametrize("preset", ("fp16", "fp32"))
def test_other_presets_stay_as_they_are(preset):
    """In fp16 it would be arithmetic, too, which costs what was asked for."""
    assert "gate" not in _kept(_gated(), preset)


_RANDOM_MAPS = np.random.default_rng(5)


def _hourglass(levels: int, *, widened: int | None = None, side: int = 128) -> onnx.ModelProto:
    """So many convolutions that halve a picture, as many (or `widened`) that double it, a mask."""
    nodes, constants, name, channels = "", {}, "x", 3

    def add(op: str, made: str, side: int, how: str) -> None:
        nonlocal nodes, name, channels
        shape = (channels, 8, side, side) if op == "ConvTranspose" else (8, channels, side, side)
        constants[f"w_{made}"] = _RANDOM_MAPS.normal(0, 0.2, shape).astype(np.float32)
        nodes += f"c_{made} = {op} <{how}>({name}, w_{made}) {made} = Relu(c_{made}) "
        name, channels = made, 8

    add("Conv", "stem", 3, "pads = [1, 1, 1, 1]")
    for level in range(levels):
        add("Conv", f"down{level}", 3, "pads = [1, 1, 1, 1], strides = [2, 2]")
    for level in range(levels if widened is None else widened):
        add("ConvTranspose", f"up{level}", 2, "strides = [2, 2]")
    constants["last"] = _RANDOM_MAPS.normal(0, 0.2, (1, 8, 1, 1)).astype(np.float32)
    nodes += f"logit = Conv({name}, last) mask = Sigmoid(logit)"
    return graph(nodes, {"x": [1, 3, side, side]}, ["mask"], constants)


def _kept_maps(model: onnx.ModelProto, preset: str = "mixed") -> tuple[set[str], list[str]]:
    state = plan(model, until="keep_float32", preset=preset, keep_float32=True)
    told = [d.subject for d in state.log if d.reason.startswith("it is as fine as")]
    return set(state.graph.float32_names), told


def test_all_that_a_mask_is_computed_of_lies_in_float32():
    kept, told = _kept_maps(_hourglass(3))
    assert {"stem", *(f"{way}{level}" for way in ("down", "up") for level in range(3))} <= kept
    assert told == ["mask"]
    weights = [n for n in kept if n.startswith("const")]
    assert len(weights) == 8, "weights are rounded as tensors are"


@pytest.mark.parametrize(
    "model",
    [_hourglass(2), _hourglass(3, widened=2), _hourglass(3, widened=0), _hourglass(3, side=96)],
    ids=["little narrowed", "coarser than the picture", "narrowed alone", "latents"],
)
def test_other_networks_of_pictures_keep_their_halves(model):
    kept, told = _kept_maps(model)
    assert not {"stem", "down0"} & kept
    assert not told


def test_what_widens_and_never_narrowed_is_no_mask():
    _, told = _kept_maps(_hourglass(0, widened=3))
    assert not told


def test_a_map_that_is_resized_is_as_fine_as_it_becomes():
    model = _hourglass(3, widened=2)
    model.graph.output[0].name = "large"
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 1, 2, 2]), "scales"))
    model.graph.node.append(helper.make_node("Resize", ["mask", "", "scales"], ["large"]))
    kept, told = _kept_maps(model)
    assert {"stem", "down0", "down2", "up1", "mask"} <= kept
    assert told == ["large"]


def test_fp16_computes_as_it_was_asked_to():
    kept, told = _kept_maps(_hourglass(3), preset="fp16")
    assert "down0" not in kept
    assert not told


_AXIS = Var("i", "int64")
_X, _Y = (decl_buffer((8,), "float32", name) for name in "xy")


def _load(buffer):
    return BufferLoad(buffer, [_AXIS])


def _known(value, **tensors: Known) -> Known:
    """What is known of a map's elements, which reads tensors x and y."""
    body = Body(axes=(_AXIS,), value=value, sources={_X: "x", _Y: "y"})
    return Expression(body, tensors).element()


def _number(value: float):
    return fconst(value, "float32")


def _of(name: str, value):
    return call(f"tirx.{name}", [value], "float32")


def _clip(value, low: float, high: float):
    return tirx.Min(tirx.Max(value, _number(low)), _number(high))


def test_what_is_rounded_and_cut_off_is_whole_and_fits_a_byte():
    known = _known(_clip(_of("round", _load(_X)), -117, 138))
    assert known.whole
    assert known.interval == Interval(-117, 138)
    assert not _known(_clip(_load(_X), -117, 138)).whole


def test_a_conversion_that_cannot_fit_takes_the_ends_of_its_type():
    cut = _clip(_of("round", _load(_X)), 0, 300)
    known = _known(tirx.Cast("float32", tirx.Cast("uint8", cut)))
    assert known.whole
    assert known.interval == Interval(0, 255)


def test_ends_follow_sums_products_and_choices():
    positive = Known(interval=FROM_ZERO)
    x, y = _load(_X), _load(_Y)
    assert _known(x + y, x=positive, y=positive).interval == FROM_ZERO
    assert _known(x - y, x=positive, y=positive).interval == Interval()
    assert _known(_number(-2) * x, x=positive).interval == Interval(high=0)
    assert _known(x * x).interval == FROM_ZERO
    assert _known(tirx.Select(x < y, _number(3), _number(-1))).interval == Interval(-1, 3)


def test_deep_and_shared_expressions_take_one_look_a_part():
    deep = shared = _load(_X)
    for _ in range(3000):
        deep = deep + _number(1)
    for _ in range(64):
        shared = shared * shared
    assert _known(deep, x=Known(interval=FROM_ZERO)).interval.low == 3000
    assert _known(shared).interval == FROM_ZERO


def test_a_long_graph_takes_no_deep_stack():
    names = [f"t{n}" for n in range(3001)]
    tensors = {n: Tensor(name=n, shape=(8,), dtype="float32") for n in names}
    nodes = []
    for source, made in pairwise(names):
        body = Body(axes=(_AXIS,), value=_load(_X) * _number(0.5), sources={_X: source})
        nodes.append(Node(name=made, op="map", inputs=(source,), output=made, body=body))
    graph = Graph(tensors=tensors, nodes=tuple(nodes), inputs=("t0",), outputs=("t3000",))
    assert not Analysis(graph)["t3000"].whole


def test_each_operator_that_passes_read_says_what_data_of_one_becomes():
    for operator in OPERATORS.values():
        made_of_others = not operator.relax and operator.name != "attention"
        assert (operator.typical is None) == made_of_others, operator.name


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("size", [1e-4, 1.0, 100.0])
def test_squares_of_weights_are_as_large_as_they_are(size, dtype):
    """Of halves, those of 1e-4 are none in half and nine of 100 are infinite."""
    weights = np.full((3, 2, 4, 5), size, dtype)
    weights[:, 1] *= -2
    sums, squares = sums_over_taps(weights, (0, 2))
    one = float(weights[0, 0, 0, 0])
    np.testing.assert_allclose(sums, np.outer([12, -24], [one] * 5), 1e-5)
    np.testing.assert_allclose(squares, np.outer([12, 48], [one**2] * 5), 1e-5)


ERRORS = {"a": 1e-2, "b": 1e-5, "c": 5e-3, "d": 5e-3, "e": 1e-5}
BYTES = {"a": 100, "b": 1, "c": 10_000, "d": 100, "e": 1_000_000}


def _rank(errors: Mapping[str, float], effort: Effort, bytes_more: Mapping[str, int]) -> list[str]:
    """The order, where errors are independent and of known sizes."""
    units = [
        Unit(
            tensors=(name,),
            stored=HalfTensors(tensors=frozenset({name}), constants=frozenset()),
            bytes_more=bytes_more[name],
        )
        for name in errors
    ]

    def measure(stored: HalfTensors) -> float:
        effort.run()
        return sum(errors[name] ** 2 for name in stored.tensors)

    return [unit.tensors[0] for unit in rank_units(units, measure, effort)]


def test_what_adds_most_for_its_bytes_comes_first():
    effort = Effort(nodes=5)
    assert _rank(ERRORS, effort, BYTES) == ["a", "d", "c", "b", "e"]
    assert effort.left == () and effort.runs == 9


def test_what_overflows_comes_first():
    assert _rank({**ERRORS, "e": math.inf}, Effort(nodes=5), BYTES)[0] == "e"


def test_the_largest_of_many_is_found_by_halves():
    errors = {f"t{number}": 1e-9 for number in range(256)}
    effort = Effort(nodes=256)
    order = _rank({**errors, "t77": 1e-3}, effort, dict.fromkeys(errors, 4))
    assert order[0] == "t77" and effort.runs == 1 + 2 * 8


def test_out_of_effort_the_order_is_what_is_known_and_says_so():
    effort = Effort(nodes=5, share=0.0)
    assert _rank(ERRORS, effort, BYTES) == list(ERRORS)
    assert effort.left == ("5 tensors to round alone",)
    assert _rank({}, effort, {}) == []


def test_an_order_ends_by_its_work_and_not_by_the_clock(monkeypatch):
    """A machine that is busy for a day between two measurements changes nothing."""
    found = []
    for step_s in (0.0, 86_400.0):
        clock = itertools.count(0.0, step_s) if step_s else itertools.repeat(0.0)
        for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
            monkeypatch.setattr(time, name, lambda clock=clock: next(clock))
        effort = Effort(nodes=5, share=4 / NODES)
        found.append((_rank(ERRORS, effort, BYTES), effort.runs, effort.left))
    assert found[0] == found[1] and found[0][-1]
