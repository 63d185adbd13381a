"""Random whole numbers fit what they index; a reference that fails says whose numbers it had."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from adrenoc.base.errors import InputError
from adrenoc.check.inputs import InputFile, make_inputs
from adrenoc.check.reference import run_reference
from adrenoc.importers import import_model
from tests.ir.import_and_run import check
from tests.models import graph, parse_nodes, write
from tests.tflite.build import T, constant, write_operator

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

CASES: dict[str, tuple[str, tuple[int, ...]]] = {
    "a table": ("y = Gather(table, i)", (0, 6)),
    "the smaller of two tables": ("a = Gather(table, i) b = Gather(two, i) y = Add(a, b)", (0, 1)),
    "through a cast and a reshape": (
        "c = Cast <to = 6>(i) u = Unsqueeze(c, last) y = Gather(table, u)",
        (0, 6),
    ),
    "with an offset": ("o = Add(i, three) y = Gather(table, o)", (0, 3)),
    "less an offset": ("o = Sub(i, three) y = Gather(table, o)", (3, 9)),
    "times a number": ("o = Mul(i, three) y = Gather(table, o)", (0, 2)),
    "a part of it": ("s = Slice(i, first, last) y = Gather(table, s)", (0, 6)),
    "elements": ("y = GatherElements <axis = 1>(grid, j)", (0, 3)),
    "places": ("y = GatherND(grid, k)", (0, 2)),
    "one of a number": ("y = OneHot(i, depth, values)", (0, 4)),
    "a mask": ("f = Cast <to = 1>(i) n = Sub(one, f) y = Mul(n, far)", (0, 1)),
    "a truth value": ("b = Cast <to = 9>(i) y = Cast <to = 1>(b)", (0, 1)),
    "a length": ("b = Less(steps, i) y = Cast <to = 1>(b)", (0, 5)),
    "nothing": ("y = Cast <to = 1>(i)", ()),
}
SHAPES = {"i": (6,), "j": (3, 2), "k": (2, 2)}


def model_of(text: str) -> onnx.ModelProto:
    nodes = parse_nodes(text)
    read = {name for n in nodes for name in n.input}
    inputs = {name: shape for name, shape in SHAPES.items() if name in read}
    held = {name: value for name, value in HELD.items() if name in read}
    return graph(nodes, inputs, ["y"], held, dtype=INT64)


@pytest.mark.parametrize("case", CASES)
def test_whole_numbers_fit_what_they_index(case, tmp_path):
    nodes, bounds = CASES[case]
    imported, _ = check(write(model_of(nodes), tmp_path))
    (spec,) = imported.inputs
    assert spec.bounds == bounds
    seen = np.stack([make_inputs([spec], seed=seed)[spec.name] for seed in range(40)])
    assert (seen.min(), seen.max()) == (bounds or (0, 9))


def test_lookups_of_tflite(tmp_path):
    operands = [constant(TABLE, "float32"), T(dtype="int32", data=np.array([0, 1], np.int32))]
    path = write_operator(tmp_path, "GATHER", operands, T(shape=(2, 4)), "GatherOptions")
    assert [s.bounds for s in import_model(path, shapes={}).inputs] == [(0, 6)]


def test_whose_numbers_failed_is_told(tmp_path):
    path = write(model_of("y = Gather(table, i)"), tmp_path)
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
    nodes = f"t = Transpose <perm = [0, 3, 1, 2]>(x) y = {operator}(t, c)"
    made = graph(nodes, {"x": [1, 4, 4, 3]}, ["y"], {"c": np.float32(number)})
    (spec,) = import_model(write(made, tmp_path), shapes={}).inputs
    assert spec.bounds == bounds


def spectrum(*, of: str) -> onnx.ModelProto:
    """Bands of a sound, as `of` a convolution's or a product's powers; or what a network learned
    of it."""
    bases = np.sin(np.outer(np.arange(16), np.arange(64))).astype(np.float32)
    made = "row = Unsqueeze(x, one) parts = Conv <strides = [32]>(row, bases) "
    if of == "product":
        made = "row = Reshape(x, frames) cut = Mul(row, window) parts = MatMul(cut, rows) "
    last = "y = Relu(parts)" if of == "network" else "powers = Mul(parts, parts) y = Log(powers)"
    constants = {
        "one": np.array([1]),
        "bases": bases[:, None],
        "rows": np.ascontiguousarray(bases.T),
        "frames": np.array([16, 64]),
        "window": np.hanning(64).astype(np.float32),
    }
    return graph(made + last, {"x": [1, 1024]}, ["y"], constants)


@pytest.mark.parametrize("of", ["convolution", "product", "network"])
def test_what_a_spectrum_is_taken_of_is_a_sound_of_16_bits(tmp_path, of):
    (found,) = import_model(write(spectrum(of=of), tmp_path), shapes={}).inputs
    assert found.bounds == (() if of == "network" else (-32768, 32767))
