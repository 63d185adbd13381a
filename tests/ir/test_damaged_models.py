"""Files that random damage broke the importers with, or nearly: each ends in an error."""

import resource
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from fuzz import harness, mutate
from onnx import helper

from adrenoc.base import errors
from tests.ir import fuzz_judges
from tests.ir.planning import plan_as_user
from tests.models import graph, network
from tests.tflite.build import ModelBuilder, T, constant, write_operator

node = helper.make_node
INDEX, ROW = np.zeros((1, 3), np.int64), np.zeros((1, 3), np.float32)


def small(**attrs: object) -> onnx.ModelProto:
    return graph([node("Softmax", ["x"], ["y"], name="last", **attrs)], {"x": (2, 3)}, ["y"])


def named(model: onnx.ModelProto, old: bytes, new: bytes) -> bytes:
    return bytes(model.SerializeToString().replace(old, new))


def element(model: onnx.ModelProto, value: int) -> onnx.ModelProto:
    model.graph.input[0].type.tensor_type.elem_type = value
    return model


def one(op: str, *constants: np.ndarray, shape: tuple[int, ...] = (2, 3), **attrs: object):
    names = [f"c{i}" for i in range(len(constants))]
    held = dict(zip(names, constants, strict=True))
    nodes = [node(op, ["x", *names], ["y"], name="last", **attrs)]
    return graph(nodes, {"x": shape}, ["y"], held)


def cropped() -> onnx.ModelProto:
    nodes = "y = CenterCropPad <axes = [0, 1]>(x, c)"
    constants = {"c": np.array([10 - 2**63, 0])}
    return graph(nodes, {"x": (20, 8, 3)}, ["y"], constants, opset=18)


def cut_data() -> onnx.ModelProto:
    model = one("Add", np.ones((2, 3), np.float32))
    model.graph.initializer[0].raw_data = b"\0" * 23
    return model


def text(domain: str = "") -> onnx.ModelProto:
    model = one("Add", ROW, shape=(1, 3))
    model.graph.node[0].domain = domain
    held = helper.make_tensor("c0", onnx.TensorProto.STRING, [1], [b"axes"])
    model.graph.initializer[0].CopyFrom(held)
    return model


def unread() -> onnx.ModelProto:
    model = small()
    model.graph.node[0].input[0] = "nobody"
    return model


def nameless() -> onnx.ModelProto:
    model = graph([node("Dropout", ["x"], ["y", ""])], {"x": (2, 3)}, ["y"])
    model.graph.output[0].name = ""
    return model


def referring() -> onnx.ModelProto:
    model = small(axis=1)
    model.graph.node[0].attribute[0].ref_attr_name = "of_a_function"
    return model


def short_branch() -> onnx.ModelProto:
    inner = "b () => () { v = Constant <value_float = 0.0>() }"
    nodes = f"[last] y = If <then_branch = {inner}, else_branch = {inner}>(c)"
    return graph(nodes, {"x": (2, 3)}, ["y"], {"c": np.array(True)})


def scanning(*, takes: int = 2, gives: int = 2, x: int = 3, **attrs: object) -> onnx.ModelProto:
    """A Scan over the rows of two tensors: y is the running sum of x, z holds those of u."""
    given = ", ".join(f"float[2] {name}" for name in ("state", "row", "other")[: takes + 1])
    made = ", ".join(f"float[2] {name}" for name in ("sum", "out")[:gives])
    how = ", ".join(f"{name} = {v}" for name, v in {"num_scan_inputs": 2, **attrs}.items())
    nodes = f"""[last] y, z = Scan <body = b ({given}) => ({made})
                {{ sum = Add(state, row) out = Identity(row) }}, {how}>(first, x, u)"""
    held = {"first": np.zeros(2, np.float32), "u": np.zeros((3, 2), np.float32)}
    return graph(nodes, {"x": (x, 2)}, ["y", "z"], held)


