"""Cases of operators that move elements, cut them out, or look them up."""

from typing import Any

import numpy as np

from tests.tflite.build import T
from tests.tflite.cases import F32, Recipes, b, excluded, f, i, it, k, q, qt, recipe


def _kinds(*shape: int, zero: int = 3) -> list[tuple[str, Any, T]]:
    """The same operator on floats, quantised numbers and integers."""
    return [
        ("", f(*shape), F32),
        ("int8", q(*shape, zero=zero), qt(zero=zero)),
        ("uint8", q(*shape, dtype="uint8", zero=120), qt("uint8", zero=120)),
        ("int16", q(*shape, dtype="int16", scale=1e-4), qt("int16", 1e-4)),
        ("int32", i(*shape), it()),
        ("int64", i(*shape, dtype="int64"), it("int64")),
    ]


def recipes() -> Recipes:
    yield from _shapes()
    yield from _copied()
    yield from _cuts()
    yield from _pads()
    yield from _places()
    yield from _lookups()
    yield from _stablehlo()


def _copied() -> Recipes:
    """LiteRT copies integers as they are stored, whatever the scale of the result is."""
    x, out = q(1, 4, 6, 8, zero=3), qt("int8", 0.008, -5)
    window = {"filterHeight": 2, "filterWidth": 2, "strideH": 1, "strideW": 2}
    for kind, operands, values in (
        ("RESHAPE", [k([1, 24, 8])], {"newShape": [1, 24, 8]}),
        ("TRANSPOSE", [k([0, 2, 1, 3])], {}),
        ("SLICE", [k([0, 1, 0, 0]), k([1, 2, 6, 8])], {}),
        ("GATHER", [k([1, 0, 3])], {"axis": 1}),
        ("PAD", [k([[0, 0], [1, 1], [0, 1], [0, 0]])], {}),
        ("DEPTH_TO_SPACE", [], {"blockSize": 2}),
        ("BROADCAST_TO", [k([2, 4, 6, 8])], {}),
        ("MAX_POOL_2D", [], {**window, "fusedActivationFunction": 3}),
        ("AVERAGE_POOL_2D", [], window),
        ("RESIZE_BILINEAR", [k([8, 12])], {}),
        ("MAXIMUM", [q(1, 4, 6, 8, scale=0.05, zero=-9)], {}),
    ):
        yield recipe(kind, "copied", [x, *operands], [out], values)


def _shapes() -> Recipes:
    for label, x, out in _kinds(2, 3, 4, 5):
        yield recipe("RESHAPE", label, [x, k([6, 20])], [out], {"newShape": [6, 20]})
        yield recipe("TRANSPOSE", label, [x, k([0, 3, 1, 2])], [out])
        yield recipe("EXPAND_DIMS", label, [x, k(-1)], [out])
    for label, x, out in _kinds(2, 1, 4, 1):
        yield recipe("SQUEEZE", label, [x], [out], {"squeezeDims": [1]})
    yield recipe("SQUEEZE", "all", [f(1, 3, 1, 5)], values={"squeezeDims": []})
    yield recipe("TRANSPOSE", "five_axes", [f(2, 3, 1, 4, 5), k([4, 2, 0, 1, 3])])
    yield recipe("TRANSPOSE", "matrix", [f(7, 9), k([1, 0])])
    yield recipe("SHAPE", "", [f(2, 3, 4)], [it()], {"outType": 2})
    yield recipe("SHAPE", "int64", [f(2, 3, 4)], [it("int64")], {"outType": 4})
    yield recipe("RANK", "", [f(2, 3, 4)], [it()])
    yield recipe("RANGE", "", [k(2), k(17), k(3)], [it()])
    yield recipe("RANGE", "float", [k(0.5, "float32"), k(-3.0, "float32"), k(-0.5, "float32")])
    yield recipe("FILL", "", [k([2, 3]), f()])
    yield recipe("FILL", "int32", [k([2, 3]), i()], [it()])
    yield recipe("BROADCAST_ARGS", "", [k([2, 1, 4]), k([3, 1])], [it()])
    for label, x, out in _kinds(3, 1, 4):
        yield recipe("BROADCAST_TO", label, [x, k([2, 3, 5, 4])], [out])


