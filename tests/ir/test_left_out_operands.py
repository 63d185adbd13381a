"""Inputs that nodes leave out, whole numbers that index, forms that are seldom."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from adrenoc.base import errors
from adrenoc.base.decision import Decision
from adrenoc.base.errors import InputError
from adrenoc.check.inputs import InputFile, make_inputs
from adrenoc.check.reference import run_reference
from adrenoc.importers import import_model
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx.importer import import_onnx
from adrenoc.importers.onnx.session import open_session
from tests.ir.planning import check
from tests.models import graph, parse_nodes, write
from tests.stock_tvm import run_on_cpu
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


node = helper.make_node

ROW = np.ones((1, 3), np.float32)
MANY = ("Concat", "Einsum", "Max", "Mean", "Min", "SequenceConstruct", "Sum")
NEEDED = {
    **{op: (f'y = {op}(x, c, "")', 2) for op in MANY},
    "of an Add": ('y = Add("", x)', 0),
    "of a Range": ('y = Range(c, "", c)', 1),
    "of a Conv": ('y = Conv(x, "", c)', 1),
    "of a Relu": ('y = Relu("")', 0),
    "in a branch": (
        'y = If <then_branch = b () => (z) { z = Sum(x, "") }, '
        "else_branch = b () => (z) { z = Neg(x) }>(go)",
        1,
    ),
}


def leaving_out(nodes: list[onnx.NodeProto], **options: int) -> onnx.ModelProto:
    for one in nodes:
        attributes = {"Concat": {"axis": 0}, "Einsum": {"equation": "ab,ab,ab"}}
        for name, value in attributes.get(one.op_type, {}).items():
            one.attribute.append(helper.make_attribute(name, value))
    return graph(nodes, {"x": (2, 3)}, ["y"], {"c": ROW, "go": np.array(True)}, **options)


def imported(model: onnx.ModelProto, folder: Path) -> list[tuple[int, ...]]:
    """The shapes of the results."""
    found = import_onnx(find_model_files(write(model, folder)), shapes={})
    return [spec.shape for spec in found.outputs]


@pytest.mark.parametrize("name", NEEDED)
def test_an_input_that_the_operator_needs_is_named(tmp_path, name):
    """TVM's concatenation of nothing at all ends the process."""
    text, index = NEEDED[name]
    nodes = parse_nodes(text)
    with pytest.raises(errors.ModelFormatError, match=f"leaves out input {index} ") as raised:
        imported(leaving_out(nodes), tmp_path)
    place = "Sum the node of 'z'" if name == "in a branch" else f"{nodes[0].op_type} the node of"
    assert raised.value.message.startswith(place)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_function_that_leaves_an_input_out(tmp_path, leaves):
    """What its node leaves out reaches those of its body."""
    model = leaving_out([node("F", ["x", "" if leaves else "c"], ["y"], domain="own")])
    body, opsets = [node("Sum", ["a", "b"], ["z"])], [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "F", ["a", "b"], ["z"], body, opsets))
    model.opset_import.append(helper.make_opsetid("own", 1))
    if not leaves:
        assert imported(model, tmp_path) == [(2, 3)]
        return
    with pytest.raises(errors.ModelFormatError, match=r"Sum .* leaves out input 1 "):
        imported(model, tmp_path)


def test_what_may_be_left_out_is(tmp_path):
    nodes = "a = Clip(x, , most) y = Resize(a, , scales)"
    held = {"most": np.array(1, np.float32), "scales": np.array([1, 2], np.float32)}
    model = graph(nodes, {"x": (2, 3)}, ["y"], held, opset=18)
    assert imported(model, tmp_path) == [(2, 6)]


RNG = np.random.default_rng(0)


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


@pytest.mark.parametrize("constant", [True, False])
def test_zeros_are_quantised_by_a_scale_of_one(tmp_path, constant):
    """Their range is nothing to divide by; onnxruntime says so."""
    data = "zeros" if constant else "none"
    nodes = [
        node("Mul", ["x", "nought"], ["none"]),
        node("DynamicQuantizeLinear", [data], ["q", "scale", "zero"]),
        node("Add", ["x", "scale"], ["y"]),
    ]
    held = {"zeros": np.zeros((2, 4), np.float32), "nought": number(0.0)}
    check(write(graph(nodes, {"x": (2, 4)}, ["q", "scale", "zero", "y"], held), tmp_path))