def batched() -> onnx.ModelProto:
    """A Scan of opset 8, whose state has another number of batches than what it scans."""
    model = scanning(gives=1, takes=1)
    scan = model.graph.node[0]
    scan.input[:] = ["", "first", "x"]
    next(a for a in scan.attribute if a.name == "num_scan_inputs").i = 1
    for value, shape in (("x", (1, 3, 2)), ("first", (1 << 24, 2))):
        made = helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, shape)
        model.graph.input.append(made)
    del model.graph.input[0], model.graph.initializer[:], scan.output[1:], model.graph.output[1:]
    model.opset_import[0].version = 8
    model.ir_version = 3
    return model


def boxes() -> onnx.ModelProto:
    nodes = "[last] y = NonMaxSuppression(x, scores, most)"
    held = {"scores": np.ones((1, 1, 6), np.float32), "most": np.array([3])}
    return graph(nodes, {"x": (6, 4, 1)}, ["y"], held)


def joined(*, takes: int = 0) -> onnx.ModelProto:
    """An If whose branches have inputs, which nothing gives them."""
    inner = f"b ({'float[1, 3] v' * takes}) => (float[1, 3] n) {{ n = Neg(x) }}"
    nodes = f"[last] y = If <then_branch = {inner}, else_branch = {inner}>(c)"
    return graph(nodes, {"x": (1, 3)}, ["y"], {"c": np.array(True)})


def looping(*, takes: int) -> onnx.ModelProto:
    """A Loop of three steps whose body has other inputs than the loop gives it."""
    given = ("int64 i", "bool go", "float[3] v")[:takes]
    nodes = f"""[last] y = Loop <body = b ({", ".join(given)}) => (bool on, float[3] w)
                {{ on = Identity(go) w = Neg({"v" if takes == 3 else "x"}) }}>(count, "", x)"""
    return graph(nodes, {"x": (3,)}, ["y"], {"count": np.array(3)})


def without_number(name: str, instead: float | None = None) -> onnx.ModelProto:
    """Control flow and counts whose constant `name` holds nothing, or another number."""
    held = {"steps": np.array(3), "go": np.array(True), "taken": np.array(True)}
    held |= {"from": np.float32(0), "to": np.float32(3), "hop": np.array(4), "many": np.array([2])}
    held[name] = np.empty(0, held[name].dtype) if instead is None else np.array(instead)
    branch = "b () => (float[3] n) { n = Neg(x) }"
    nodes = f"""
        looped = Loop <body = b (int64 i, bool on, float[3] v) => (bool on2, float[3] w)
            {{ on2 = Identity(on) w = Neg(v) }}>(steps, go, x)
        chosen = If <then_branch = {branch}, else_branch = {branch}>(taken)
        range = Range(from, to, one) added = Add(x, range) parts = STFT(wave, hop, "", frame)
        kept = NonMaxSuppression(boxes, scores, many)"""
    held |= {"one": np.float32(1), "frame": np.array(8)}
    inputs = {"x": (3,), "wave": (1, 32, 1), "boxes": (1, 4, 4), "scores": (1, 1, 4)}
    return graph(nodes, inputs, ["looped", "chosen", "added", "parts", "kept"], held)


def split_below_zero() -> onnx.ModelProto:
    """A part of -1 elements, which is sliced: onnx's shape inference ends the process."""
    nodes = "a, b = Split <axis = -1>(x, parts) y = Slice(a, from, to, axes)"
    held = {"parts": [-1, 4], "from": [0], "to": [2], "axes": [1]}
    constants = {name: np.array(value) for name, value in held.items()}
    return graph(nodes, {"x": (2, 3)}, ["y", "b"], constants)


def cut_constant() -> onnx.ModelProto:
    held = onnx.numpy_helper.from_array(ROW)
    held.raw_data = held.raw_data[:4]
    nodes = [node("Constant", [], ["v"], value=held), node("Add", ["x", "v"], ["y"])]
    return graph(nodes, {"x": (2, 3)}, ["y"])


