"""Results whose extent depends on data: the entries found first are what onnxruntime computes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.importers import import_model
from adrenoc.importers.onnx.session import open_session
from tests.models import graph, parse_nodes, write
from tests.stock_tvm import run_on_cpu

node = helper.make_node
BATCHES, CLASSES, BOXES = 2, 3, 9
SHAPES = {"x": (BATCHES, BOXES, 4), "s": (BATCHES, CLASSES, BOXES)}
SELECT = node("NonMaxSuppression", ["x", "s", "most", "iou", "least"], ["n"], name="nms")


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CONSTANTS = {
    "most": ints(4),
    "iou": np.array([0.3], np.float32),
    "least": np.array([0.6], np.float32),
    **{"zero": ints(0), "one": ints(1), "two": ints(2), "three": ints(3), "far": ints(2**62)},
    "column": np.array(2, np.int64),
    "both": ints(0, 2),
    "all": ints(-1),
    "half": np.float32(0.5),
}


def boxes() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    centre, size = random.uniform(0, 4, (2, 9, 2)), random.uniform(1, 3, (2, 9, 2))
    corners = np.concatenate([centre, centre + size], axis=2).astype(np.float32)
    return [corners, random.uniform(0, 1, (2, 3, 9)).astype(np.float32)]


def check(
    tmp_path: Path,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    axis: int = 0,
    shapes: dict[str, tuple[int, ...]] | None = None,
    inputs: Sequence[np.ndarray] = (),
    most: int = BATCHES * CLASSES * 4,
    constants: dict[str, np.ndarray] | None = None,
) -> None:
    """What is found, and -1 behind it."""
    own = constants or CONSTANTS
    path = write(graph(list(nodes), shapes or SHAPES, list(outputs), own), tmp_path)
    imported = import_model(path, shapes={})
    fed = list(inputs or boxes())
    expected = open_session(path).run(None, dict(zip(shapes or SHAPES, fed, strict=True)))
    found = run_on_cpu(imported.module, fed)
    for name, value, wanted in zip(outputs, found, expected, strict=True):
        along = np.moveaxis(value, axis, 0), np.moveaxis(wanted, axis, 0)
        assert value.dtype == wanted.dtype
        assert len(along[0]) == most
        assert 0 < len(along[1]) < most
        np.testing.assert_allclose(along[0][: len(along[1])], along[1], rtol=1e-5)
        assert (along[0][len(along[1]) :] == -1).all()
        assert any(d.subject == name and "-1" in d.taken for d in imported.decisions)


def test_boxes_as_an_output(tmp_path):
    check(tmp_path, [SELECT], ["n"])


def test_boxes_and_scores_gathered(tmp_path):
    """As exporters write boxes[b, i], and the row [batch, box, class, score]."""
    nodes = [
        SELECT,
        *parse_nodes(
            "at = Gather <axis = 1>(n, both) corners = GatherND(x, at) score = GatherND(s, n) "
            "c = Unsqueeze(score, one) w = Slice(n, zero, two, one) wf = Cast <to = 1>(w) "
            "h = Mul(corners, half) row = Concat <axis = -1>(wf, h, c)"
        ),
    ]
    check(tmp_path, nodes, ["row", "corners", "score"])


def test_first_boxes_alone(tmp_path):
    nodes = parse_nodes(
        "first = Slice(n, zero, three, zero) i = Slice(n, two, far, one) flat = Reshape(i, all) "
        "few = Slice(flat, zero, three) picked = Gather <axis = 1>(x, few) "
        "y = Transpose <perm = [1, 2, 0]>(picked)"
    )
    shapes = {"x": (1, 9, 4), "s": (1, 1, 9)}
    corners, _ = boxes()
    apart = np.arange(9, dtype=np.float32)[None, :, None] * 9 + corners[:1]
    fed = [apart, np.where(np.arange(9) == 4, 0.9, 0).astype(np.float32).reshape(1, 1, 9)]
    check(tmp_path, [SELECT, *nodes], ["y", "first"], shapes=shapes, inputs=fed, most=3)


def test_indices_that_are_not_zero(tmp_path):
    mask = np.random.default_rng(1).integers(-1, 2, (3, 1, 5)).astype(np.float32)
    shapes = {"x": (3, 1, 5)}
    nodes = parse_nodes("n = NonZero(x)")
    check(tmp_path, nodes, ["n"], axis=1, shapes=shapes, inputs=[mask], most=15)
    nodes += parse_nodes("t = Transpose <perm = [1, 0]>(n) y = GatherND(x, t)")
    check(tmp_path, nodes, ["y"], shapes=shapes, inputs=[np.abs(mask)], most=15)


ROWS = parse_nodes("n = NonZero(m) i = Squeeze(n, zero) rows = Gather <axis = 0>(x, i)")
"""The rows of x [9, 4] that m [9] names, as experts take the tokens that are theirs."""


def rows() -> list[np.ndarray]:
    random = np.random.default_rng(2)
    taken = np.array([0, 1, 0, 0, 1, 1, 0, 1, 0], np.float32)
    return [random.uniform(-1, 1, (9, 4)).astype(np.float32), taken]


def test_rows_by_themselves(tmp_path):
    nodes = parse_nodes(
        "wide = MatMul(rows, weight) share = Softmax <axis = -1>(wide) "
        "norm = LayerNormalization <axis = -1>(wide, factor) "
        "total = ReduceSum <keepdims = 0>(share, one) narrow = Gemm <transB = 1>(wide, weight) "
        "size = Shape(wide) count = Gather(size, zero) parted = Concat <axis = 0>(count, parts) "
        "pairs = Reshape(norm, parted)"
    )
    weight = np.random.default_rng(3).uniform(-1, 1, (4, 6)).astype(np.float32)
    own = {"weight": weight, "factor": np.ones(6, np.float32), "parts": ints(-1, 3), **CONSTANTS}
    outputs = ["wide", "share", "total", "narrow", "pairs"]
    shapes = {"x": (9, 4), "m": (9,)}
    check(tmp_path, [*ROWS, *nodes], outputs, shapes=shapes, inputs=rows(), most=9, constants=own)


@pytest.mark.parametrize(
    "written",
    [
        "s = Shape(rows) at = Expand(column_of, s) y = ScatterElements <axis = 0>(x, at, twice)",
        "y = ScatterND(x, column_of, twice)",
    ],
    ids=["ScatterElements", "ScatterND"],
)
def test_rows_put_back(tmp_path, written):
    """Those that are not there go nowhere: the first row keeps what it has."""
    nodes = parse_nodes(f"twice = Add(rows, rows) column_of = Unsqueeze(i, one) {written}")
    path = write(graph([*ROWS, *nodes], {"x": (9, 4), "m": (9,)}, ["y"], CONSTANTS), tmp_path)
    x, taken = rows()
    (found,) = run_on_cpu(import_model(path, shapes={}).module, [x, taken])
    np.testing.assert_allclose(found, x * (1 + taken[:, None]), rtol=1e-6)


_READERS = [
    *(
        (ROWS, {"x": (9, 4), "m": (9,)}, "rows", reader)
        for reader in parse_nodes(
            "y = MatMul(nines, rows) y = Softmax <axis = 0>(rows) y = ReduceSum(rows, zero) "
            "y = Gemm <transA = 1>(rows, nines) y = ScatterElements <axis = 0>(x, noughts, rows)"
        )
    ),
    *(
        ([SELECT], SHAPES, "n", reader)
        for reader in parse_nodes(
            "y = ReduceSum(n) y = Shape(n) y = Slice(n, one, three, zero) "
            "y = Concat <axis = 0>(n, n) y = Gather <axis = 0>(n, zero) y = Reshape(n, all)"
        )
    ),
]


@pytest.mark.parametrize(
    ("before", "shapes", "mixed", "reader"), _READERS, ids=lambda n: getattr(n, "op_type", "")
)
def test_what_mixes_rows_or_entries_is_refused(tmp_path, before, shapes, mixed, reader):
    reader.name = "reader"
    own = {"nines": np.ones((9, 9), np.float32), "noughts": np.zeros((9, 4), np.int64)}
    model = graph([*before, reader], shapes, ["y"], {**CONSTANTS, **own})
    with pytest.raises(UnsupportedOperatorError, match=f"'reader'.*'{mixed}' has depends on data"):
        import_model(write(model, tmp_path), shapes={})


def test_boxes_without_a_limit_are_refused(tmp_path):
    shapes = {**SHAPES, "limit": (1,)}
    nodes = "n = Cast <to = 7>(limit) [nms] y = NonMaxSuppression(x, s, n)"
    model = graph(nodes, shapes, ["y"], CONSTANTS)
    with pytest.raises(UnsupportedOperatorError, match="number of boxes a class a constant"):
        import_model(write(model, tmp_path), shapes={})


@pytest.mark.parametrize("most", [None, 0, -1])
def test_no_box_of_a_class_is_an_empty_result(tmp_path, most):
    """A maximum that is left out is 0; onnxruntime takes negative ones as 0."""
    limit = "" if most is None else ", limit"
    nodes = (
        f"n = NonMaxSuppression(x, s{limit}) rows = Concat <axis = 0>(n, row) "
        "found = Cast <to = 1>(rows) sum = ReduceSum <keepdims = 0>(s) y = Add(found, sum)"
    )
    constants = {"row": np.array([[0, 1, 2]], np.int64), "limit": ints(most or 0)}
    path = write(graph(nodes, SHAPES, ["y"], constants), tmp_path)
    (found,) = run_on_cpu(import_model(path, shapes={}).module, boxes())
    (expected,) = open_session(path).run(None, dict(zip(SHAPES, boxes(), strict=True)))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_reads_refused_nodes_is_not_named(tmp_path):
    """Of a tensor of unknown shape nobody knows whether rows are mixed."""
    nodes = parse_nodes(
        "[reader] extents = Shape(rows) [maker] zeros = ConstantOfShape(extents) "
        "[after] y = Add(zeros, rows)"
    )
    model = graph([*ROWS, *nodes], {"x": (9, 4), "m": (9,)}, ["y"], CONSTANTS)
    with pytest.raises(UnsupportedOperatorError, match=r"Shape \(1x\); at 'reader'") as refused:
        import_model(write(model, tmp_path), shapes={})
    assert "'after'" not in str(refused.value)


def check_assigned(
    tmp_path: Path, nodes: Sequence[onnx.NodeProto], shapes: dict[str, tuple[int, ...]], **constants
) -> None:
    """All entries of `y`, which has a shape of its own, are onnxruntime's."""
    own = {**CONSTANTS, "none": np.float32(0), "row": ints(8, 6), **constants}
    path = write(graph(list(nodes), shapes, ["y"], own), tmp_path)
    random = np.random.default_rng(5)
    fed = [random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes.values()]
    expected = open_session(path).run(None, dict(zip(shapes, fed, strict=True)))
    found = run_on_cpu(import_model(path, shapes={}).module, fed)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)


