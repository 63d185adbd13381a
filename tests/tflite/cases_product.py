"""Cases of products, recurrent operators, reductions and norms, and of weights in integers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.tflite.build import ModelBuilder, T
from tests.tflite.cases import (
    F32,
    RELU,
    Make,
    Recipe,
    Recipes,
    b,
    f,
    i,
    it,
    k,
    none,
    one,
    q,
    qb,
    qt,
    qw,
    recipe,
    state,
    w,
)
from tests.tflite.cases_window import conv_values


def recipes() -> Recipes:
    yield from _products()
    yield from _hybrids()
    yield from _recurrent()
    yield from _lstms()
    yield from _reductions()
    yield from _segments()
    yield from _norms()


def _products() -> Recipes:
    dense, out8 = partial(recipe, "FULLY_CONNECTED"), [qt("int8", 0.03, 5)]
    yield dense("", [f(3, 10), w(7, 10), w(7)])
    yield dense("no_bias", [f(3, 10), w(7, 10), none])
    yield dense("flattens", [f(2, 3, 10), w(7, 10), w(7)])
    yield dense("keeps", [f(2, 3, 10), w(7, 10), w(7)], values={"keepNumDims": True, **RELU})
    yield dense("runtime_weights", [f(3, 10), f(7, 10), none])
    x8 = q(3, 10, zero=4)
    yield dense("int8", [x8, qw(7, 10), qb(7)], out8)
    yield dense("int8_channels", [x8, qw(7, 10, axis=0), qb(7)], out8, RELU)
    deep = [q(2, 900, zero=4), qw(7, 900, axis=0), qb(7)]
    yield dense("int8_deep", deep, [qt("int8", 0.2, 5)])
    weights = q(7, 10, dtype="uint8", scale=0.01, zero=125, constant=True)
    x = q(3, 10, dtype="uint8", zero=120)
    yield dense("uint8", [x, weights, qb(7)], [qt("uint8", 0.03, 110)])
    wide = [q(3, 10, dtype="int16", scale=1e-4), qw(7, 10), qb(7, "int64", 50000)]
    yield dense("int16", wide, [qt("int16", 2e-4)])
    yield dense("int4", [x8, qw(7, 10, dtype="int4", scale=0.1), qb(7)], out8)
    matmul = partial(recipe, "BATCH_MATMUL")
    yield matmul("", [f(2, 3, 4), f(2, 4, 5)])
    yield matmul("adjoint", [f(2, 4, 3), f(2, 5, 4)], values={"adjX": True, "adjY": True})
    yield matmul("broadcast", [f(2, 3, 3, 4), f(3, 4, 5)])
    yield matmul("int8", [q(2, 3, 4, zero=4), q(2, 4, 5, zero=-3)], out8)


def _dequantised(made: ModelBuilder) -> bytes:
    """The model with its weights as the real numbers that they stand for."""
    graph = made.graphs[0]
    for tensor in graph.tensors:
        if tensor.quantization is None or tensor.buffer == 0:
            continue
        data = made._buffers[tensor.buffer].data
        stored = np.frombuffer(bytes(data), np.int8).reshape(tensor.shape).astype(np.float32)
        axis = tensor.quantization.quantizedDimension
        along = [-1 if a == axis else 1 for a in range(stored.ndim)]
        scales = np.asarray(tensor.quantization.scale, np.float32)
        real = stored * (scales.reshape(along) if scales.size > 1 else scales)
        tensor.type, tensor.quantization = 0, None
        tensor.buffer = made.buffer(T(data=real.astype(np.float32)))
    return made.write()


def _hybrid(build: Callable[..., Any]) -> Callable[..., Any]:
    """Data in float, weights in integers: what the weights stand for is the reference."""

    def both(r: np.random.Generator) -> tuple[ModelBuilder, bytes]:
        seed = int(r.integers(1 << 30))
        made, _ = build(np.random.default_rng(seed))
        plain, _ = build(np.random.default_rng(seed))
        return made, _dequantised(plain)

    return both


def _hybrids() -> Recipes:
    deep = [f(1, 9, 8, 6), qw(1, 3, 3, 6, axis=3), w(6)]
    for kind, inputs, values in (
        ("CONV_2D", [f(1, 9, 8, 5), qw(6, 3, 3, 5, axis=0), w(6)], conv_values()),
        ("DEPTHWISE_CONV_2D", deep, conv_values(depthMultiplier=1)),
        ("FULLY_CONNECTED", [f(3, 10), qw(7, 10), w(7)], RELU),
    ):
        build = _hybrid(one(kind, inputs, [F32], values))
        yield Recipe(name=f"{kind.lower()}_hybrid", operator=kind, build=build)


_BATCH, _STEPS, _IN, _UNITS, _OUT = 2, 3, 5, 4, 3
_SEQUENCE, _TIME_MAJOR = f(_BATCH, _STEPS, _IN), f(_STEPS, _BATCH, _IN)
_TANH = {"fusedActivationFunction": 4}


def _recurrent() -> Recipes:
    cell = [w(_UNITS, _IN), w(_UNITS, _UNITS), w(_UNITS), state(_BATCH, _UNITS)]
    yield recipe("RNN", "", [f(_BATCH, _IN), *cell], values=_TANH)
    sequence = partial(recipe, "UNIDIRECTIONAL_SEQUENCE_RNN")
    yield sequence("", [_SEQUENCE, *cell], values=RELU)
    yield sequence("time_major", [_TIME_MAJOR, *cell], values={**_TANH, "timeMajor": True})
    both = partial(recipe, "BIDIRECTIONAL_SEQUENCE_RNN")
    inputs = [_SEQUENCE, *cell, *cell, none, none, none]
    yield both("", inputs, [F32, F32], _TANH)
    yield both("merged", inputs, [F32], {**_TANH, "mergeOutputs": True})
    memory, filters, rank = 4, 6, 2
    held = [w(filters // rank), state(_BATCH, memory * filters)]
    svdf = [f(_BATCH, _IN), w(filters, _IN), w(filters, memory), *held]
    yield recipe("SVDF", "", svdf, values={"rank": rank, **RELU})


def _lstm(
    *, coupled: bool = False, peephole: bool = False, projection: bool = False, norm: bool = False
) -> tuple[list[Make], list[Make], list[Make]]:
    """The inputs of an LSTM after its data: weights, biases, projection, states, norms."""
    out = _OUT if projection else _UNITS
    skip: Make | None = none if coupled else None
    by_input = [skip or w(_UNITS, _IN), *[w(_UNITS, _IN)] * 3]
    by_state = [skip or w(_UNITS, out), *[w(_UNITS, out)] * 3]
    peep = [skip or w(_UNITS), w(_UNITS), w(_UNITS)] if peephole else [none] * 3
    biases = [skip or w(_UNITS), *[w(_UNITS)] * 3]
    project = [w(_OUT, _UNITS), w(_OUT)] if projection else [none, none]
    norms = [skip or w(_UNITS), *[w(_UNITS)] * 3] if norm else []
    states = [state(_BATCH, out), state(_BATCH, _UNITS)]
    return [*by_input, *by_state, *peep, *biases, *project], states, norms


def _lstms() -> Recipes:
    variants: dict[str, dict[str, bool]] = {
        "": {},
        "coupled": {"coupled": True},
        "peephole": {"peephole": True},
        "projection": {"projection": True, "peephole": True},
        "norm": {"norm": True},
    }
    values = {**_TANH, "cellClip": 3.0}
    sequence = partial(recipe, "UNIDIRECTIONAL_SEQUENCE_LSTM")
    for label, parts in variants.items():
        weights, states, norms = _lstm(**parts)
        held = [*weights, *states, *norms]
        yield sequence(label, [_SEQUENCE, *held], values=values)
        yield recipe("LSTM", label, [f(_BATCH, _IN), *held], values=values)
    weights, states, _ = _lstm()
    major = {**values, "timeMajor": True}
    yield sequence("time_major", [_TIME_MAJOR, *weights, *states], values=major)
    both = [_SEQUENCE, *weights, *weights, *states, *states, *[none] * 9]
    # With mergeOutputs LiteRT's own result differs from run to run: it reads what nobody wrote.
    apart = {**values, "mergeOutputs": False, "timeMajor": False}
    yield recipe("BIDIRECTIONAL_SEQUENCE_LSTM", "", both, [F32, F32], apart)


def _reductions() -> Recipes:
    for kind in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
        yield recipe(kind, "", [f(2, 5, 6, 7), k([1, 2])])
        yield recipe(kind, "keeps", [f(2, 5, 6, 7), k([3])], values={"keepDims": True})
        yield recipe(kind, "all", [f(3, 4, 2), k([0, 1, 2])])
        yield recipe(kind, "last", [f(3, 9), k([-1])])
        yield recipe(kind, "int32", [i(3, 4, low=1, high=4), k([1])], [it()])
    for dtype, zero in (("int8", 5), ("uint8", 100)):
        x = [q(2, 5, 6, 7, dtype=dtype, zero=zero), k([1, 2])]
        for kind in ("REDUCE_MAX", "REDUCE_MIN"):
            yield recipe(kind, dtype, x, [qt(dtype, zero=zero)])
        yield recipe("MEAN", dtype, x, [qt(dtype, 0.003, zero)])
        yield recipe("MEAN", f"{dtype}_same", x, [qt(dtype, zero=zero)])
        yield recipe("SUM", dtype, x, [qt(dtype, 0.1, zero)])
    x = [q(2, 5, 6, zero=3), k([2])]
    yield recipe("MEAN", "int8_channels", x, [qt(zero=3)], {"keepDims": True})
    for kind in ("REDUCE_ALL", "REDUCE_ANY"):
        yield recipe(kind, "", [b(4, 5, 3), k([2])], [it("bool")])
    for kind in ("ARG_MAX", "ARG_MIN"):
        yield recipe(kind, "", [f(3, 4, 9), k(-1)], [it()], {"outputType": 2})
        yield recipe(kind, "axis1", [f(3, 4, 9), k(1)], [it("int64")], {"outputType": 4})
        for label, x in (("int8", q(3, 9)), ("int32", i(3, 9)), ("bool", b(3, 9))):
            yield recipe(kind, label, [x, k(1)], [it()], {"outputType": 2})
    exclusive, reverse = {"exclusive": True}, {"reverse": True}
    both = {**exclusive, **reverse}
    for label, values in (("", {}), ("exclusive", exclusive), ("reverse", reverse), ("both", both)):
        yield recipe("CUMSUM", label, [f(3, 7), k(1)], values=values)
    yield recipe("CUMSUM", "int32", [i(3, 7), k(0)], [it()])


def _segments() -> Recipes:
    yield recipe("SEGMENT_SUM", "", [f(5, 3), k([0, 0, 1, 2, 2])])
    for name in ("SUM", "PROD", "MAX", "MIN"):
        kind = f"UNSORTED_SEGMENT_{name}"
        yield recipe(kind, "", [f(5, 3), k([2, 0, 1, 0, 2]), k(4)])
        yield recipe(kind, "runtime", [f(5, 3), i(5, low=0, high=4), k(4)])
    window = [k(sizes, "int64") for sizes in ([2, 3], [1, 2], [1, 1])]
    for number, label, first in (
        (1, "add", 0.0),
        (2, "mul", 1.0),
        (3, "min", 9e9),
        (4, "max", -9e9),
    ):
        data = [f(5, 6), k(first, "float32"), *window]
        yield recipe("REDUCE_WINDOW", label, data, values={"reduceFunction": number})


def _norms() -> Recipes:
    softmax = partial(recipe, "SOFTMAX", values={"beta": 1.0})
    yield softmax("", [f(3, 9)])
    yield softmax("beta", [f(1, 3, 4, 9)], values={"beta": 0.5})
    x8 = q(3, 19, scale=0.05, zero=3)
    yield softmax("int8", [x8], [qt("int8", 1 / 256, -128)])
    yield softmax("uint8", [q(3, 19, dtype="uint8", scale=0.05)], [qt("uint8", 1 / 256, 0)])
    yield softmax("int16", [q(3, 19, dtype="int16", scale=1e-4)], [qt("int16", 1 / 32768, 0)])
    yield recipe("LOG_SOFTMAX", "", [f(3, 9)])
    yield recipe("LOG_SOFTMAX", "int8", [x8], [qt("int8", 16 / 256, 127)])
    normalise = partial(recipe, "L2_NORMALIZATION")
    yield normalise("", [f(1, 3, 4, 7)])
    yield normalise("int8", [q(3, 7, zero=4)], [qt("int8", 1 / 128, 0)])
    yield normalise("uint8", [q(3, 7, dtype="uint8", zero=124)], [qt("uint8", 1 / 128, 128)])
    values = {"radius": 2, "bias": 1.5, "alpha": 0.3, "beta": 0.6}
    yield recipe("LOCAL_RESPONSE_NORMALIZATION", "", [f(1, 3, 4, 9)], values=values)
