"""Cases of convolutions, pools and resizes."""

from functools import partial
from typing import Any

from tests.tflite.cases import RELU, RELU6, Recipes, f, k, none, q, qb, qt, qw, recipe, w

_TWO = {"strideH": 2, "strideW": 2}


def conv_values(**values) -> dict[str, Any]:
    return {"strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1, **values}


def recipes() -> Recipes:
    yield from _convolutions()
    yield from _quantised_convolutions()
    yield from _pools()
    yield from _resizes()


def _convolutions() -> Recipes:
    x = f(1, 9, 8, 5)
    conv = partial(recipe, "CONV_2D", values=conv_values())
    depthwise = partial(recipe, "DEPTHWISE_CONV_2D", values=conv_values(depthMultiplier=1))
    for label, values in (
        ("", _TWO),
        ("valid", {"padding": 1, "strideW": 2}),
        ("dilated", {"dilationHFactor": 2, "dilationWFactor": 3}),
        ("relu6", RELU6),
    ):
        yield conv(label, [x, w(6, 3, 3, 5), w(6)], values=conv_values(**values))
        deep = conv_values(depthMultiplier=2, **values)
        yield depthwise(label, [x, w(1, 3, 3, 10), w(10)], values=deep)
    yield conv("groups", [f(2, 5, 6, 8), w(4, 3, 3, 4), w(4)])
    yield conv("pointwise", [f(1, 5, 6, 7), w(9, 1, 1, 7), w(9)])
    yield conv("runtime_weights", [f(1, 5, 6, 3), f(4, 3, 3, 3), f(4)])
    yield depthwise("plain", [f(1, 5, 6, 7), w(1, 3, 3, 7), w(7)])
    transposed = partial(recipe, "TRANSPOSE_CONV")
    for label, size, values in (
        ("", [1, 8, 10, 3], _TWO),
        ("valid", [1, 9, 11, 3], {"padding": 1, **_TWO}),
        ("odd", [1, 7, 9, 3], _TWO),
        ("stride1", [1, 4, 5, 3], {"strideH": 1, "strideW": 1}),
    ):
        inputs = [k(size), w(3, 3, 3, 5), f(1, 4, 5, 5)]
        yield transposed(label, inputs, values=values)
        yield transposed(f"{label}_bias".strip("_"), [*inputs, w(3)], values=values)
    dilations = {f"dilation{axis}Factor": 1 for axis in "DHW"}
    values3 = {"strideD": 1, **_TWO, **dilations}
    x3, weights = f(1, 4, 6, 5, 3), w(2, 3, 3, 3, 4)
    yield recipe("CONV_3D", "", [x3, weights, w(4)], values=values3)
    yield recipe("CONV_3D", "valid", [x3, weights, none], values={**values3, "padding": 1})
    inputs = [k([1, 4, 6, 8, 2]), w(2, 3, 3, 2, 3), f(1, 4, 3, 4, 3)]
    yield recipe("CONV_3D_TRANSPOSE", "", inputs, values=values3)


def _quantised_convolutions() -> Recipes:
    x8, xu = q(1, 9, 8, 5, zero=4), q(1, 9, 8, 5, dtype="uint8", zero=120)
    x16 = q(1, 9, 8, 5, dtype="int16", scale=1e-4)
    out8, outu, out16 = [qt("int8", 0.03, -5)], [qt("uint8", 0.05, 110)], [qt("int16", 2e-4)]
    weights_u = partial(q, dtype="uint8", scale=0.01, constant=True)
    for label, values in (
        ("", _TWO),
        ("_valid", {"padding": 1}),
        ("_relu", RELU),
        ("_relu6", RELU6),
    ):
        for kind, weight, channels, extra in (
            ("CONV_2D", (6, 3, 3, 5), 6, {}),
            ("DEPTHWISE_CONV_2D", (1, 3, 3, 10), 10, {"depthMultiplier": 2}),
        ):
            axis, whole = 0 if kind == "CONV_2D" else 3, conv_values(**extra, **values)
            inputs = [x8, qw(*weight, axis=axis), qb(channels)]
            yield recipe(kind, f"int8{label}", inputs, out8, whole)
            inputs = [xu, weights_u(*weight, zero=125), qb(channels)]
            yield recipe(kind, f"uint8{label}", inputs, outu, whole)
        wide = [x16, qw(6, 3, 3, 5, axis=0), qb(6, "int64", 50000)]
        yield recipe("CONV_2D", f"int16{label}", wide, out16, conv_values(**values))
    narrow = [x8, qw(6, 3, 3, 5, axis=0, dtype="int4", scale=0.1), qb(6)]
    yield recipe("CONV_2D", "int4", narrow, out8, conv_values())
    size, transposed = k([1, 8, 10, 3]), partial(recipe, "TRANSPOSE_CONV", values=_TWO)
    inputs = [size, qw(3, 3, 3, 5, axis=0), q(1, 4, 5, 5, zero=4), qb(3)]
    yield transposed("int8", inputs, out8)
    weights = weights_u(3, 3, 3, 5, zero=120)
    yield transposed("uint8", [size, weights, q(1, 4, 5, 5, dtype="uint8", zero=130), qb(3)], outu)


def _pools() -> Recipes:
    for label, high, wide, more in (
        ("", 3, 3, _TWO),
        ("valid", 2, 3, {"padding": 1, "strideH": 2, "strideW": 1}),
        ("relu6", 2, 2, {**_TWO, **RELU6}),
    ):
        values = {"filterHeight": high, "filterWidth": wide, **more}
        for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
            yield recipe(kind, label, [f(1, 9, 8, 5)], values=values)
        for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            for dtype, zero in (("int8", -7), ("uint8", 120), ("int16", 0)):
                scale = 1e-4 if dtype == "int16" else 0.02
                x = q(1, 9, 8, 5, dtype=dtype, scale=scale, zero=zero)
                name = f"{dtype}_{label}".rstrip("_")
                yield recipe(kind, name, [x], [qt(dtype, scale, zero)], values)


def _resizes() -> Recipes:
    ways = {"": {}, "corners": {"alignCorners": True}, "half_pixel": {"halfPixelCenters": True}}
    for kind in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        for label, values in ways.items():
            for size in ([10, 7], [3, 4]):
                name = f"{label}_{size[0]}".strip("_")
                yield recipe(kind, name, [f(1, 5, 6, 3), k(size)], values=values)
                for dtype, zero in (("int8", 5), ("uint8", 100), ("int16", 0)):
                    x, out = q(1, 5, 6, 3, dtype=dtype, zero=zero), [qt(dtype, zero=zero)]
                    own = partial(recipe, kind, f"{dtype}_{name}", exact=True)
                    yield own([x, k(size)], out, values)