def vast() -> onnx.ModelProto:
    nodes = "big = Expand(one, shape) sum = ReduceSum <keepdims = 0>(big) y = Add(x, sum)"
    constants = {"one": np.ones(1, np.float32), "shape": np.array([2**31 - 1, 64], np.int64)}
    return graph(nodes, {"x": (2, 3)}, ["y"], constants)


def long_range() -> onnx.ModelProto:
    nodes = "many = Range(from, to, by) sum = ReduceSum <keepdims = 0>(many) y = Add(x, sum)"
    constants = {name: np.array([v], np.float32) for name, v in (("from", 0), ("to", 1e12))}
    constants["by"] = np.array([1], np.float32)
    return graph(nodes, {"x": (2, 3)}, ["y"], constants)


INT64_MAX = 2**63 - 1
IMAGE = (1, 3, 8, 8)
KERNEL = np.ones((2, 3, 3, 3), np.float32)

CASES: dict[str, tuple[Callable[[], onnx.ModelProto | bytes], str]] = {
    "a name that is no text": (lambda: named(small(), b"last", b"l\xffst"), "is no text"),
    "an element type that is none": (lambda: element(small(), 77), "element type 77"),
    "an input without element type": (lambda: element(small(), 0), "no element type"),
    "an axis that crashes inference": (lambda: small(axis=INT64_MAX), "counts to"),
    "batches below none": (
        lambda: one("GatherND", INDEX, shape=(1, 3), batch_dims=-7),
        "'batch_dims' of GatherND 'last' is -7",
    ),
    "a loop of no whole count": (lambda: without_number("steps", np.inf), "trip count of inf"),
    "an attribute of another type": (lambda: small(axis=1.5), "'axis' of Softmax 'last' is of"),
    "an attribute that is not known": (lambda: small(axes=1), "does not know"),
    "too many operands": (lambda: one("Softmax", ROW), "has 2 inputs"),
    "data that does not fill its shape": (cut_data, "does not fit"),
    "a constant of a node that is cut": (cut_constant, "does not fit"),
    "an equation without end": (lambda: one("Einsum", equation="\r>", shape=()), "the equation"),
    "a branch that gives too little": (short_branch, "has 0 outputs|branch"),
    "a branch with inputs": (lambda: joined(takes=1), "has 1 inputs, expected 0"),
    "a loop that gives too much": (lambda: looping(takes=2), "has 2 inputs, expected 3"),
    "a scan that gives too little": (lambda: scanning(gives=1), "has 1 outputs, expected 2"),
    "a scan that takes too much": (lambda: scanning(takes=1), "has 2 inputs, expected 3"),
    "a scan of nothing": (lambda: scanning(num_scan_inputs=0), "scans 0 of its 3 inputs"),
    "a scan that lacks an axis": (lambda: scanning(scan_input_axes=[0]), "1 scan_input_axes"),
    "a scan over several batches": (batched, r"over \[1, 16777216\] batches"),
    "boxes of one number": (boxes, r"boxes of \[6, 4, 1\]; expected \[1, 6, 4\]"),
    "a scan along no axis": (lambda: scanning(scan_input_axes=[2, 0]), "which has 2 axes"),
    "a scan of several lengths": (lambda: scanning(x=4), r"tensors of \[3, 4\] elements"),
    "an attribute of a function": (referring, "it is in none"),
    "an output without name": (nameless, "has no name"),
    "a tensor that nothing computes": (unread, "reads 'nobody'"),
    "a constant of text": (text, "unsupported type"),
    "a constant of text that a foreign node reads": (lambda: text("other"), "other"),
    "a constant of half a tebibyte": (vast, "2147483647"),
    "a range without end": (long_range, "Range"),
    "a loop of no count": (lambda: without_number("steps"), r"'steps' has the shape \[0\]"),
    "a loop of no condition": (lambda: without_number("go"), r"'go' has the shape \[0\]"),
    "an if of no condition": (lambda: without_number("taken"), r"'taken' has the shape \[0\]"),
    "a part of less than nothing": (split_below_zero, r"has the shape \[2, -1\]"),
    "a range of no limit": (lambda: without_number("to"), r"'to' has the shape \[0\]"),
    "frames of no step": (lambda: without_number("hop"), "STFT .* does not fit"),
    "boxes of no count": (lambda: without_number("many"), r"'many' has the shape \[0\]"),
    "a bound of nothing": (lambda: one("Clip", np.empty(0, np.float32)), "expected one number"),
    "a grid of one row with corners": (
        lambda: one("AffineGrid", np.array([1, 2, 1, 4]), shape=(1, 2, 3), align_corners=1),
        "no corners to align",
    ),
    "a shape of a million dimensions": (
        lambda: one("Reshape", np.ones(1 << 20, np.int64)),
        "for 1048576 axes; expected up to 64",
    ),
    "a transform of 65535 steps": (
        lambda: one("DFT", shape=(1, 65535, 10, 1), axis=1, onesided=1),
        "its matrix has 17179344900 elements",
    ),
    "a crop to less than nothing": (cropped, "has the shape"),
    "a window larger than the data": (
        lambda: one("Conv", KERNEL, shape=IMAGE, dilations=[1 << 22, 1]),
        "window|conv|Conv",
    ),
    "a reduction that is none": (
        lambda: one("ScatterElements", INDEX, ROW, reduction="m\x1d"),
        "unknown reduction",
    ),
    "an extent of two milliards": (
        lambda: one("Relu", shape=(2**31 - 1, 3)),
        "elements; expected up to",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_damaged_onnx(tmp_path, name):
    make, said = CASES[name]
    made = make()
    content = made if isinstance(made, bytes) else made.SerializeToString()
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(errors.AdrenocError, match=said) as caught:
        plan_as_user(tmp_path / "model.onnx")
    assert caught.value.hint


def test_what_the_damaged_control_flow_was_made_from_is_sound(tmp_path):
    for number, model in enumerate((scanning(), joined(), looping(takes=3))):
        onnx.save(model, tmp_path / f"{number}.onnx")
        plan_as_user(tmp_path / f"{number}.onnx")


@pytest.mark.parametrize("number", range(24))
def test_random_damage_ends_in_a_result_or_an_error(tmp_path, number):
    """The same damage each time; thousands of others: scripts/fuzz_models."""
    seeds = [
        ("mixed_small.tflite", network("mixed_small", size=17, width=0.5)),
        ("squeezenet.onnx", network("squeezenet", size=32, width=0.25)),
    ]
    name, content = mutate.case(seeds, seed=1, number=number)
    (tmp_path / name).write_bytes(content)
    assert not harness.judge(tmp_path / name, raises=True).is_finding


@pytest.mark.parametrize(
    ("judges", "kind"),
    [
        (fuzz_judges.spin, "hang"),
        (fuzz_judges.wait, "planned"),
        (fuzz_judges.fill, "memory"),
        (fuzz_judges.end, "died"),
    ],
)
def test_what_becomes_of_a_case_is_seen(tmp_path, monkeypatch, judges, kind):
    """A case that waits for the processor longer than the limit has not used it up."""
    monkeypatch.setattr(harness, "LIMIT_S", 1.0)
    monkeypatch.setattr(harness, "LIMIT_BYTES", 1 << 28)
    found = harness.run(range(2), lambda n: ("m.onnx", str(n).encode()), tmp_path, judges)
    assert [outcome.kind for _, outcome in found] == [kind, "planned"]


def peak_bytes() -> int:
    """The most that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_a_tflite_output_that_its_operator_never_makes(tmp_path):
    """SOFTMAX has one result; the file says two, and that the second is the graph's output."""
    model = ModelBuilder()
    main = model.graph()
    results = [T(shape=(2, 3)), T(shape=(2, 3))]
    _, second = main.op("SOFTMAX", [main.add(FLOATS)], results, "SoftmaxOptions", {"beta": 1.0})
    main.outputs = [second]
    (tmp_path / "model.tflite").write_bytes(model.write())
    with pytest.raises(errors.ModelFormatError, match="no operator makes it") as caught:
        plan_as_user(tmp_path / "model.tflite")
    assert caught.value.hint


FLOATS, WHOLE = (T(dtype=d, data=np.zeros((2, 3), d)) for d in ("float32", "int32"))
PICTURE = T(data=np.zeros((1, 4, 4, 2), np.float32))
WEIGHT = constant(np.zeros((3, 2, 2, 2)), "float32")
VAST = 1 << 28
STILL = r"StrideHW of .*expected 1 or more"
FULL = "constant elements, expected up to"
TFLITE: dict[str, tuple[list[T], str, dict[str, object], str]] = {
    "CONV_2D": ([PICTURE, WEIGHT], "Conv2DOptions", {"strideH": 0}, STILL),
    "TRANSPOSE_CONV": (
        *([constant([1, 4, 4, 3]), WEIGHT, PICTURE], "TransposeConvOptions", {"strideH": 0}),
        STILL,
    ),
    "AVERAGE_POOL_2D": ([PICTURE], "Pool2DOptions", {"strideH": 0}, STILL),
    "MIRROR_PAD": (
        *([WHOLE, constant([[0, 0], [0, VAST]])], "MirrorPadOptions", {"mode": 1}),
        f"mirrors 0 and {VAST} of 3",
    ),
    "RANGE": ([constant(n) for n in (0, VAST, 1)], "RangeOptions", {}, FULL),
    "ONE_HOT": ([WHOLE, *map(constant, (VAST, 1, 0))], "OneHotOptions", {"axis": -1}, FULL),
    "SPARSE_TO_DENSE": ([*map(constant, ([0], [VAST], 1, 0))], "SparseToDenseOptions", {}, FULL),
    "SCATTER_ND": ([*map(constant, ([[0]], [1], [VAST]))], "ScatterNdOptions", {}, FULL),
    "SKIP_GRAM": ([FLOATS], "", {}, "SKIP_GRAM"),
}


@pytest.mark.parametrize("kind", TFLITE)
def test_tflite_operators_that_are_refused_cost_no_memory(tmp_path, kind):
    """Neither a few numbers that ask for a vast constant nor what stands in for a result do."""
    operands, options, values, said = TFLITE[kind]
    extents = {"SKIP_GRAM": (1 << 14, 1 << 14), STILL: (1, 4, 4, 3)}
    shape = extents.get(kind) or extents.get(said, (2, 3))
    result = T(dtype=operands[-1].dtype, shape=shape)
    model = write_operator(tmp_path, kind, operands, result, options, values)
    before = peak_bytes()
    with pytest.raises(errors.UnsupportedOperatorError, match=said):
        plan_as_user(model)
    assert peak_bytes() - before < VAST


@pytest.mark.parametrize("scale", (0.0, -0.02, np.nan, np.inf))
@pytest.mark.parametrize("each", (False, True), ids=("one", "a channel"))
def test_tflite_scales_that_measure_nothing(tmp_path, scale, each):
    scales = (0.5, scale) if each else (scale,)
    x = T(shape=(1, 2), dtype="int8", scales=scales, zeros=(0,) * len(scales), axis=1)
    model = write_operator(tmp_path, "DEQUANTIZE", [x], T(shape=(1, 2)))
    with pytest.raises(errors.ModelFormatError) as caught:
        plan_as_user(model)
    where = " at channel 1" if each else ""
    assert f"'x' has the scale {scale:g}{where}; expected" in str(caught.value)
