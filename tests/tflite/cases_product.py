"""Cases of products, and of weights in integers whose data is in float."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.tflite.build import ModelBuilder, T
from tests.tflite.cases import F32, Recipe, Recipes, f, none, q, qb, qt, qw, recipe, w
from tests.tflite.cases_window import conv_values


def recipes() -> Recipes:
    yield from _products()
    yield from _hybrids()


def _products() -> Recipes:
    yield recipe("FULLY_CONNECTED", "", [f(3, 10), w(7, 10), w(7)])
    yield recipe("FULLY_CONNECTED", "no_bias", [f(3, 10), w(7, 10), none])
    yield recipe("FULLY_CONNECTED", "flattens", [f(2, 3, 10), w(7, 10), w(7)])
    yield recipe(
        "FULLY_CONNECTED",
        "keeps",
        [f(2, 3, 10), w(7, 10), w(7)],
        values={"keepNumDims": True, "fusedActivationFunction": 1},
    )
    yield recipe("FULLY_CONNECTED", "runtime_weights", [f(3, 10), f(7, 10), none])
    yield recipe(
        "FULLY_CONNECTED", "int8", [q(3, 10, zero=4), qw(7, 10), qb(7)], [qt("int8", 0.03, 5)]
    )
    yield recipe(
        "FULLY_CONNECTED",
        "int8_channels",
        [q(3, 10, zero=4), qw(7, 10, axis=0), qb(7)],
        [qt("int8", 0.03, 5)],
        {"fusedActivationFunction": 1},
    )
    yield recipe(
        "FULLY_CONNECTED",
        "int8_deep",
        [q(2, 900, zero=4), qw(7, 900, axis=0), qb(7)],
        [qt("int8", 0.2, 5)],
    )
    yield recipe(
        "FULLY_CONNECTED",
        "uint8",
        [
            q(3, 10, dtype="uint8", zero=120),
            q(7, 10, dtype="uint8", scale=0.01, zero=125, constant=True),
            qb(7),
        ],
        [qt("uint8", 0.03, 110)],
    )
    yield recipe(
        "FULLY_CONNECTED",
        "int16",
        [q(3, 10, dtype="int16", scale=1e-4), qw(7, 10), qb(7, "int64", 50000)],
        [qt("int16", 2e-4)],
    )
    yield recipe(
        "FULLY_CONNECTED",
        "int4",
        [q(3, 10, zero=4), qw(7, 10, dtype="int4", scale=0.1), qb(7)],
        [qt("int8", 0.03, 5)],
    )
    yield recipe("BATCH_MATMUL", "", [f(2, 3, 4), f(2, 4, 5)])
    yield recipe(
        "BATCH_MATMUL", "adjoint", [f(2, 4, 3), f(2, 5, 4)], values={"adjX": True, "adjY": True}
    )
    yield recipe("BATCH_MATMUL", "broadcast", [f(2, 3, 3, 4), f(3, 4, 5)])
    yield recipe(
        "BATCH_MATMUL", "int8", [q(2, 3, 4, zero=4), q(2, 4, 5, zero=-3)], [qt("int8", 0.03, 5)]
    )


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
    from tests.tflite.cases import one

    models = {
        "CONV_2D": one(
            "CONV_2D", [f(1, 9, 8, 5), qw(6, 3, 3, 5, axis=0), w(6)], [F32], conv_values()
        ),
        "DEPTHWISE_CONV_2D": one(
            "DEPTHWISE_CONV_2D",
            [f(1, 9, 8, 6), qw(1, 3, 3, 6, axis=3), w(6)],
            [F32],
            conv_values(depthMultiplier=1),
        ),
        "FULLY_CONNECTED": one(
            "FULLY_CONNECTED", [f(3, 10), qw(7, 10), w(7)], [F32], {"fusedActivationFunction": 1}
        ),
    }
    for kind, build in models.items():
        yield Recipe(name=f"{kind.lower()}_hybrid", operator=kind, build=_hybrid(build))
