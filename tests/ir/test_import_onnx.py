import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.base.files.spill import read_aligned
from adrenoc.importers import find_model_files, import_model
from adrenoc.importers.relax.values import constant_value, op_name, take_constant
from tests.ir.planning import check, operators
from tests.models import graph, write, write_network

node = helper.make_node
RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", ["mobilenet_v2", "squeezenet", "unet", "vit"])
def test_networks_compute_what_the_file_says(tmp_path, name):
    check(write_network(tmp_path, name, size=32, width=0.25))


def one(
    op: str, shape: tuple[int, ...], *constants: np.ndarray | None, opset: int = 17, **attrs
) -> onnx.ModelProto:
    """A graph of one node whose first input is the graph's."""
    names = [f"c{i}" if c is not None else "" for i, c in enumerate(constants)]
    held = {f"c{i}": c for i, c in enumerate(constants) if c is not None}
    return graph([node(op, ["x", *names], ["y"], **attrs)], {"x": shape}, ["y"], held, opset=opset)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


IMAGE = (1, 5, 11, 13)
KERNEL = floats(6, 5, 3, 3)

CASES = {
    "conv-same-upper": one("Conv", IMAGE, KERNEL, floats(6), auto_pad="SAME_UPPER", strides=[2, 2]),
    "conv-same-lower": one("Conv", IMAGE, KERNEL, auto_pad="SAME_LOWER", strides=[2, 3]),
    "conv-dilated": one("Conv", IMAGE, KERNEL, dilations=[2, 3], pads=[2, 3, 1, 0]),
    "conv-1d": one("Conv", (1, 5, 17), floats(6, 5, 3), floats(6), strides=[2]),
    "conv-grouped": one("Conv", (1, 6, 9, 9), floats(4, 3, 3, 3), group=2),
    "transpose-output-shape": one(
        "ConvTranspose", IMAGE, floats(5, 4, 3, 3), floats(4), strides=[2, 2], output_shape=[22, 26]
    ),
    "transpose-same": one(
        "ConvTranspose", IMAGE, floats(5, 4, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"
    ),
    "transpose-dilated": one("ConvTranspose", IMAGE, floats(5, 4, 3, 3), dilations=[2, 2]),
    "transpose-grouped": one("ConvTranspose", (1, 6, 7, 7), floats(6, 2, 3, 3), group=3),
    "pool-ceil": one("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "pool-average-ceil": one(
        "AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, pads=[0, 1, 0, 1]
    ),
    "pool-average-ceil-count": one(
        "AveragePool",
        IMAGE,
        kernel_shape=[3, 3],
        strides=[2, 2],
        ceil_mode=1,
        pads=[1, 1, 1, 1],
        count_include_pad=1,
        opset=19,
    ),
    "pool-average-ceil-wider-than-data": one(
        "AveragePool",
        (1, 2, 8, 3),
        kernel_shape=[4, 4],
        strides=[3, 1],
        ceil_mode=1,
        pads=[2, 1, 1, 3],
        count_include_pad=1,
    ),
    "pool-same": one(
        "AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"
    ),
    "clip-attributes": one("Clip", IMAGE, min=-0.5, max=0.25, opset=7),
    "clip-low": one("Clip", IMAGE, np.float32(0.1)),
    "clip-zero": one("Clip", IMAGE, np.float32(0.0)),
    "clip-high": one("Clip", IMAGE, None, np.float32(0.1)),
    "clip-crossed": one("Clip", IMAGE, np.float32(2.0), np.float32(1.0)),
    "lrn": one("LRN", (1, 9, 4, 4), size=5, alpha=0.5, beta=0.6, bias=2.0),
    "gemm-scaled": one("Gemm", (3, 4), floats(5, 4), floats(5), transB=1, alpha=0.5, beta=2.0),
    "slice-attributes": one("Slice", IMAGE, starts=[1, -4], ends=[4, 99], axes=[1, 3], opset=9),
    "slice-backwards": one("Slice", IMAGE, ints(-1), ints(-99), ints(2), ints(-2)),
    "slice-backwards-from-before": one("Slice", IMAGE, ints(-13), ints(-99), ints(2), ints(-1)),
    "scatter-into-a-corner": one(
        "ScatterElements", (2, 5, 3), ints(0, -1, 1, 0).reshape(1, 2, 2), floats(1, 2, 2), axis=0
    ),
    "scatter-sums-into-a-corner": one(
        *("ScatterElements", (4, 5, 3), ints(0, -1, 1, 0).reshape(2, 2, 1), floats(2, 2, 1)),
        axis=1,
        reduction="add",
    ),
    "group-norm-18": one(
        "GroupNormalization", (2, 6, 5, 3), floats(2), floats(2), opset=18, num_groups=2
    ),
    "rnn-clipped": one(
        *("RNN", (3, 2, 4), floats(1, 5, 4), floats(1, 5, 5)), hidden_size=5, clip=0.25
    ),
    "pad-attributes": one("Pad", IMAGE, pads=[0, 0, 1, 2, 0, 0, 3, 4], value=1.5, opset=9),
    "pad-reflect": one("Pad", IMAGE, ints(0, 0, 1, 2, 0, 0, 3, 4), mode="reflect"),
    "pad-edge-axes": one("Pad", IMAGE, ints(1, 2), None, ints(-1), mode="edge", opset=18),
    "gather-one": one("Gather", IMAGE, np.array(-2, np.int64), axis=1),
    "gather-range": one("Gather", IMAGE, ints(1, 2, 3), axis=3),
    "gather-many": one("Gather", IMAGE, ints(3, 0, -1), axis=1),
    "power-of-integers": one("Pow", IMAGE, np.array(2, np.int64)),
    "softmax-old": one("Softmax", (2, 3, 4, 5), axis=2, opset=11),
    "stft-without-parts": one(
        *("STFT", (2, 40), np.array(8), floats(16), np.array(16)), onesided=1
    ),
    "resize-scales": one(
        "Resize", IMAGE, None, np.array([1, 1, 2, 2], np.float32), mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    ),
    "resize-uneven": one(
        "Resize", IMAGE, None, np.array([1, 1, 1.7, 0.6], np.float32), mode="linear"
    ),
    "resize-cubic": one("Resize", IMAGE, None, None, ints(1, 5, 20, 7), mode="cubic"),
    "resize-opset-10": one(
        "Resize", IMAGE, np.array([1, 1, 2, 3], np.float32), mode="linear", opset=10
    ),
    "resize-to-one-align-corners": one(
        "Resize",
        IMAGE,
        None,
        None,
        ints(1, 5, 1, 7),
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "resize-to-one-pytorch": one(
        "Resize",
        (1, 2, 3, 3),
        None,
        np.array([1, 1, 0.5, 0.5], np.float32),
        mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    ),
    "resize-align-corners": one(
        "Resize", IMAGE, None, None, ints(1, 5, 22, 26), mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    **{
        f"resize-{policy}-{size}-{coordinates}": one(
            "Resize", (1, 3, 9, 7), None, None, ints(size, 30), axes=[2, 3], opset=18,
            mode=mode, keep_aspect_ratio_policy=policy, coordinate_transformation_mode=coordinates,
        )
        for mode, policy, size, coordinates in (
            ("linear", "not_larger", 12, "half_pixel"),
            ("cubic", "not_larger", 11, "pytorch_half_pixel"),  # 8.6 columns are 9
            ("linear", "not_smaller", 11, "asymmetric"),  # 38.6 rows are 39
            ("linear", "not_larger", 12, "align_corners"),
            ("nearest", "not_larger", 11, "half_pixel"),
        )
    },
    "upsample": one("Upsample", IMAGE, np.array([1, 1, 2, 2], np.float32), opset=9),
    "split-uneven": graph(
        "a, b = Split <axis = 1>(x, s) y = Relu(b)",
        {"x": IMAGE}, ["a", "y"], {"s": ints(2, 3)},
    ),
    "split-into-one": graph(
        "a = Split <axis = 1, num_outputs = 1>(x) y = Relu(a)",
        {"x": IMAGE}, ["y"], opset=18,
    ),
    "split-into-one-of-a-size": graph(
        "a = Split <axis = 1>(x, s) y = Relu(a)",
        {"x": IMAGE}, ["y"], {"s": ints(5)},
    ),
    "mean-of-three": graph(
        "y = Mean(x, z, c)",
        {"x": IMAGE, "z": (1, 5, 1, 13)}, ["y"], {"c": floats(11, 1)},
    ),
    "space-to-depth": one("SpaceToDepth", (1, 3, 4, 6), blocksize=2),
    "group-norm": one("GroupNormalization", (1, 6, 5, 5), floats(6), floats(6), num_groups=3,
                      opset=21),
    "expanded-celu": one("Celu", IMAGE, alpha=1.5),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_computes_what_onnxruntime_does(tmp_path, name):
    _, module = check(write(CASES[name], tmp_path))
    made = operators(module)
    assert not any(op.startswith(("call_tir", "shape_of", "dynamic")) or not op for op in made)


def test_definition_of_a_node_that_leaves_an_input_out(tmp_path):
    """The mask stands between keys, values and what is before them."""
    one_row, past = (1, 2, 3, 4), (1, 2, 5, 4)
    model = graph(
        "y, c, d = Attention <is_causal = 1>(q, k, v, , a, b)",
        {"q": one_row, "k": one_row, "v": one_row, "a": past, "b": past},
        ["y", "c", "d"],
        opset=23,
    )
    check(write(model, tmp_path))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("shape", "axis"), [((2, 4, 5, 5), -1), ((2, 7, 1, 1), 1), ((2, 1), 1)])
def test_old_softmax_along_one_axis_needs_no_reshape(tmp_path, op, shape, axis):
    _, module = check(write(one(op, shape, axis=axis, opset=11), tmp_path))
    assert not operators(module)["reshape"]


def test_shape_arithmetic_leaves_nothing_behind(tmp_path):
    nodes = (
        "s = Shape(x) n = Gather(s, zero) n1 = Unsqueeze(n, axes) "
        "t = Concat <axis = 0>(n1, rest) r = Relu(x) y = Reshape(r, t)"
    )
    constants = {"zero": np.array(0, np.int64), "axes": ints(0), "rest": ints(-1)}
    model = graph(nodes, {"x": ("batch", 3, 4, 4)}, ["y"], constants)
    imported, module = check(write(model, tmp_path), shapes={"x": (2, 3, 4, 4)})
    assert operators(module) == {"nn.relu": 1, "reshape": 1}
    assert any("folded" in d.taken for d in imported.decisions)


def test_corners_aligned_by_a_fraction_are_named(tmp_path):
    def decided(scale: float) -> list[str]:
        scales = np.array([1, 1, scale, 2], np.float32)
        how = 'mode = "linear", coordinate_transformation_mode = "align_corners"'
        nodes = f"y = Resize <{how}>(x, , scales)"
        model = graph(nodes, {"x": (1, 2, 5, 4)}, ["y"], {"scales": scales})
        imported = import_model(write(model, tmp_path), shapes={})
        return [d.reason for d in imported.decisions if d.subject == "y"]

    assert decided(2.0) == []
    (reason,) = decided(1.5)
    assert "axis 2 of 5 elements is scaled to 7.5" in reason


def test_symbolic_dimension_is_fixed_at_every_input(tmp_path):
    model = graph("y = Add(a, b)", {"a": ("n", 3), "b": ("n", 3)}, ["y"])
    imported = import_model(write(model, tmp_path), shapes={"a": (4, 3)})
    assert [spec.shape for spec in imported.inputs] == [(4, 3), (4, 3)]


def test_gather_by_indices_that_are_data_stays_within_the_table(tmp_path, capfd):
    model = graph("y = Gather(table, i)", {"i": (2, 3)}, ["y"],
                  {"table": floats(10, 4)}, dtype=onnx.TensorProto.INT64)  # fmt: skip
    _, module = check(write(model, tmp_path))
    assert str(module["main"].body.blocks[0].bindings[-1].value.attrs.mode) == "clip"
    assert "Warning" not in capfd.readouterr().err


def test_grid_of_doubles_samples_in_the_dtype_of_the_data(tmp_path):
    def sampled(nodes: str) -> onnx.ModelProto:
        return graph(nodes, {"x": (1, 3, 5, 6), "g": (1, 4, 4, 2)}, ["y"])

    check(write(sampled("y = GridSample(x, g)"), tmp_path))
    doubles = sampled("d = Cast <to = 11>(g) y = GridSample(x, d)")
    imported = import_model(write(doubles, tmp_path), shapes={})
    returned = imported.module["main"].ret_ty
    (result,) = getattr(returned, "fields", (returned,))
    assert str(result.dtype) == imported.outputs[0].dtype == "float32"


def test_weights_that_are_opened_are_told(tmp_path):
    model = graph(
        "w = DequantizeLinear <axis = 1>(q, s) y = MatMul(x, w)",
        {"x": (2, 6)},
        ["y"],
        {"q": RNG.integers(-128, 128, (6, 4)).astype(np.int8), "s": np.abs(floats(4))},
    )
    imported, _ = check(write(model, tmp_path))
    told = [d.taken for d in imported.decisions if d.subject == "1 weights"]
    assert told == ["stored as floats, not as the integers of the file"]


def test_dropout_and_identity_are_passed_through(tmp_path):
    nodes = "d, mask = Dropout <ratio = 0.5>(x) r = Relu(d) y = Identity(r)"
    _, module = check(write(graph(nodes, {"x": (1, 4)}, ["y"], opset=11), tmp_path))
    assert operators(module) == {"nn.relu": 1}


def test_if_with_constant_condition_is_inlined(tmp_path):
    nodes = """z = If <then_branch = b () => (inner) { inner = Relu(x) },
                       else_branch = b () => (inner) { inner = Abs(x) }>(yes) y = Neg(z)"""
    model = graph(nodes, {"x": (1, 4)}, ["y"], {"yes": np.array(True)})
    _, module = check(write(model, tmp_path))
    assert operators(module) == {"nn.relu": 1, "negative": 1}


def test_initialiser_that_is_also_an_input_is_a_constant(tmp_path):
    model = graph("y = Mul(x, w)", {"x": (1, 4), "w": (4,)}, ["y"],
                  {"w": floats(4)})  # fmt: skip
    imported = import_model(write(model, tmp_path), shapes={})
    assert [spec.name for spec in imported.inputs] == ["x"]


def test_outputs_keep_name_and_order_and_variables_the_names_of_tensors(tmp_path):
    nodes = [node("Relu", ["in/0"], ["mid:0"]), node("Neg", ["mid:0"], ["out/0"])]
    path = write(graph(nodes, {"in/0": (1, 4)}, ["out/0", "mid:0"]), tmp_path)
    imported, module = check(path)
    assert [spec.name for spec in imported.outputs] == ["out/0", "mid:0"]
    (block,) = module["main"].body.blocks
    held = {imported.tensors[b.var.name]: op_name(b.value) for b in block.bindings}
    assert held == {"mid:0": "relax.nn.relu", "out/0": "relax.negative"}
    assert imported.tensors[module["main"].params[0].name] == "in/0"


def test_external_data_is_read_and_digested(tmp_path):
    model = graph("y = Mul(x, w)", {"x": (1, 400)}, ["y"], {"w": floats(400)})
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    imported, _ = check(path)
    (tmp_path / "w.bin").write_bytes(floats(400).tobytes())
    assert import_model(path, shapes={}).model_sha256 != imported.model_sha256


def test_the_digest_of_a_whole_model_is_that_of_its_file(tmp_path):
    path = write(graph("y = Relu(x)", {"x": (1, 4)}, ["y"]), tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert find_model_files(path).sha256() == digest
    assert import_model(path, shapes={}).model_sha256 == digest
    assert not import_model(path, shapes={}, digested=False).model_sha256


LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.mark.parametrize("name", ["shufflenet", "inception_v2", "squeezenet"])
def test_light_networks_import_with_static_shapes(name):
    imported = import_model(LIGHT / f"light_{name}.onnx", shapes={})
    assert imported.outputs[0].shape[:2] == (1, 1000)


def test_large_weights_are_read_where_they_stay(tmp_path):
    numbers = np.random.default_rng(3).standard_normal((64, 1024)).astype(np.float16)
    path = tmp_path / "weights"
    path.write_bytes(b"abc" + numbers.tobytes())
    with path.open("rb") as file:
        assert file.read(3) == b"abc"
        data = read_aligned(file, numbers.nbytes)
        assert not read_aligned(file, 8).size  # the file ends there
    assert not data.flags.writeable
    value = data.view(np.float16).reshape(numbers.shape)
    held = constant_value(take_constant(value))
    assert held is not None and held.ctypes.data == value.ctypes.data
    assert np.array_equal(held, numbers)
    # Parts of it, which begin elsewhere, are copied.
    part = constant_value(take_constant(value[1:, :4]))
    assert part is not None and np.array_equal(part, numbers[1:, :4])
