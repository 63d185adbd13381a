"""Models that cannot be imported: the error names the place, what was seen, and what to do."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.base import errors
from adrenoc.importers import import_model
from adrenoc.importers.imported import quote
from tests.models import graph, network, parse_nodes, write, write_network

node = helper.make_node


def refused(path: Path, kind: type[errors.AdrenocError], **shapes: tuple[int, ...]) -> str:
    with pytest.raises(kind) as caught:
        import_model(path, shapes=shapes)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value.message


def test_what_is_no_file(tmp_path):
    assert "does not exist" in refused(tmp_path / "no.onnx", errors.ModelNotFoundError)
    assert "folder" in refused(tmp_path, errors.ModelNotFoundError)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"hello, I am a text file\n" * 40, "text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"PK\x03\x04" + bytes(100), "zip archive"),
        (b"LITERTLM" + bytes(100), "its list of sections cannot be read"),
        (bytes(range(256)) * 4, "neither a whole ONNX"),
    ],
)
def test_other_files(tmp_path, content, said):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert said in refused(path, errors.ModelFormatError)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.999])
@pytest.mark.parametrize("name", ["squeezenet", "mobilenet_v1_small"])
def test_truncated(tmp_path, name, share):
    content = network(name, size=32, width=0.25)
    path = tmp_path / "cut"
    path.write_bytes(content[: int(len(content) * share)])
    refused(path, errors.ModelFormatError)


def test_format_is_told_by_content_not_by_suffix(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(network("mixed_small", size=31, width=1.0))
    assert import_model(path, shapes={}).format == "tflite"


def test_missing_external_data_is_named(tmp_path):
    weights = np.ones(400, np.float32)
    model = graph("y = Mul(x, w)", {"x": (1, 400)}, ["y"], {"w": weights})
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    assert "'w.bin'" in refused(path, errors.ModelNotFoundError)


def test_external_data_outside_of_the_folder_is_refused(tmp_path):
    model = graph("y = Mul(x, w)", {"x": (1, 4)}, ["y"])
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret.bin")
    assert "../secret.bin" in refused(write(model, tmp_path), errors.ModelFormatError)


_HELD = {
    "p": np.array([0, 0, -1, 0, 0, 0, 0, 0], np.int64),
    "r": np.array(0.5, np.float32),
    "t": np.array(True),
    "zero": np.array(0, np.float32),
    "one": np.array(1, np.float32),
    "ones": np.array([1]),
    "three": np.array([3]),
    "none": np.zeros(2, np.int64),
    "k": np.ones((4, 5, 3, 3), np.float32),
    "wide": np.ones((1, 1, 10), np.float32),
}
_UNSUPPORTED, _CUSTOM = errors.UnsupportedOperatorError, errors.CustomDomainError
_REFUSED: dict[str, tuple] = {
    "all unsupported nodes": (
        "[first] a = Unique(x) [second] b = Unique(x) c = RandomNormalLike(x)",
        *({"x": (4,)}, ["a", "b", "c"], _UNSUPPORTED),
        "RandomNormalLike (1x), Unique (2x)",
        "'first' (float32 [4]): how much",
        "'second' (float32 [4]): how much",
        "the node of 'c' (float32 [4]): it draws",
        "do it on the CPU",
    ),
    "all nodes that fail in translation": (
        '[drop] a = Dropout(x, r, t) [crop] y = Pad <mode = "odd">(a, p)',
        *({"x": (1, 1, 4, 4)}, ["y"], _UNSUPPORTED),
        "'drop' (float32 [1, 1, 4, 4], float32 [], bool []): it trains",
        "'crop' (float32 [1, 1, 4, 4], int64 [8]): unknown mode 'odd'",
    ),
    "refusals of all kinds": (
        "[spell] m = com.acme.Magic(x) [behind_it] a = Relu(m) [search] b = Unique(x) "
        '[bent] c = Pad <mode = "odd">(x, none)',
        *({"x": (4,)}, ["a", "b", "c"], _CUSTOM),
        *("com.acme.Magic (1x)", "Unique (1x)", "Pad (1x)", "unknown mode 'odd'", "'spell'"),
        "!behind_it",
    ),
    # VITS, Longformer: one cause, and not all that follows from it, in words of no library.
    "what reads a shape of data": (
        "most = ReduceMax <keepdims = 0>(x) [steps] steps = Range(zero, most, one) "
        "shape = Shape(steps) longer = Concat <axis = 0>(shape, ones) "
        "[column] column = Reshape(steps, longer) "
        "[turned] turned = Transpose <perm = [1, 0]>(column) wanted = Cast <to = 7>(ask) "
        "[other] y = Reshape(x, wanted)",
        *({"x": (1, 6), "ask": (2,)}, ["turned", "y"], _UNSUPPORTED),
        *("Range (1x), Reshape (1x); at 'steps'", "'other'", "!column", "!relax"),
        *["the shape of its result depends on data"] * 2,
    ),
    # FastSpeech2: as many zeros as frames are predicted.
    "what fills a shape of data": (
        "most = ReduceMax <keepdims = 1>(x) frames = Cast <to = 7>(most) "
        "shape = Concat <axis = 0>(frames, three) [empty] y = ConstantOfShape(shape)",
        *({"x": (6,)}, ["y"], _UNSUPPORTED),
        *("'empty'", "the shape of its result depends on data", "!Check failed"),
    ),
    # The mean of no element is NaN, of which nothing more would be computed.
    "a window that never fits": (
        "w = Conv <strides = [4]>(x, wide) y = ReduceMean(w)",
        *({"x": (1, 1, 3)}, ["y"], errors.ShapeError),
        "'w' has the shape [1, 1, 0]: a window is larger",
    ),
    "an inconsistent graph": (
        "[dense] y = Gemm(x, k)",
        *({"x": (2, 3)}, ["y"], errors.ModelFormatError),
        "'dense'",
    ),
    "an output that nothing computes": (
        *("y = Relu(x)", {"x": (1,)}, ["z"], errors.ModelFormatError),
        "'z'",
    ),
    "numbers as text": ("y = Cast <to = 8>(x)", {"x": (3,)}, ["y"], _UNSUPPORTED, "'y' holds text"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_is_refused_is_told_at_once(tmp_path, name):
    """Each part is told, of those that stand twice just two, and none behind a `!`."""
    nodes, inputs, outputs, kind, *parts = _REFUSED[name]
    made = parse_nodes(nodes)
    held = {n: v for n, v in _HELD.items() if any(n in one.input for one in made)}
    domains = ["com.acme"] if "com.acme" in nodes else []
    path = write(graph(made, inputs, outputs, held, domains=domains), tmp_path)
    said = refused(path, kind)
    for part in parts:
        times = parts.count(part)
        if part.startswith("!"):
            assert part[1:] not in said
        else:
            assert said.count(part) == times if times > 1 else part in said


def test_refusals_of_tvm_name_their_operator_in_a_word():
    from tvm import relax

    x, weight = (relax.Var(name, relax.TensorType((4, 16), "float32")) for name in "xw")
    builder = relax.BlockBuilder()
    with pytest.raises(Exception, match=r"ir\.Op\(") as found:
        builder.normalize(relax.op.nn.rms_norm(x, weight, [-1], 1e-5))
    said = quote(found.value)
    assert said.startswith("relax.nn.rms_norm requires the input weight"), said


@pytest.mark.parametrize(
    "operator",
    ["Identity", "Dropout", "Optional", "Shape", "Add", "If", "Loop", "NonZero", "HannWindow"],
)
@pytest.mark.parametrize("domain", ["com.acme", "com.microsoft"])
def test_a_foreign_operator_is_not_the_standard_one_of_its_name(tmp_path, domain, operator):
    source = "c" if operator == "Add" else "x"
    nodes = [node(operator, [source, source], ["m"], domain=domain), node("Neg", ["m"], ["y"])]
    held = {"c": np.ones(4, np.float32)}
    path = write(graph(nodes, {"x": (4,)}, ["y"], held, domains=[domain]), tmp_path)
    assert f"{domain}.{operator} (1x)" in refused(path, errors.CustomDomainError)


@pytest.mark.parametrize(("at", "operator"), [(1, "DequantizeLinear"), (3, "Relu")])
def test_a_foreign_operator_between_quantised_ones(tmp_path, at, operator):
    nodes = parse_nodes(
        "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) f = Add(d, d) r = Relu(f) "
        "y = QuantizeLinear(r, s, z)"
    )
    nodes[at].domain = "com.acme"
    held = {"s": np.float32(0.5), "z": np.uint8(0)}
    path = write(graph(nodes, {"x": (4,)}, ["y"], held, domains=["com.acme"]), tmp_path)
    assert f"com.acme.{operator} (1x)" in refused(path, errors.CustomDomainError)


def test_if_on_data_with_unlike_branches(tmp_path):
    nodes = """t = ReduceSum <keepdims = 0>(x) c = Cast <to = 9>(t)
               [choice] y = If <then_branch = b () => (r) { r = Relu(x) },
                   else_branch = b () => (s) { s = ReduceSum <keepdims = 1>(x) }>(c)"""
    path = write(graph(nodes, {"x": (1, 3)}, ["y"]), tmp_path)
    said = refused(path, errors.UnsupportedOperatorError)
    assert "'choice' (bool []): its condition is known at run time alone" in said
    assert "float32 [1, 3] and float32 [1, 1]" in said


def relu(*dims: int | str) -> onnx.ModelProto:
    return graph("y = Relu(x)", {"x": dims}, ["y"])


def hinted(path: Path, **shapes: tuple[int, ...]) -> tuple[str, str]:
    """What the error of a shape says, and its hint."""
    with pytest.raises(errors.ShapeError) as caught:
        import_model(path, shapes=shapes)
    return caught.value.message, caught.value.hint


def test_open_dimensions_of_several_inputs_tell_one_command(tmp_path):
    open_dims = {"a": ("n", "m"), "b": ("n", "m"), "c": ("k", 3)}
    said, hint = hinted(write(graph("t = Add(a, b) y = Mul(t, c)", open_dims, ["y"]), tmp_path))
    assert "'a' [n, m], 'b' [n, m], 'c' [k, 3]" in said
    # None that is usual fits, as t * c needs m to be 3 or 1; k is a batch, which is 1 anyway.
    assert hint == "add --shape a:1,m (with the extents that you feed in place of m)"


def test_open_dimension_tells_the_option(tmp_path):
    said, hint = hinted(write(relu("batch", 3, "height", "width"), tmp_path))
    assert "[batch, 3, height, width]" in said
    assert "--shape x:1,3,224,224" in hint


@pytest.mark.parametrize("factor", [np.nan, np.inf, 3e38, -2.0, 0.0])
@pytest.mark.parametrize(
    ("nodes", "opset"), [("y = Resize(x, , s)", 18), ("y = Upsample(x, s)", 9)]
)
def test_factors_that_no_axis_can_be_resized_by(tmp_path, nodes, opset, factor):
    constants = {"s": np.array([1, 1, factor, 2], np.float32)}
    model = graph(nodes, {"x": [1, 3, 5, 5]}, ["y"], constants, opset=opset)
    said = refused(write(model, tmp_path), errors.ModelFormatError)
    assert "for axis 2 of 5 elements; expected a number above 0" in said


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_nothing_cannot_be_enlarged(tmp_path, mode):
    """An axis of no elements, which a slice left, has nothing to make elements of."""
    nodes = f'none = Slice(x, end, end, axes) y = Resize <mode = "{mode}">(none, , , sizes)'
    constants = {"end": np.array([4]), "axes": np.array([2]), "sizes": np.array([1, 3, 6, 8])}
    model = graph(nodes, {"x": [1, 3, 4, 4]}, ["y"], constants, opset=18)
    said = refused(write(model, tmp_path), errors.AdrenocError)
    assert "axis 2 of 6 elements is made from one of none" in said


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((1, 3, 4), ["3 dimensions", "2: [n, 3]"]),
        ((1, 4), ["asks for 4 in dimension 1, where the model has 3"]),
        ((-1, 3), ["below 0"]),
        ((0, 3), ["'y' has the shape [0, 3]: it holds no element"]),
    ],
)
def test_shapes_that_do_not_fit(tmp_path, shape, parts):
    said = refused(write(relu("n", 3), tmp_path), errors.ShapeError, x=shape)
    assert all(part in said for part in parts)


def test_contradiction_of_two_inputs_hints_at_what_fits_both(tmp_path):
    model = graph("y = Add(a, b)", {"a": ("n", 3), "b": ("n", "m")}, ["y"])
    said, hint = hinted(write(model, tmp_path), a=(2, 3), b=(4, 3))
    assert "'n' is 2 already" in said
    assert hint.startswith("--shape b:2,3,")


def test_unknown_input_names_the_nearest(tmp_path):
    model = graph("y = Relu(input)", {"input": ("n", 3)}, ["y"])
    said, hint = hinted(write(model, tmp_path), inptu=(1, 3))
    assert "no input 'inptu'" in said
    assert "--shape input:" in hint


@pytest.mark.parametrize("opset", [0, 99])
def test_opset_out_of_range(tmp_path, opset):
    model = relu(1, 3)
    model.opset_import[0].version = opset
    assert f"opset {opset}" in refused(write(model, tmp_path), errors.ModelFormatError)


def test_tflite_shape_is_fixed(tmp_path):
    path = write_network(tmp_path, "mixed_small", size=31, width=1.0)
    assert "[1, 31, 31, 3]" in refused(path, errors.ShapeError, input=(1, 64, 64, 3))


@pytest.mark.parametrize("name", ["BFLOAT16", "FLOAT8E4M3FN", "INT4"])
def test_numbers_that_no_device_computes(tmp_path, name):
    """TVM writes no OpenCL for them; as weights they are folded."""
    element = onnx.TensorProto.DataType.Value(name)
    model = graph("y = Cast <to = 1>(x)", {"x": (2, 3)}, ["y"], opset=22, dtype=element)
    said = refused(write(model, tmp_path), errors.UnsupportedOperatorError)
    assert f"'x' holds {name.lower()}" in said


@pytest.mark.parametrize("kind", ["sequence", "optional"])
def test_inputs_that_are_no_tensors_are_not_asked_for_a_shape(tmp_path, kind):
    model = graph("y = Identity(s)", {"s": (2, 3)}, ["y"])
    tensor = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, (2, 3))
    made = getattr(helper, f"make_{kind}_type_proto")(tensor)
    model.graph.input[0].type.CopyFrom(made)
    said = refused(write(model, tmp_path), errors.UnsupportedOperatorError)
    assert f"input 's' holds {kind}s" in said


def test_a_model_without_standard_operators_may_name_no_opset(tmp_path):
    """As onnxmltools writes trees of XGBoost."""
    tree = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml")
    model = graph([tree], {"x": (1, 3)}, ["y"], domains=["ai.onnx.ml"])
    del model.opset_import[0]
    assert "TreeEnsembleRegressor" in refused(write(model, tmp_path), errors.CustomDomainError)
