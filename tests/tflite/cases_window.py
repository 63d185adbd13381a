"""Cases of convolutions, pools and resizes."""

from typing import Any

from tests.tflite.cases import Recipes, f, k, none, q, qb, qt, qw, recipe, w


def conv_values(**values) -> dict[str, Any]:
    return {"strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1, **values}


def recipes() -> Recipes:
    yield from _convolutions()
    yield from _quantised_convolutions()
    yield from _pools()
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
        yield recipe("CONV_2D", label, [x, w(6, 3, 3, 5), w(6)], values=conv_values(**values))
        yield recipe(
            "DEPTHWISE_CONV_2D",
            label,
            [x, w(1, 3, 3, 10), w(10)],
            values=conv_values(depthMultiplier=2, **values),
        )
    yield recipe("CONV_2D", "groups", [f(2, 5, 6, 8), w(4, 3, 3, 4), w(4)], values=conv_values())
    yield recipe("CONV_2D", "pointwise", [f(1, 5, 6, 7), w(9, 1, 1, 7), w(9)], values=conv_values())
    yield recipe(
        "CONV_2D", "runtime_weights", [f(1, 5, 6, 3), f(4, 3, 3, 3), f(4)], values=conv_values()
    )
    yield recipe(
        "DEPTHWISE_CONV_2D",
        "plain",
        [f(1, 5, 6, 7), w(1, 3, 3, 7), w(7)],
        values=conv_values(depthMultiplier=1),
    )
    for label, size, values in (
        ("", [1, 8, 10, 3], {"strideH": 2, "strideW": 2}),
        ("valid", [1, 9, 11, 3], {"padding": 1, "strideH": 2, "strideW": 2}),
        ("odd", [1, 7, 9, 3], {"strideH": 2, "strideW": 2}),
        ("stride1", [1, 4, 5, 3], {"strideH": 1, "strideW": 1}),
    ):
        weight = w(3, 3, 3, 5)
        yield recipe("TRANSPOSE_CONV", label, [k(size), weight, f(1, 4, 5, 5)], values=values)
        yield recipe(
            "TRANSPOSE_CONV",
            f"{label}_bias".strip("_"),
            [k(size), weight, f(1, 4, 5, 5), w(3)],
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
    yield recipe("CONV_3D", "", [f(1, 4, 6, 5, 3), w(2, 3, 3, 3, 4), w(4)], values=values3)
    yield recipe(
        "CONV_3D",
        "valid",
        [f(1, 4, 6, 5, 3), w(2, 3, 3, 3, 4), none],
        values={**values3, "padding": 1},
    )
    yield recipe(
        "CONV_3D_TRANSPOSE",
        "",
        [k([1, 4, 6, 8, 2]), w(2, 3, 3, 2, 3), f(1, 4, 3, 4, 3)],
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
        for kind, weight, channels, extra in (
            ("CONV_2D", (6, 3, 3, 5), 6, {}),
            ("DEPTHWISE_CONV_2D", (1, 3, 3, 10), 10, {"depthMultiplier": 2}),
        ):
            axis = 0 if kind == "CONV_2D" else 3
            all_values = conv_values(**extra, **values)
            yield recipe(
                kind, f"int8{tail}", [x8, qw(*weight, axis=axis), qb(channels)], [out8], all_values
            )
            yield recipe(
                kind,
                f"uint8{tail}",
                [xu, q(*weight, dtype="uint8", scale=0.01, zero=125, constant=True), qb(channels)],
                [outu],
                all_values,
            )
        yield recipe(
            "CONV_2D",
            f"int16{tail}",
            [x16, qw(6, 3, 3, 5, axis=0), qb(6, "int64", 50000)],
            [out16],
            conv_values(**values),
        )
    yield recipe(
        "CONV_2D",
        "int4",
        [x8, qw(6, 3, 3, 5, axis=0, dtype="int4", scale=0.1), qb(6)],
        [out8],
        conv_values(),
    )
    values = {"strideH": 2, "strideW": 2}
    size = k([1, 8, 10, 3])
    yield recipe(
        "TRANSPOSE_CONV",
        "int8",
        [size, qw(3, 3, 3, 5, axis=0), q(1, 4, 5, 5, zero=4), qb(3)],
        [out8],
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
        values,
    )


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
            yield recipe(kind, label, [f(1, 9, 8, 5)], values=values)
        for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            for dtype, zero in (("int8", -7), ("uint8", 120), ("int16", 0)):
                scale = 1e-4 if dtype == "int16" else 0.02
                yield recipe(
                    kind,
                    f"{dtype}_{label}".rstrip("_"),
                    [q(1, 9, 8, 5, dtype=dtype, scale=scale, zero=zero)],
                    [qt(dtype, scale, zero)],
                    values,
                )


def _resizes() -> Recipes:
    for kind in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        for label, values in {
            "": {},
            "corners": {"alignCorners": True},
            "half_pixel": {"halfPixelCenters": True},
        }.items():
            for size in ([10, 7], [3, 4]):
                name = f"{label}_{size[0]}".strip("_")
                yield recipe(kind, name, [f(1, 5, 6, 3), k(size)], values=values)
                for dtype, zero in (("int8", 5), ("uint8", 100), ("int16", 0)):
                    yield recipe(
                        kind,
                        f"{dtype}_{name}",
                        [q(1, 5, 6, 3, dtype=dtype, zero=zero), k(size)],
                        [qt(dtype, zero=zero)],
                        values,
                        exact=True,
                    )