def _cuts() -> Recipes:
    for label, x, out in _kinds(2, 5, 6, 8):
        yield recipe("SLICE", label, [x, k([0, 1, 2, 3]), k([-1, 3, 4, 2])], [out])
        begin, end, step = k([0, 1, 0, 7]), k([2, 4, 6, 1]), k([1, 2, 1, -2])
        yield recipe("STRIDED_SLICE", label, [x, begin, end, step], [out])
        yield recipe("SPLIT", label, [k(3), x], [out] * 2, {"numSplits": 2})
        yield recipe("SPLIT_V", label, [x, k([3, 1, -1]), k(3)], [out] * 3, {"numSplits": 3})
    for name, values in {
        "masks": {"beginMask": 1, "endMask": 5},
        "shrink": {"shrinkAxisMask": 2},
        "new_axis": {"newAxisMask": 1, "endMask": 4},
        "ellipsis": {"ellipsisMask": 1},
        "offset": {"offset": True},
    }.items():
        data = [f(4, 5, 6), k([1, 2, 0]), k([3, 3, 2]), k([1, 1, 1])]
        yield recipe("STRIDED_SLICE", name, data, [F32], values)
    for label, x, out in _kinds(3, 4, 5):
        if label != "int64":
            yield recipe("UNPACK", label, [x], [out] * 4, {"num": 4, "axis": 1})
        yield recipe("PACK", label, [x, x], [out], {"valuesCount": 2, "axis": 1})
        yield recipe("CONCATENATION", label, [x, x, x], [out], {"axis": 2})
        yield recipe("TILE", label, [x, k([2, 1, 3])], [out])
        yield recipe("REVERSE_V2", label, [x, k([1])], [out])
        axes = {"seqDim": 2, "batchDim": 0}
        if label not in ("int8",):
            yield recipe("REVERSE_SEQUENCE", label, [x, k([2, 5, 1])], [out], axes)
    first = q(1, 3, 3, 5, dtype="uint8", scale=0.02, zero=120)
    mixed = [first, q(1, 3, 3, 3, dtype="uint8", scale=0.03, zero=90)]
    yield recipe("CONCATENATION", "uint8_mixed", mixed, [qt("uint8", 0.03, 100)], {"axis": 3})
    yield recipe("CONCATENATION", "relu", [f(1, 3, 3, 5), f(1, 3, 3, 3)], [F32], {"axis": -1})


def _pads() -> Recipes:
    for label, x, out in _kinds(1, 4, 5, 3):
        pads = k([[0, 0], [1, 2], [0, 3], [1, 1]])
        yield recipe("PAD", label, [x, pads], [out])
        if label in ("", "int8", "uint8", "int32", "int64"):
            yield recipe("MIRROR_PAD", label, [x, pads], [out], {"mode": 0})
            yield recipe("MIRROR_PAD", f"{label}_symmetric", [x, pads], [out], {"mode": 1})
    spatial = k([[0, 0], [1, 2], [0, 3], [0, 0]])
    yield recipe("PADV2", "", [f(1, 4, 5, 3), spatial, k(1.5, "float32")])
    value = q(1, scale=0.02, zero=3, constant=True)
    yield recipe("PADV2", "int8", [q(1, 4, 5, 3, zero=3), spatial, value], [qt(zero=3)])
    yield recipe("PADV2", "int32", [i(1, 4, 5, 3), spatial, k(7)], [it()])
    yield recipe("DILATE", "", [f(3, 4), k([2, 3]), k(0.5, "float32")])
    yield recipe("DILATE", "int32", [i(3, 4), k([2, 1]), k(7)], [it()])


def _places() -> Recipes:
    for label, x, out in _kinds(2, 4, 6, 8):
        if label == "int16":
            continue
        yield recipe("SPACE_TO_DEPTH", label, [x], [out], {"blockSize": 2})
        yield recipe("DEPTH_TO_SPACE", label, [x], [out], {"blockSize": 2})
    for label, x, out in _kinds(4, 3, 5, 2):
        yield recipe("BATCH_TO_SPACE_ND", label, [x, k([2, 2]), k([[0, 1], [1, 0]])], [out])
    for label, x, out in _kinds(2, 3, 5, 2):
        yield recipe("SPACE_TO_BATCH_ND", label, [x, k([2, 3]), k([[1, 0], [0, 1]])], [out])