COUNTED_VALUES = parse_nodes(
    "flat = Reshape(v, all) extents = Shape(places) count = Gather <axis = 0>(extents, zero) "
    "values = Slice(flat, zero, count, zero) y = ScatterND(x, places, values)"
)
"""As exporters write x[m] = v: the places, and as many values."""


@pytest.mark.parametrize("of", ("m", "ones"))
def test_values_are_assigned_where_a_mask_holds(tmp_path, of):
    nodes = parse_nodes(
        f"m = Greater(x, none) ones = Cast <to = 1>(m) n = NonZero({of}) "
        "places = Transpose <perm = [1, 0]>(n)"
    )
    check_assigned(tmp_path, [*nodes, *COUNTED_VALUES], {"x": (3, 8), "v": (5, 6)})


@pytest.mark.parametrize("written", ("cut", "expanded"))
def test_rows_are_changed_where_a_mask_holds(tmp_path, written):
    """x[m] = f(x[m]): places of elements, and values of the rows that were found."""
    nodes = parse_nodes(
        "m = Greater(k, none) found = NonZero(m) at = Transpose <perm = [1, 0]>(found) "
        "rows = GatherND(x, at) v = Exp(rows) wide = Unsqueeze(m, one) mask = Expand(wide, row) "
        "n = NonZero(mask) places = Transpose <perm = [1, 0]>(n)"
    )
    if written == "cut":
        nodes += COUNTED_VALUES
    else:
        nodes += parse_nodes(
            "ones = Cast <to = 7>(m) count = ReduceSum <keepdims = 1>(ones) "
            "depth = Shape <start = 1>(x) wanted = Concat <axis = 0>(count, depth) "
            "as_many = Expand(v, wanted) values = Reshape(as_many, all) "
            "y = ScatterND(x, places, values)"
        )
    check_assigned(tmp_path, nodes, {"x": (8, 6), "k": (8,)})


