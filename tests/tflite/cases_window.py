"""Cases of convolutions, products, pools, reductions and resizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.tflite.build import ModelBuilder, T
from tests.tflite.cases import F32, Recipe, Recipes, b, f, i, it, k, none, q, qb, qt, qw, recipe, w


def _conv(**values: Any) -> dict[str, Any]:
    return {"strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1, **values}


def recipes() -> Recipes:
    """All of them."""
    yield from _convolutions()
    yield from _quantised_convolutions()
    yield from _products()
    yield from _hybrids()
    yield from _pools()
    yield from _reductions()
    yield from _norms()
    yield from _resizes()


def _convolutions() -> Recipes:
    x = f(1, 9, 8, 5)
    variants = {
        "": {"strideH": 2, "strideW": 2},
        "valid": {"padding": 1, "strideW": 2},
        "dilated": {"dilationHFactor": 2, "dilationWFactor": 3},
        "relu6": {"fusedActivationFunction": 3},
    }
    for label, values in variants.items():
        yield recipe(
            "CONV_2D",
            label,
            [x, w(6, 3, 3, 5), w(6)],
            options="Conv2DOptions",
            values=_conv(**values),
        )
        yield recipe(
            "DEPTHWISE_CONV_2D",
            label,
            [x, w(1, 3, 3, 10), w(10)],
            options="DepthwiseConv2DOptions",
            values=_conv(depthMultiplier=2, **values),
        )
    yield recipe(
        "CONV_2D",
        "groups",
        [f(2, 5, 6, 8), w(4, 3, 3, 4), w(4)],
        options="Conv2DOptions",
        values=_conv(),
    )
    yield recipe(
        "CONV_2D",
        "pointwise",
        [f(1, 5, 6, 7), w(9, 1, 1, 7), w(9)],
        options="Conv2DOptions",
        values=_conv(),
    )
    yield recipe(
        "CONV_2D",
        "runtime_weights",
        [f(1, 5, 6, 3), f(4, 3, 3, 3), f(4)],
        options="Conv2DOptions",
        values=_conv(),
    )
    yield recipe(
        "DEPTHWISE_CONV_2D",
        "plain",
        [f(1, 5, 6, 7), w(1, 3, 3, 7), w(7)],
        options="DepthwiseConv2DOptions",
        values=_conv(depthMultiplier=1),
    )
    for label, size, values in (
        ("", [1, 8, 10, 3], {"strideH": 2, "strideW": 2}),
        ("valid", [1, 9, 11, 3], {"padding": 1, "strideH": 2, "strideW": 2}),
        ("odd", [1, 7, 9, 3], {"strideH": 2, "strideW": 2}),
        ("stride1", [1, 4, 5, 3], {"strideH": 1, "strideW": 1}),
    ):
        weight = w(3, 3, 3, 5)
        yield recipe(
            "TRANSPOSE_CONV",
            label,
            [k(size), weight, f(1, 4, 5, 5)],
            options="TransposeConvOptions",
            values=values,
        )
        yield recipe(
            "TRANSPOSE_CONV",
            f"{label}_bias".strip("_"),
            [k(size), weight, f(1, 4, 5, 5), w(3)],
            options="TransposeConvOptions",
            values=values,
        )
    values3 = {
        "strideD": 1,
        "strideH": 2,
        "strideW": 2,
        "dilationDFactor": 1,
        "dilationHFactor": 1,
        "dilationWFactor": 1,
    }
    yield recipe(
        "CONV_3D",
        "",
        [f(1, 4, 6, 5, 3), w(2, 3, 3, 3, 4), w(4)],
        options="Conv3DOptions",
        values=values3,
    )
    yield recipe(
        "CONV_3D",
        "valid",
        [f(1, 4, 6, 5, 3), w(2, 3, 3, 3, 4), none],
        options="Conv3DOptions",
        values={**values3, "padding": 1},
    )
    yield recipe(
        "CONV_3D_TRANSPOSE",
        "",
        [k([1, 4, 6, 8, 2]), w(2, 3, 3, 2, 3), f(1, 4, 3, 4, 3)],
        options="Conv3DOptions",
        values=values3,
    )


def _quantised_convolutions() -> Recipes:
    x8, xu = q(1, 9, 8, 5, zero=4), q(1, 9, 8, 5, dtype="uint8", zero=120)
    x16 = q(1, 9, 8, 5, dtype="int16", scale=1e-4)
    out8, outu, out16 = qt("int8", 0.03, -5), qt("uint8", 0.05, 110), qt("int16", 2e-4)
    for label, values in {
        "": {"strideH": 2, "strideW": 2},
        "valid": {"padding": 1},
        "relu": {"fusedActivationFunction": 1},
        "relu6": {"fusedActivationFunction": 3},
    }.items():
        tail = f"_{label}" if label else ""
        for kind, options, weight, channels, extra in (
            ("CONV_2D", "Conv2DOptions", (6, 3, 3, 5), 6, {}),
            (
                "DEPTHWISE_CONV_2D",
                "DepthwiseConv2DOptions",
                (1, 3, 3, 10),
                10,
                {"depthMultiplier": 2},
            ),
        ):
            axis = 0 if kind == "CONV_2D" else 3
            all_values = _conv(**extra, **values)
            yield recipe(
                kind,
                f"int8{tail}",
                [x8, qw(*weight, axis=axis), qb(channels)],
                [out8],
                options,
                all_values,
            )
            yield recipe(
                kind,
                f"uint8{tail}",
                [xu, q(*weight, dtype="uint8", scale=0.01, zero=125, constant=True), qb(channels)],
                [outu],
                options,
                all_values,
            )
        yield recipe(
            "CONV_2D",
            f"int16{tail}",
            [x16, qw(6, 3, 3, 5, axis=0), qb(6, "int64", 50000)],
            [out16],
            "Conv2DOptions",
            _conv(**values),
        )
    yield recipe(
        "CONV_2D",
        "int4",
        [x8, qw(6, 3, 3, 5, axis=0, dtype="int4", scale=0.1), qb(6)],
        [out8],
        "Conv2DOptions",
        _conv(),
    )
    values = {"strideH": 2, "strideW": 2}
    size = k([1, 8, 10, 3])
    yield recipe(
        "TRANSPOSE_CONV",
        "int8",
        [size, qw(3, 3, 3, 5, axis=0), q(1, 4, 5, 5, zero=4), qb(3)],
        [out8],
        "TransposeConvOptions",
        values,
    )
    yield recipe(
        "TRANSPOSE_CONV",
        "uint8",
        [
            size,
            q(3, 3, 3, 5, dtype="uint8", scale=0.01, zero=120, constant=True),
            q(1, 4, 5, 5, dtype="uint8", zero=130),
            qb(3),
        ],
        [outu],
        "TransposeConvOptions",
        values,
    )


def _products() -> Recipes:
    full = "FullyConnectedOptions"
    yield recipe("FULLY_CONNECTED", "", [f(3, 10), w(7, 10), w(7)], options=full)
    yield recipe("FULLY_CONNECTED", "no_bias", [f(3, 10), w(7, 10), none], options=full)
    yield recipe("FULLY_CONNECTED", "flattens", [f(2, 3, 10), w(7, 10), w(7)], options=full)
    yield recipe(
        "FULLY_CONNECTED",
        "keeps",
        [f(2, 3, 10), w(7, 10), w(7)],
        options=full,
        values={"keepNumDims": True, "fusedActivationFunction": 1},
    )
    yield recipe("FULLY_CONNECTED", "runtime_weights", [f(3, 10), f(7, 10), none], options=full)
    yield recipe(
        "FULLY_CONNECTED", "int8", [q(3, 10, zero=4), qw(7, 10), qb(7)], [qt("int8", 0.03, 5)], full
    )
    yield recipe(
        "FULLY_CONNECTED",
        "int8_channels",
        [q(3, 10, zero=4), qw(7, 10, axis=0), qb(7)],
        [qt("int8", 0.03, 5)],
        full,
        {"fusedActivationFunction": 1},
    )
    yield recipe(
        "FULLY_CONNECTED",
        "int8_deep",
        [q(2, 900, zero=4), qw(7, 900, axis=0), qb(7)],
        [qt("int8", 0.2, 5)],
        full,
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
        full,
    )
    yield recipe(
        "FULLY_CONNECTED",
        "int16",
        [q(3, 10, dtype="int16", scale=1e-4), qw(7, 10), qb(7, "int64", 50000)],
        [qt("int16", 2e-4)],
        full,
    )
    yield recipe(
        "FULLY_CONNECTED",
        "int4",
        [q(3, 10, zero=4), qw(7, 10, dtype="int4", scale=0.1), qb(7)],
        [qt("int8", 0.03, 5)],
        full,
    )
    batch = "BatchMatMulOptions"
    yield recipe("BATCH_MATMUL", "", [f(2, 3, 4), f(2, 4, 5)], options=batch)
    yield recipe(
        "BATCH_MATMUL",
        "adjoint",
        [f(2, 4, 3), f(2, 5, 4)],
        options=batch,
        values={"adjX": True, "adjY": True},
    )
    yield recipe("BATCH_MATMUL", "broadcast", [f(2, 3, 3, 4), f(3, 4, 5)], options=batch)
    yield recipe(
        "BATCH_MATMUL",
        "int8",
        [q(2, 3, 4, zero=4), q(2, 4, 5, zero=-3)],
        [qt("int8", 0.03, 5)],
        batch,
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
            "CONV_2D",
            [f(1, 9, 8, 5), qw(6, 3, 3, 5, axis=0), w(6)],
            [F32],
            "Conv2DOptions",
            _conv(),
        ),
        "DEPTHWISE_CONV_2D": one(
            "DEPTHWISE_CONV_2D",
            [f(1, 9, 8, 6), qw(1, 3, 3, 6, axis=3), w(6)],
            [F32],
            "DepthwiseConv2DOptions",
            _conv(depthMultiplier=1),
        ),
        "FULLY_CONNECTED": one(
            "FULLY_CONNECTED",
            [f(3, 10), qw(7, 10), w(7)],
            [F32],
            "FullyConnectedOptions",
            {"fusedActivationFunction": 1},
        ),
    }
    for kind, build in models.items():
        yield Recipe(name=f"{kind.lower()}_hybrid", operator=kind, build=_hybrid(build))


def _pools() -> Recipes:
    for label, values in {
        "": {"filterHeight": 3, "filterWidth": 3, "strideH": 2, "strideW": 2},
        "valid": {"padding": 1, "filterHeight": 2, "filterWidth": 3, "strideH": 2, "strideW": 1},
        "relu6": {
            "filterHeight": 2,
            "filterWidth": 2,
            "strideH": 2,
            "strideW": 2,
            "fusedActivationFunction": 3,
        },
    }.items():
        for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
            yield recipe(kind, label, [f(1, 9, 8, 5)], options="Pool2DOptions", values=values)
        for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            for dtype, zero in (("int8", -7), ("uint8", 120), ("int16", 0)):
                scale = 1e-4 if dtype == "int16" else 0.02
                yield recipe(
                    kind,
                    f"{dtype}_{label}".rstrip("_"),
                    [q(1, 9, 8, 5, dtype=dtype, scale=scale, zero=zero)],
                    [qt(dtype, scale, zero)],
                    "Pool2DOptions",
                    values,
                )


def _reductions() -> Recipes:
    reducer = "ReducerOptions"
    for kind in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
        yield recipe(kind, "", [f(2, 5, 6, 7), k([1, 2])], options=reducer)
        yield recipe(
            kind, "keeps", [f(2, 5, 6, 7), k([3])], options=reducer, values={"keepDims": True}
        )
        yield recipe(kind, "all", [f(3, 4, 2), k([0, 1, 2])], options=reducer)
        yield recipe(kind, "last", [f(3, 9), k([-1])], options=reducer)
        yield recipe(kind, "int32", [i(3, 4, low=1, high=4), k([1])], [it()], reducer)
    for kind in ("REDUCE_MAX", "REDUCE_MIN"):
        for dtype, zero in (("int8", 5), ("uint8", 100)):
            yield recipe(
                kind,
                dtype,
                [q(2, 5, 6, 7, dtype=dtype, zero=zero), k([1, 2])],
                [qt(dtype, zero=zero)],
                reducer,
            )
    for dtype, zero in (("int8", 5), ("uint8", 100)):
        x = q(2, 5, 6, 7, dtype=dtype, zero=zero)
        yield recipe("MEAN", dtype, [x, k([1, 2])], [qt(dtype, 0.003, zero)], reducer)
        yield recipe("MEAN", f"{dtype}_same", [x, k([1, 2])], [qt(dtype, zero=zero)], reducer)
        yield recipe("SUM", dtype, [x, k([1, 2])], [qt(dtype, 0.1, zero)], reducer)
    yield recipe(
        "MEAN",
        "int8_channels",
        [q(2, 5, 6, zero=3), k([2])],
        [qt(zero=3)],
        reducer,
        {"keepDims": True},
    )
    for kind in ("REDUCE_ALL", "REDUCE_ANY"):
        yield recipe(kind, "", [b(4, 5, 3), k([2])], [it("bool")], reducer)
    for kind, options in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions")):
        yield recipe(kind, "", [f(3, 4, 9), k(-1)], [it()], options, {"outputType": 2})
        yield recipe(kind, "axis1", [f(3, 4, 9), k(1)], [it("int64")], options, {"outputType": 4})
        yield recipe(kind, "int8", [q(3, 9), k(1)], [it()], options, {"outputType": 2})
        yield recipe(kind, "int32", [i(3, 9), k(1)], [it()], options, {"outputType": 2})
        yield recipe(kind, "bool", [b(3, 9), k(1)], [it()], options, {"outputType": 2})
    for label, values in {
        "": {},
        "exclusive": {"exclusive": True},
        "reverse": {"reverse": True},
        "both": {"exclusive": True, "reverse": True},
    }.items():
        yield recipe("CUMSUM", label, [f(3, 7), k(1)], options="CumsumOptions", values=values)
    yield recipe("CUMSUM", "int32", [i(3, 7), k(0)], [it()], "CumsumOptions")
    yield recipe("SEGMENT_SUM", "", [f(5, 3), k([0, 0, 1, 2, 2])], options="SegmentSumOptions")
    for name in ("Sum", "Prod", "Max", "Min"):
        kind = f"UNSORTED_SEGMENT_{name.upper()}"
        yield recipe(
            kind, "", [f(5, 3), k([2, 0, 1, 0, 2]), k(4)], options=f"UnsortedSegment{name}Options"
        )
        yield recipe(
            kind,
            "runtime",
            [f(5, 3), i(5, low=0, high=4), k(4)],
            options=f"UnsortedSegment{name}Options",
        )
    for number, label in ((1, "add"), (2, "mul"), (3, "min"), (4, "max")):
        data = [
            f(5, 6),
            k({1: 0.0, 2: 1.0, 3: 9e9, 4: -9e9}[number], "float32"),
            k([2, 3], "int64"),
            k([1, 2], "int64"),
            k([1, 1], "int64"),
        ]
        yield recipe(
            "REDUCE_WINDOW",
            label,
            data,
            options="ReduceWindowOptions",
            values={"reduceFunction": number},
        )


def _norms() -> Recipes:
    yield recipe("SOFTMAX", "", [f(3, 9)], options="SoftmaxOptions", values={"beta": 1.0})
    yield recipe("SOFTMAX", "beta", [f(1, 3, 4, 9)], options="SoftmaxOptions", values={"beta": 0.5})
    yield recipe(
        "SOFTMAX",
        "int8",
        [q(3, 19, scale=0.05, zero=3)],
        [qt("int8", 1 / 256, -128)],
        "SoftmaxOptions",
        {"beta": 1.0},
    )
    yield recipe(
        "SOFTMAX",
        "uint8",
        [q(3, 19, dtype="uint8", scale=0.05)],
        [qt("uint8", 1 / 256, 0)],
        "SoftmaxOptions",
        {"beta": 1.0},
    )
    yield recipe(
        "SOFTMAX",
        "int16",
        [q(3, 19, dtype="int16", scale=1e-4)],
        [qt("int16", 1 / 32768, 0)],
        "SoftmaxOptions",
        {"beta": 1.0},
    )
    yield recipe("LOG_SOFTMAX", "", [f(3, 9)], options="LogSoftmaxOptions")
    yield recipe(
        "LOG_SOFTMAX",
        "int8",
        [q(3, 19, scale=0.05, zero=3)],
        [qt("int8", 16 / 256, 127)],
        "LogSoftmaxOptions",
    )
    yield recipe("L2_NORMALIZATION", "", [f(1, 3, 4, 7)], options="L2NormOptions")
    yield recipe(
        "L2_NORMALIZATION", "int8", [q(3, 7, zero=4)], [qt("int8", 1 / 128, 0)], "L2NormOptions"
    )
    yield recipe(
        "L2_NORMALIZATION",
        "uint8",
        [q(3, 7, dtype="uint8", zero=124)],
        [qt("uint8", 1 / 128, 128)],
        "L2NormOptions",
    )
    yield recipe(
        "LOCAL_RESPONSE_NORMALIZATION",
        "",
        [f(1, 3, 4, 9)],
        options="LocalResponseNormalizationOptions",
        values={"radius": 2, "bias": 1.5, "alpha": 0.3, "beta": 0.6},
    )


def _resizes() -> Recipes:
    for kind, options in (
        ("RESIZE_BILINEAR", "ResizeBilinearOptions"),
        ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
    ):
        for label, values in {
            "": {},
            "corners": {"alignCorners": True},
            "half_pixel": {"halfPixelCenters": True},
        }.items():
            for size in ([10, 7], [3, 4]):
                name = f"{label}_{size[0]}".strip("_")
                yield recipe(kind, name, [f(1, 5, 6, 3), k(size)], options=options, values=values)
                for dtype, zero in (("int8", 5), ("uint8", 100), ("int16", 0)):
                    yield recipe(
                        kind,
                        f"{dtype}_{name}",
                        [q(1, 5, 6, 3, dtype=dtype, zero=zero), k(size)],
                        [qt(dtype, zero=zero)],
                        options,
                        values,
                        exact=True,
                    )