def test_a_scale_of_zero_quantises_to_the_ends(tmp_path):
    nodes = "q = QuantizeLinear(x, none, zero) y = DequantizeLinear(q, scale, zero)"
    held = {"none": number(0.0), "scale": number(0.1), "zero": np.array(7, np.uint8)}
    check(write(graph(nodes, {"x": (2, 4)}, ["y"], held), tmp_path))


def product(shape: tuple[int, ...], axis: int) -> tuple[str, dict[str, np.ndarray]]:
    """Quantised tensors' product, with a scale of the weight for each index along an axis."""
    channels = shape[axis]
    nodes = (
        "q = QuantizeLinear(x, x_scale, x_zero) d = DequantizeLinear(q, x_scale, x_zero) "
        f"f = DequantizeLinear <axis = {axis}>(w, w_scale, w_zero) m = MatMul(d, f) "
        "r = QuantizeLinear(m, y_scale, x_zero) y = DequantizeLinear(r, y_scale, x_zero)"
    )
    held = {
        "w": RNG.integers(-100, 100, shape, dtype=np.int8),
        "w_scale": RNG.uniform(0.01, 0.02, channels).astype(np.float32),
        "w_zero": np.zeros(channels, np.int8),
        "x_scale": number(0.02),
        "x_zero": np.array(3, np.int8),
        "y_scale": number(0.2),
    }
    return nodes, held


@pytest.mark.parametrize(
    ("shape", "axis", "fused"),
    [
        ((8, 6), 1, True),
        ((8, 6), 0, False),
        ((2, 8, 6), 0, False),
        ((2, 8, 6), 1, False),
        ((2, 8, 6), 2, True),
        ((2, 8, 6), -1, True),
        ((8,), 0, False),
    ],
)
def test_a_weight_has_scales_along_any_axis(tmp_path, shape, axis, fused):
    """Those of its columns become a factor of sums; others are no factor of any sum."""
    nodes, held = product(shape, axis)
    imported, _ = check(write(graph(nodes, {"x": (2, 5, 8)}, ["y"], held), tmp_path))
    floats = [d for d in imported.decisions if "quantised tensors computed on floats" in d.taken]
    integers = [d for d in imported.decisions if "computed on the integers" in d.taken]
    assert bool(integers) == fused
    assert floats == ([] if fused else [_left(axis)])


def _left(axis: int) -> Decision:
    return Decision(
        subject="m",
        taken="MatMul between quantised tensors computed on floats",
        reason=f"the scales of its weight lie along axis {axis}",
    )


REGIONS = np.array(
    [[3, 4, 40, 50], [10, 10, 70, 60], [0, 0, 79, 63], [-9, 50, 90, 80], [30, 30, 31, 30.5]],
    np.float32,
)
DATA = np.random.default_rng(0).standard_normal((2, 3, 16, 20)).astype(np.float32)
BATCHES = np.array([0, 1, 0, 1, 1], np.int64)


def check_regions(
    tmp_path: Path, model: onnx.ModelProto, feeds: dict[str, np.ndarray], opset: int = 0
) -> None:
    if opset:
        model.opset_import[0].version = opset
    path = write(model, tmp_path)
    (expected,) = open_session(path).run(None, feeds)
    (found,) = run_on_cpu(import_model(path, shapes={}).module, list(feeds.values()))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize(("mode", "samples"), [("avg", 0), ("avg", 2), ("max", 2)])
def test_roi_align_of_a_smaller_map(tmp_path, opset, mode, samples):
    """The half pixel is one of the feature map, not of the image."""
    attrs = f'output_height = 3, output_width = 4, sampling_ratio = {samples}, mode = "{mode}"'
    nodes = f"y = RoiAlign <spatial_scale = 0.25, {attrs}>(x, r, b)"
    model = graph(nodes, {"x": DATA.shape, "r": REGIONS.shape}, ["y"], {"b": BATCHES})
    check_regions(tmp_path, model, {"x": DATA, "r": REGIONS}, opset)


def test_largest_of_regions_of_a_smaller_map(tmp_path):
    regions = np.concatenate([BATCHES[:, None], np.clip(REGIONS, 0, 79)], 1).astype(np.float32)
    nodes = "y = MaxRoiPool <pooled_shape = [3, 4], spatial_scale = 0.25>(x, r)"
    model = graph(nodes, {"x": DATA.shape, "r": regions.shape}, ["y"])
    check_regions(tmp_path, model, {"x": DATA, "r": regions})
