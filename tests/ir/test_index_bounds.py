"""Random whole numbers fit what they index; a reference that fails says whose numbers it had."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from adrenoc.base.errors import InputError
from adrenoc.check.inputs import InputFile, make_inputs
from adrenoc.check.reference import run_reference
from adrenoc.importers import import_model
from tests.ir.import_and_run import check
from tests.models import graph, parse_nodes, write
from tests.tflite.build import ModelBuilder, T

node = helper.make_node
INT64 = TensorProto.INT64
TABLE = np.linspace(-1, 1, 7 * 4, dtype=np.float32).reshape(7, 4)
HELD = {
    "table": TABLE,
    "two": TABLE[:2],
    "three": np.array(3),
    "one": np.array(1.0, np.float32),
    "far": np.array(-1e4, np.float32),
    "first": np.array([0]),
    "last": np.array([1]),
    "depth": np.array(5),
    "values": np.array([0, 1], np.float32),
    "steps": np.arange(6),
    "grid": np.arange(12, dtype=np.float32).reshape(3, 4),
    "pairs": np.array([[1, 1]]),
}

CASES: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...]]] = {
    "a table": ([node("Gather", ["table", "i"], ["y"])], (0, 6)),
    "the smaller of two tables": (
        parse_nodes("a = Gather(table, i) b = Gather(two, i) y = Add(a, b)"),
        (0, 1),
    ),
    "through a cast and a reshape": (
        parse_nodes("c = Cast <to = 6>(i) u = Unsqueeze(c, last) y = Gather(table, u)"),
        (0, 6),
    ),
    "with an offset": (
        [node("Add", ["i", "three"], ["o"]), node("Gather", ["table", "o"], ["y"])],
        (0, 3),
    ),
    "less an offset": (
        [node("Sub", ["i", "three"], ["o"]), node("Gather", ["table", "o"], ["y"])],
        (3, 9),
    ),
    "times a number": (
        [node("Mul", ["i", "three"], ["o"]), node("Gather", ["table", "o"], ["y"])],
        (0, 2),
    ),
    "a part of it": (
        [node("Slice", ["i", "first", "last"], ["s"]), node("Gather", ["table", "s"], ["y"])],
        (0, 6),
    ),
    "elements": ([node("GatherElements", ["grid", "j"], ["y"], axis=1)], (0, 3)),
    "places": ([node("GatherND", ["grid", "k"], ["y"])], (0, 2)),
    "one of a number": ([node("OneHot", ["i", "depth", "values"], ["y"])], (0, 4)),
    "a mask": (parse_nodes("f = Cast <to = 1>(i) n = Sub(one, f) y = Mul(n, far)"), (0, 1)),
    "a truth value": (parse_nodes("b = Cast <to = 9>(i) y = Cast <to = 1>(b)"), (0, 1)),
    "a length": (
        [node("Less", ["steps", "i"], ["b"]), node("Cast", ["b"], ["y"], to=TensorProto.FLOAT)],
        (0, 5),
    ),
    "nothing": ([node("Cast", ["i"], ["y"], to=TensorProto.FLOAT)], ()),
}
SHAPES = {"i": (6,), "j": (3, 2), "k": (2, 2)}


def model_of(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    read = {name for n in nodes for name in n.input}
    inputs = {name: shape for name, shape in SHAPES.items() if name in read}
    held = {name: value for name, value in HELD.items() if name in read}
    return graph(nodes, inputs, ["y"], held, dtype=INT64)


@pytest.mark.parametrize("case", CASES)
def test_whole_numbers_fit_what_they_index(case, tmp_path):
    nodes, bounds = CASES[case]
    imported, _ = check(write(model_of(nodes), tmp_path))
    assert [spec.bounds for spec in imported.inputs] == [bounds]
    seen = np.concatenate(
        [
            make_inputs(imported.inputs, seed=s)[n].ravel()
            for s in range(40)
            for n in [imported.inputs[0].name]
        ]
    )
    assert (seen.min(), seen.max()) == (bounds or (0, 9))


def test_lookups_of_tflite(tmp_path):
    builder = ModelBuilder()
    main = builder.graph()
    ids = main.add(T(dtype="int32", data=np.array([0, 1], np.int32)))
    table = main.add(T(data=TABLE, is_constant=True))
    (found,) = main.op("GATHER", [table, ids], [T(shape=(2, 4))], "GatherOptions")
    main.outputs = [found]
    path = tmp_path / "model.tflite"
    path.write_bytes(builder.finish()[0])
    assert [s.bounds for s in import_model(path, shapes={}).inputs] == [(0, 6)]


def test_whose_numbers_failed_is_told(tmp_path):
    model = model_of([node("Gather", ["table", "i"], ["y"])])
    path = write(model, tmp_path)
    (spec,) = import_model(path, shapes={}).inputs
    drawn = make_inputs([spec])
    drawn["i"] = np.array([0, 0, 0, 0, 0, 99])
    with pytest.raises(InputError, match=r"'i' hold random numbers, as none were given"):
        run_reference(path, drawn)
    np.save(tmp_path / "i.npy", drawn["i"])
    given = make_inputs([spec], [InputFile(path=tmp_path / "i.npy")])
    with pytest.raises(InputError, match="on the arrays given"):
        run_reference(path, given)


@pytest.mark.parametrize(
    ("operator", "number", "bounds"),
    [
        ("Div", 255.0, (0, 255)),
        ("Mul", 1 / 127.5, (0, 255)),
        ("Sub", 127.5, (0, 255)),
        ("Div", 2.0, ()),
        ("Sub", 0.485, ()),
    ],
)
def test_floats_that_are_scaled_as_pixels_are_pixels(tmp_path, operator, number, bounds):
    nodes = [node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]), node(operator, ["t", "c"], ["y"])]
    made = graph(nodes, {"x": [1, 4, 4, 3]}, ["y"], {"c": np.float32(number)})
    (spec,) = import_model(write(made, tmp_path), shapes={}).inputs
    assert spec.bounds == bounds


def spectrum(*, of: str) -> onnx.ModelProto:
    """Bands of a sound, as `of` a convolution's or a product's powers; or what a network learned
    of it."""
    bases = np.sin(np.outer(np.arange(16), np.arange(64))).astype(np.float32)
    first = [node("Unsqueeze", ["x", "one"], ["row"])]
    made = [node("Conv", ["row", "bases"], ["parts"], strides=[32])]
    if of == "product":
        first = [node("Reshape", ["x", "frames"], ["row"]), node("Mul", ["row", "window"], ["cut"])]
        made = [node("MatMul", ["cut", "rows"], ["parts"])]
    last = [node("Relu", ["parts"], ["y"])]
    if of != "network":
        last = [node("Mul", ["parts", "parts"], ["powers"]), node("Log", ["powers"], ["y"])]
    constants = {
        "one": np.array([1]),
        "bases": bases[:, None],
        "rows": np.ascontiguousarray(bases.T),
        "frames": np.array([16, 64]),
        "window": np.hanning(64).astype(np.float32),
    }
    return graph([*first, *made, *last], {"x": [1, 1024]}, ["y"], constants)


@pytest.mark.parametrize("of", ["convolution", "product", "network"])
def test_what_a_spectrum_is_taken_of_is_a_sound_of_16_bits(tmp_path, of):
    (found,) = import_model(write(spectrum(of=of), tmp_path), shapes={}).inputs
    assert found.bounds == (() if of == "network" else (-32768, 32767))
