"""Cases of operators that compute each element by itself."""

from collections.abc import Callable, Sequence

import numpy as np

from tests.tflite.build import T
from tests.tflite.cases import (
    F32,
    RELU,
    RELU6,
    Recipes,
    Reference,
    b,
    f,
    i,
    it,
    k,
    q,
    qt,
    recipe,
    w,
)

_ANY = {"low": -2.0, "high": 2.0}
_WIDE = {"low": -5.0, "high": 5.0}
_POSITIVE = {"low": 0.1, "high": 3.0}

_OF_ANY = """ABS CEIL COS ELU EXP FLOOR GELU LEAKY_RELU LOGISTIC NEG RELU RELU_0_TO_1 RELU_N1_TO_1
SIGN SIN SQUARE TANH"""
_UNARY = {
    **dict.fromkeys(_OF_ANY.split(), _ANY),
    **dict.fromkeys(("LOG", "RSQRT", "SQRT"), _POSITIVE),
    **dict.fromkeys(("HARD_SWISH", "ROUND"), _WIDE),
    "RELU6": {"low": -3.0, "high": 9.0},
}
_OPTIONS = {"LEAKY_RELU": {"alpha": 0.2}}

_BINARY = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")
_FUSED = ("ADD", "SUB", "MUL", "DIV")
_COMPARE = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")

# Operator -> (dtype, scale and zero of the input, scale and zero of the result).
_QUANTISED_UNARY = {
    "ABS": [("int8", 0.02, 3, 0.02, -60), ("int16", 1e-4, 0, 1e-4, 0)],
    "ELU": [("int8", 0.03, 5, 0.03, -90)],
    "EXP": [("int8", 0.02, 0, 0.05, -128), ("int16", 1e-4, 0, 1e-3, 0)],
    "GELU": [("int8", 0.03, 0, 0.03, -100), ("uint8", 0.03, 128, 0.03, 30)],
    "HARD_SWISH": [("int8", 0.05, -10, 0.05, -110), ("uint8", 0.05, 100, 0.05, 10)],
    "LEAKY_RELU": [("int8", 0.02, 10, 0.02, -60), ("uint8", 0.02, 100, 0.02, 60)],
    "LOG": [("int8", 0.02, -129 + 1, 0.03, 0)],
    "LOGISTIC": [
        ("int8", 0.05, 10, 1 / 256, -128),
        ("uint8", 0.05, 128, 1 / 256, 0),
        ("int16", 1 / 4096, 0, 1 / 32768, 0),
    ],
    "RELU": [("int8", 0.02, 10, 0.015, -128), ("uint8", 0.02, 100, 0.015, 0)],
    "RELU6": [("int8", 0.06, 10, 6 / 255, -128), ("uint8", 0.06, 100, 6 / 255, 0)],
    "RELU_N1_TO_1": [("int8", 0.02, 10, 2 / 255, 0)],
    "RELU_0_TO_1": [("int8", 0.02, 10, 1 / 255, -128)],
    "TANH": [
        ("int8", 0.03, -5, 1 / 128, 0),
        ("uint8", 0.03, 120, 1 / 128, 128),
        ("int16", 1 / 4096, 0, 1 / 32768, 0),
    ],
    "RSQRT": [("int8", 0.02, -128, 0.06, -128)],
}


_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ABS": np.abs,
    "EXP": np.exp,
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)),
    "TANH": np.tanh,
}