def _lookups() -> Recipes:
    for label, x, out in _kinds(5, 3, 4):
        yield recipe("GATHER", label, [x, k([3, 0, 4, 4])], [out], {"axis": 0})
        yield recipe("GATHER_ND", label, [x, k([[0, 1], [4, 2], [3, 0]])], [out])
    for axis in (1, 2):
        data = [f(5, 3, 4), i(2, 2, low=0, high=3)]
        yield recipe("GATHER", f"axis{axis}", data, values={"axis": axis})
    data = [f(2, 5, 3), i(2, 4, low=0, high=5)]
    yield recipe("GATHER", "batch", data, values={"axis": 1, "batchDims": 1})
    yield recipe("GATHER_ND", "runtime", [f(5, 3), i(4, 2, low=0, high=3)])
    yield recipe("EMBEDDING_LOOKUP", "", [k([3, 0, 2]), f(5, 4)])
    yield recipe("EMBEDDING_LOOKUP", "runtime", [i(3, low=0, high=5), f(5, 4)])
    ids, weights = k([[0, 0], [0, 1], [2, 0]]), k([1.0, 2.0, 0.5], "float32")
    data = [k([1, 3, 0]), ids, k([3, 2]), weights, f(4, 3, 2)]
    for number, label in enumerate(("sum", "mean", "sqrtn")):
        yield recipe("EMBEDDING_LOOKUP_SPARSE", label, data, values={"combiner": number})
    data = [k([3, 7, 12]), k([1, 3, 12, 20]), f(4, 5)]
    yield recipe("HASHTABLE_LOOKUP", "", data, [F32, it("uint8")])
    data = [i(3, 4, low=-1, high=6), k(6), k(2.0, "float32"), k(-1.0, "float32")]
    yield recipe("ONE_HOT", "", data, values={"axis": -1})
    yield recipe("ONE_HOT", "int32", [i(5, low=0, high=4), k(4), k(1), k(0)], [it()], {"axis": 0})
    yield recipe("SCATTER_ND", "", [k([[4], [1], [7]]), f(3, 2), k([8, 2])])
    yield recipe("SCATTER_ND", "int32", [k([[0, 1], [2, 2], [0, 1]]), i(3), k([3, 4])], [it()])
    yield recipe("SPARSE_TO_DENSE", "", [k([[0, 1], [2, 3]]), k([3, 4]), f(2), k(0.5, "float32")])
    yield recipe("MATRIX_DIAG", "", [f(2, 4)])
    yield recipe("MATRIX_SET_DIAG", "", [f(2, 4, 5), f(2, 4)])
    yield recipe("DYNAMIC_UPDATE_SLICE", "", [f(4, 5, 6), f(2, 3, 2), k([1, 1, 4])])
    yield recipe("DYNAMIC_UPDATE_SLICE", "runtime", [f(4, 5), f(2, 3), i(2, low=-2, high=6)])
    yield recipe("TOPK_V2", "", [f(3, 9), k(4)], [F32, it()])
    yield recipe("TOPK_V2", "int32", [_distinct, k(4)], [it(), it()])
    yield recipe("BUCKETIZE", "", [f(3, 5)], [it()], {"boundaries": [-1.0, 0.0, 0.5, 1.5]})
    yield recipe("DENSIFY", "", [_sparse])
    yield recipe("WHERE", "constant", [k([[True, False], [True, True]], "bool")], [it("int64")])
    yield recipe("WHERE", "runtime", [b(3, 4)], [it("int64")])
    yield recipe("UNIQUE", "constant", [k([3, 1, 3, 7, 1])], [it(), it()], {"idxOutType": 2})
    yield recipe("UNIQUE", "runtime", [i(9, low=0, high=4)], [it(), it()], {"idxOutType": 2})
    yield excluded("LSH_PROJECTION", "hashes the bytes of strings and floats")
    yield excluded("SKIP_GRAM", "text as input")
    for reason, kinds in (
        ("a table is a resource", "HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE"),
        ("a variable is a resource", "VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE"),
        ("draws random numbers", "RANDOM_UNIFORM RANDOM_STANDARD_NORMAL MULTINOMIAL"),
        ("draws random numbers", "STABLEHLO_RNG_BIT_GENERATOR"),
    ):
        yield from (excluded(kind, reason) for kind in kinds.split())


def _distinct(r: np.random.Generator) -> T:
    return T(dtype="int32", data=np.stack([r.permutation(9) for _ in range(3)]).astype(np.int32))


def _sparse(r: np.random.Generator) -> T:
    """Five rows of eight columns, as TFLite stores a sparse constant: columns compressed."""
    dense = r.uniform(-1, 1, (5, 8)).astype(np.float32)
    dense[r.uniform(0, 1, (5, 8)) < 0.7] = 0
    return T(data=dense, is_constant=True, is_sparse=True)


def _stablehlo() -> Recipes:
    for kind in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"):
        yield recipe(f"STABLEHLO_{kind}", "", [f(3, 4), f(3, 4)])
    pads = {"edgePaddingLow": [1, 0], "edgePaddingHigh": [2, -1], "interiorPadding": [1, 0]}
    yield recipe("STABLEHLO_PAD", "", [f(3, 4), k(0.5, "float32")], [F32], pads)
    rows = {"offsetDims": [1], "collapsedSliceDims": [0], "startIndexMap": [0]}
    rows |= {"indexVectorDim": 1, "sliceSizes": [1, 4], "indicesAreSorted": False}
    data = [f(5, 4), k([[3], [0], [2]], "int64")]
    yield recipe("STABLEHLO_GATHER", "", data, [T(shape=(3, 4))], rows)