def test_one_row_for_all_that_another_mask_found_is_refused(tmp_path):
    """Rows of one mask at the places of another may be one row for all of them."""
    nodes = [
        *ROWS,
        *parse_nodes(
            "m2 = Greater(k, none) wide = Unsqueeze(m2, one) mask = Expand(wide, row) "
            "n2 = NonZero(mask) places = Transpose <perm = [1, 0]>(n2) ones = Cast <to = 7>(m2) "
            "count = ReduceSum <keepdims = 1>(ones) wanted = Concat <axis = 0>(count, six) "
            "as_many = Expand(rows, wanted) values = Reshape(as_many, all) "
            "y = ScatterND(x, places, values)"
        ),
    ]
    shapes: dict[str, tuple[int, ...]] = {"x": (8, 6), "m": (8,), "k": (8,)}
    own = {**CONSTANTS, "none": np.float32(0), "row": ints(8, 6), "six": ints(6)}
    with pytest.raises(UnsupportedOperatorError, match="'rows' has depends on data"):
        import_model(write(graph(nodes, shapes, ["y"], own), tmp_path), shapes={})


def _expanded(name: str, shape: str) -> str:
    """An Expand as PyTorch's exporter writes it, for shapes that may say -1."""
    return (
        f"{name}_r = Shape({shape}) {name}_1 = ConstantOfShape <value = int64[1] {{1}}>({name}_r) "
        f"{name}_n = Mul({name}_1, all) {name}_is = Equal({shape}, {name}_n) "
        f"{name}_s = Where({name}_is, {name}_1, {shape}) {name}_e = Expand({name}, {name}_s) "
    )