def _exact(kind: str, scale: float, out_scale: float) -> Reference:
    """The function itself, in double, rounded once."""

    def compute(feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
        real = _FUNCTIONS[kind](feeds[0].astype(np.float64) * np.float32(scale))
        return [np.clip(np.round(real / np.float32(out_scale)), -32768, 32767).astype(np.int16)]

    return compute


def recipes() -> Recipes:
    for kind, span in _UNARY.items():
        values = _OPTIONS.get(kind, {})
        yield recipe(kind, "", [f(1, 3, 5, 7, **span)], values=values)
        yield recipe(kind, "vector", [f(13, **span)], values=values)
    for kind, variants in _QUANTISED_UNARY.items():
        values = _OPTIONS.get(kind, {})
        for dtype, scale, zero, out_scale, out_zero in variants:
            x, out = (
                q(1, 5, 6, 7, dtype=dtype, scale=scale, zero=zero),
                qt(dtype, out_scale, out_zero),
            )
            # LiteRT interpolates a table here, which is off by up to ten quanta of these.
            reference = _exact(kind, scale, out_scale) if dtype == "int16" else None
            yield recipe(kind, dtype, [x], [out], values, reference=reference)
    yield recipe("GELU", "tanh", [f(2, 9)], values={"approximate": True})
    yield from _binary()
    yield from _quantised_binary()
    yield from _integers()
    yield from _conversions()


def _binary() -> Recipes:
    for kind in _BINARY:
        second = f(1, 4, 5, 6, **_POSITIVE)
        yield recipe(kind, "", [f(1, 4, 5, 6), second])
        yield recipe(kind, "row", [f(2, 4, 5, 6), w(6, low=0.5)])
        yield recipe(kind, "scalar", [f(2, 7), w(low=0.5)])
        yield recipe(kind, "five_axes", [f(2, 1, 3, 1, 4), f(1, 2, 1, 3, 4, **_POSITIVE)])
        if kind in _FUSED:
            for number, label in ((1, "relu"), (2, "n1_to_1"), (3, "relu6")):
                fused = {"fusedActivationFunction": number}
                yield recipe(kind, label, [f(1, 3, 3, 5), f(1, 3, 3, 5, **_POSITIVE)], values=fused)
    yield recipe("ADD_N", "", [f(2, 3, 4), f(2, 3, 4), f(2, 3, 4)])
    yield recipe("ADD_N", "int32", [i(2, 3), i(2, 3)], [it()])
    yield recipe("ATAN2", "", [f(3, 5), f(3, 5)])
    yield recipe("POW", "", [f(2, 3, 4, **_POSITIVE), f(2, 3, 4)])
    yield recipe("POW", "square", [f(2, 3, 4), k(2.0, "float32")])
    yield recipe("FLOOR_DIV", "", [f(3, 7), f(3, 7, **_POSITIVE)])
    yield recipe("FLOOR_MOD", "", [f(3, 7), f(3, 7, **_POSITIVE)])
    yield recipe("PRELU", "", [f(1, 4, 5, 6), w(1, 1, 6)])
    for kind in _COMPARE:
        yield recipe(kind, "", [f(2, 5), f(2, 5)], [it("bool")])
        yield recipe(kind, "int32", [i(3, 9, low=0, high=3), i(9, low=0, high=3)], [it("bool")])
        yield recipe(kind, "int64", [i(9, low=0, high=3, dtype="int64")] * 2, [it("bool")])
        yield recipe(kind, "int8", [q(4, 9), q(4, 9)], [it("bool")])
    for kind in ("LOGICAL_AND", "LOGICAL_OR"):
        yield recipe(kind, "", [b(3, 7), b(3, 7)], [it("bool")])
    yield recipe("LOGICAL_NOT", "", [b(3, 7)], [it("bool")])
    yield recipe("SELECT", "", [b(2, 3, 4), f(2, 3, 4), f(2, 3, 4)])
    yield recipe("SELECT", "rows", [b(3), f(3, 4), f(3, 4)])
    yield recipe("SELECT_V2", "", [b(3, 1), f(3, 4), f(4)])
    yield recipe("SELECT_V2", "int32", [b(3, 4), i(3, 4), i(3, 4)], [it()])
    yield recipe("SELECT_V2", "int8", [b(3, 4), q(3, 4), q(3, 4)], [qt()])


def _quantised_binary() -> Recipes:
    for dtype, zero, other, result in (("int8", 5, -7, 3), ("uint8", 120, 130, 100)):
        a = q(1, 4, 5, 6, dtype=dtype, scale=0.02, zero=zero)
        c = q(1, 4, 5, 6, dtype=dtype, scale=0.035, zero=other)
        row = q(6, dtype=dtype, scale=0.03, zero=other, constant=True)
        for kind in ("ADD", "SUB", "MUL"):
            out = qt(dtype, 0.05, result)
            yield recipe(kind, dtype, [a, c], [out])
            yield recipe(kind, f"{dtype}_row", [a, row], [out])
            yield recipe(kind, f"{dtype}_relu", [a, c], [out], RELU)
            yield recipe(kind, f"{dtype}_relu6", [a, c], [out], RELU6)
        same = q(1, 4, 5, 6, dtype=dtype, scale=0.02, zero=zero)
        for kind in ("MAXIMUM", "MINIMUM"):
            yield recipe(kind, dtype, [a, same], [qt(dtype, 0.02, zero)])
    a, c = q(3, 9, scale=0.02, zero=4), q(3, 9, scale=0.03, zero=-9)
    yield recipe("SQUARED_DIFFERENCE", "int8", [a, c], [qt("int8", 0.15, -128)])
    yield recipe("PRELU", "int8", [q(1, 3, 4, 5, zero=7), q(1, 1, 5, constant=True)], [qt(zero=2)])
    wide = q(2, 9, dtype="int16", scale=1e-4)
    for kind in ("ADD", "SUB", "MUL"):
        yield recipe(kind, "int16", [wide, wide], [qt("int16", 2e-4)])


def _integers() -> Recipes:
    for kind in _BINARY:
        if kind == "DIV":
            yield recipe(kind, "int32", [i(3, 9), i(3, 9, low=1, high=5)], [it()])
            continue
        yield recipe(kind, "int32", [i(3, 9), i(3, 9)], [it()])
        if kind not in ("SQUARED_DIFFERENCE",):
            long = i(3, 9, dtype="int64")
            yield recipe(kind, "int64", [long, long], [it("int64")])
    signed = [i(3, 9, low=-20, high=20), i(3, 9, low=1, high=7)]
    yield recipe("FLOOR_DIV", "int32", signed, [it()])
    yield recipe("FLOOR_MOD", "int32", signed, [it()])
    wide = [i(9, low=-20, high=20, dtype="int64"), i(9, low=1, high=7, dtype="int64")]
    yield recipe("FLOOR_MOD", "int64", wide, [it("int64")])
    yield recipe("POW", "int32", [i(3, 5), i(3, 5, low=0, high=4)], [it()])
    yield recipe("BITWISE_XOR", "", [i(3, 9), i(3, 9)], [it()])
    narrow = i(9, dtype="int8")
    yield recipe("BITWISE_XOR", "int8", [narrow, narrow], [it("int8")])
    yield recipe("RIGHT_SHIFT", "", [i(9, low=0, high=99), i(9, low=0, high=5)], [it()])
    yield recipe("STABLEHLO_SHIFT_LEFT", "", [i(9), i(9, low=0, high=5)], [it()])
    for kind in ("ABS", "NEG", "SIGN"):
        yield recipe(kind, "int32", [i(3, 9)], [it()])
    yield recipe("NEG", "int64", [i(3, 9, dtype="int64")], [it("int64")])


def _conversions() -> Recipes:
    yield recipe("CAST", "from_int32", [i(3, 7)], [F32])
    yield recipe("CAST", "from_bool", [b(3, 7)], [F32])
    for dtype, x in (
        *(("int32", f(3, 7)), ("float16", f(3, 7)), ("uint8", f(3, 7, low=0, high=200))),
        *((dtype, i(3, 7)) for dtype in ("int64", "int8", "int16")),
        ("bool", i(3, 7, low=-1, high=2)),
    ):
        yield recipe("CAST", dtype, [x], [it(dtype)])
    yield recipe("BITCAST", "", [f(3, 7)], [it()])
    yield recipe("BITCAST", "float", [i(3, 7, low=1 << 29, high=1 << 30)], [F32])
    for dtype, zero in (("int8", 3), ("uint8", 120), ("int16", 0)):
        x = q(1, 4, 5, 6, dtype=dtype, zero=zero)
        yield recipe("DEQUANTIZE", dtype, [x], [F32])
        yield recipe("QUANTIZE", dtype, [f(1, 4, 5, 6)], [qt(dtype, 0.013, zero)])
        yield recipe("QUANTIZE", f"{dtype}_again", [x], [qt(dtype, 0.03, zero)])
    yield recipe("QUANTIZE", "int8_uint8", [q(3, 9, zero=-4)], [qt("uint8", 0.02, 124)])
    yield recipe("QUANTIZE", "uint8_int8", [q(3, 9, dtype="uint8")], [qt("int8", 0.02, -128)])
    wide = q(3, 9, dtype="int16", scale=1e-4)
    yield recipe("QUANTIZE", "int16_int8", [wide], [qt("int8", 0.03, 5)])
    yield recipe("DEQUANTIZE", "float16", [_half], [F32])
    values = {"min": -1.5, "max": 2.0, "numBits": 8}
    yield recipe("FAKE_QUANT", "", [f(3, 9)], values=values)
    yield recipe("ZEROS_LIKE", "", [f(3, 9)])
    yield recipe("ZEROS_LIKE", "int32", [i(3, 9)], [it()])


def _half(r: np.random.Generator) -> T:
    return T(dtype="float16", data=r.uniform(-2, 2, (3, 7)).astype(np.float16))
