"""What is known of numbers by their formulas, and in which order tensors are tried in float32."""

import itertools
import math
import time
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

from adrenoc.base.tvmapi import BufferLoad, Var, call, decl_buffer, fconst, tirx
from adrenoc.check.accuracy.bench import HalfTensors
from adrenoc.check.accuracy.judge_preset import NODES, Effort, Unit, rank_units
from adrenoc.ir.graph import Body, Graph, Node, Tensor
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.kernels.families.shared.typical import sums_over_taps
from adrenoc.passes.precision.analysis import FROM_ZERO, Analysis, Expression, Interval, Known

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