@pytest.mark.parametrize(
    "columns",
    [
        "t = Transpose <perm = [1, 0]>(n) ta, tb = Split <axis = 1>(t) a = Squeeze(ta, one) "
        "b = Squeeze(tb, one) ",
        "a = Gather <axis = 0>(n, first) b = Gather <axis = 0>(n, second) ",
    ],
    ids=["split", "gathered"],
)
def test_one_value_where_a_mask_of_the_first_axes_holds(tmp_path, columns):
    """x[torch.where(x.sum(-1) == 0)] = value, as OneFormer's decoder has it."""
    nodes = (
        "total = ReduceSum <keepdims = 0>(x, two) m = Greater(total, none) n = NonZero(m) "
        f"{columns} sum = Add(a, b) count = Shape(sum) "
        f"{_expanded('a', 'count')} a_c = Unsqueeze(a_e, all) "
        f"{_expanded('b', 'count')} b_c = Unsqueeze(b_e, all) "
        "places = Concat <axis = -1>(a_c, b_c) whole = Concat <axis = 0>(count, rest) "
        f"{_expanded('value', 'whole')} values = Reshape(value_e, whole) "
        "y = ScatterND(x, places, values)"
    )
    more = {"first": np.array(0), "second": np.array(1), "rest": ints(6), "value": np.float32(7)}
    check_assigned(tmp_path, parse_nodes(nodes), {"x": (3, 5, 6)}, **more)


def test_one_value_at_places_in_another_order_is_refused(tmp_path):
    nodes = (
        "m = Greater(x, none) n = NonZero(m) turned = Gather <axis = 0>(n, swapped) "
        "places = Transpose <perm = [1, 0]>(turned) size = Shape(places) "
        "count = Gather(size, zero) values = Expand(value, count) "
        "y = ScatterND(x, places, values)"
    )
    own = {**CONSTANTS, "none": np.float32(0), "swapped": ints(1, 0), "value": np.float32(7)}
    with pytest.raises(UnsupportedOperatorError, match="depends on data"):
        import_model(write(graph(nodes, {"x": (4, 4)}, ["y"], own), tmp_path), shapes={})
