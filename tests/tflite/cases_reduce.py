"""Cases of reductions and norms."""

from tests.tflite.cases import Recipes, b, f, i, it, k, q, qt, recipe


def recipes() -> Recipes:
    yield from _reductions()
    yield from _norms()


def _reductions() -> Recipes:
    for kind in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
        yield recipe(kind, "", [f(2, 5, 6, 7), k([1, 2])])
        yield recipe(kind, "keeps", [f(2, 5, 6, 7), k([3])], values={"keepDims": True})
        yield recipe(kind, "all", [f(3, 4, 2), k([0, 1, 2])])
        yield recipe(kind, "last", [f(3, 9), k([-1])])
        yield recipe(kind, "int32", [i(3, 4, low=1, high=4), k([1])], [it()])
    for kind in ("REDUCE_MAX", "REDUCE_MIN"):
        for dtype, zero in (("int8", 5), ("uint8", 100)):
            yield recipe(
                kind,
                dtype,
                [q(2, 5, 6, 7, dtype=dtype, zero=zero), k([1, 2])],
                [qt(dtype, zero=zero)],
            )
    for dtype, zero in (("int8", 5), ("uint8", 100)):
        x = q(2, 5, 6, 7, dtype=dtype, zero=zero)
        yield recipe("MEAN", dtype, [x, k([1, 2])], [qt(dtype, 0.003, zero)])
        yield recipe("MEAN", f"{dtype}_same", [x, k([1, 2])], [qt(dtype, zero=zero)])
        yield recipe("SUM", dtype, [x, k([1, 2])], [qt(dtype, 0.1, zero)])
    yield recipe(
        "MEAN", "int8_channels", [q(2, 5, 6, zero=3), k([2])], [qt(zero=3)], {"keepDims": True}
    )
    for kind in ("REDUCE_ALL", "REDUCE_ANY"):
        yield recipe(kind, "", [b(4, 5, 3), k([2])], [it("bool")])
    for kind in ("ARG_MAX", "ARG_MIN"):
        yield recipe(kind, "", [f(3, 4, 9), k(-1)], [it()], {"outputType": 2})
        yield recipe(kind, "axis1", [f(3, 4, 9), k(1)], [it("int64")], {"outputType": 4})
        yield recipe(kind, "int8", [q(3, 9), k(1)], [it()], {"outputType": 2})
        yield recipe(kind, "int32", [i(3, 9), k(1)], [it()], {"outputType": 2})
        yield recipe(kind, "bool", [b(3, 9), k(1)], [it()], {"outputType": 2})
    for label, values in {
        "": {},
        "exclusive": {"exclusive": True},
        "reverse": {"reverse": True},
        "both": {"exclusive": True, "reverse": True},
    }.items():
        yield recipe("CUMSUM", label, [f(3, 7), k(1)], values=values)
    yield recipe("CUMSUM", "int32", [i(3, 7), k(0)], [it()])
    yield recipe("SEGMENT_SUM", "", [f(5, 3), k([0, 0, 1, 2, 2])])
    for name in ("Sum", "Prod", "Max", "Min"):
        kind = f"UNSORTED_SEGMENT_{name.upper()}"
        yield recipe(kind, "", [f(5, 3), k([2, 0, 1, 0, 2]), k(4)])
        yield recipe(kind, "runtime", [f(5, 3), i(5, low=0, high=4), k(4)])
    for number, label in ((1, "add"), (2, "mul"), (3, "min"), (4, "max")):
        data = [
            f(5, 6),
            k({1: 0.0, 2: 1.0, 3: 9e9, 4: -9e9}[number], "float32"),
            k([2, 3], "int64"),
            k([1, 2], "int64"),
            k([1, 1], "int64"),
        ]
        yield recipe("REDUCE_WINDOW", label, data, values={"reduceFunction": number})


def _norms() -> Recipes:
    yield recipe("SOFTMAX", "", [f(3, 9)], values={"beta": 1.0})
    yield recipe("SOFTMAX", "beta", [f(1, 3, 4, 9)], values={"beta": 0.5})
    yield recipe(
        "SOFTMAX",
        "int8",
        [q(3, 19, scale=0.05, zero=3)],
        [qt("int8", 1 / 256, -128)],
        {"beta": 1.0},
    )
    yield recipe(
        "SOFTMAX",
        "uint8",
        [q(3, 19, dtype="uint8", scale=0.05)],
        [qt("uint8", 1 / 256, 0)],
        {"beta": 1.0},
    )
    yield recipe(
        "SOFTMAX",
        "int16",
        [q(3, 19, dtype="int16", scale=1e-4)],
        [qt("int16", 1 / 32768, 0)],
        {"beta": 1.0},
    )
    yield recipe("LOG_SOFTMAX", "", [f(3, 9)])
    yield recipe("LOG_SOFTMAX", "int8", [q(3, 19, scale=0.05, zero=3)], [qt("int8", 16 / 256, 127)])
    yield recipe("L2_NORMALIZATION", "", [f(1, 3, 4, 7)])
    yield recipe("L2_NORMALIZATION", "int8", [q(3, 7, zero=4)], [qt("int8", 1 / 128, 0)])
    yield recipe(
        "L2_NORMALIZATION", "uint8", [q(3, 7, dtype="uint8", zero=124)], [qt("uint8", 1 / 128, 128)]
    )
    yield recipe(
        "LOCAL_RESPONSE_NORMALIZATION",
        "",
        [f(1, 3, 4, 9)],
        values={"radius": 2, "bias": 1.5, "alpha": 0.3, "beta": 0.6},
    )
