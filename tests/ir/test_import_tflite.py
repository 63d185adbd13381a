from pathlib import Path

import flatbuffers
import numpy as np
import pytest
import tflite
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

from adrenoc.base import errors
from adrenoc.importers import import_model
from adrenoc.importers.tflite.file import read_tflite
from tests.ir.planning import check, operators
from tests.models import network, write_network
from tests.tflite.build import ModelBuilder, T, constant, write_operator


def test_mobilenet_computes_what_the_file_says(tmp_path):
    imported, module = check(write_network(tmp_path, "mobilenet_v1_small", size=32, width=0.25))
    assert imported.format == "tflite"
    made = operators(module)
    assert made["nn.conv2d"] == 27
    assert made["clip"] == 27  # Each fused ReLU6.
    assert not made["nn.pad"]


def test_paddings_pools_and_depth_multiplier(tmp_path):
    imported, module = check(write_network(tmp_path, "mixed_small", size=31, width=1.0))
    assert [spec.name for spec in imported.inputs] == ["input"]
    assert [spec.name for spec in imported.outputs] == ["output"]
    assert operators(module)["nn.avg_pool2d"] == 2
    held = {imported.tensors.get(b.var.name) for b in module["main"].body.blocks[0].bindings}
    assert "output" in held


def _refused(
    path: Path, kind: type[errors.AdrenocError] = errors.UnsupportedOperatorError
) -> errors.AdrenocError:
    with pytest.raises(kind) as caught:
        import_model(path, shapes={})
    return caught.value


def patched(content: bytes, old: str, new: str) -> bytes:
    """The file with each use of builtin operator `old` turned into `new` (both below 127)."""
    kinds, data = tflite.BuiltinOperator, bytearray(content)
    model = tflite.Model.GetRootAsModel(data, 0)
    for index in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(index)
        if code.BuiltinCode() == getattr(kinds, old):
            for slot in (4, 10):
                offset = code._tab.Offset(slot)
                data[code._tab.Pos + offset] = getattr(kinds, new)
    return bytes(data)


@pytest.mark.parametrize("slot", [4, 10])
def test_an_operator_has_the_larger_of_its_two_numbers(slot, tmp_path):
    """As LiteRT has it: one alone is enough, and a file without the older one is no ADD."""
    content = bytearray(network("mixed_small", size=31, width=1.0))
    whole = read_tflite(tmp_path / "m.tflite", bytes(content))
    model = tflite.Model.GetRootAsModel(content, 0)
    for index in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(index)
        if offset := code._tab.Offset(slot):
            content[code._tab.Pos + offset] = 0
    seen = read_tflite(tmp_path / "m.tflite", bytes(content))
    kinds = [[operator.kind for operator in graph.operators] for graph in seen.graphs]
    assert kinds == [[operator.kind for operator in graph.operators] for graph in whole.graphs]


@pytest.mark.parametrize(
    ("pool", "softmax", "told"),
    [
        (
            *("SKIP_GRAM", "LSH_PROJECTION"),
            {
                "LSH_PROJECTION (1x), SKIP_GRAM (2x)": 1,
                "'output': not supported, expected an operator that adrenoc translates": 1,
            },
        ),
        (
            *("CALL_ONCE", "RANDOM_UNIFORM"),
            {
                "it keeps a variable from run to run": 1,
                "'output': it draws random numbers: make them an input": 1,
            },
        ),
        # As of a Keras 3 model by from_concrete_functions: variables that nothing ever sets.
        (
            *("READ_VARIABLE", "VAR_HANDLE"),
            {"from run to run": 0, "TFLiteConverter.from_keras_model": 1},
        ),
    ],
)
def test_unsupported_operators_are_listed_once(tmp_path, pool, softmax, told):
    content = patched(network("mixed_small", size=31, width=1.0), "AVERAGE_POOL_2D", pool)
    path = tmp_path / "m.tflite"
    path.write_bytes(patched(content, "SOFTMAX", softmax))
    message = _refused(path).message
    assert {part: message.count(part) for part in told} == told


def test_options_of_tensorflows_own_operators_are_no_text(tmp_path):
    """They hold a serialised node: a file with one is whole, and says which operator it is."""
    options = flexbuffers.Dumps(["FlexAsString", "#fill"]).replace(b"#", b"\xff")
    floats = T(shape=(3, 4))
    path = write_operator(tmp_path, "FlexAsString", [floats], floats, custom=options)
    assert "FlexAsString (1x)" in _refused(path, errors.CustomDomainError).message


def test_a_refusal_says_what_was_seen_and_expected(tmp_path):
    x, result = T(data=np.zeros((3, 4), np.float32)), T(dtype="int16", shape=(3, 4))
    said = _refused(write_operator(tmp_path, "BITCAST", [x], result)).message
    assert "from float32 of 4 bytes to int16 of 2, expected the same size" in said


def test_repeated_tensor_names_are_told_apart(tmp_path):
    content = network("mixed_small", size=31, width=1.0)
    path = tmp_path / "m.tflite"
    # conv_3 and add_14 would clash with nothing; give two tensors one name of one length.
    names = [t.name for t in read_tflite(path, content).main.tensors]
    first, second = (n for n in names if n in ("maximum_7", "average_8"))
    assert len(first) == len(second)
    path.write_bytes(content.replace(second.encode(), first.encode()))
    again = read_tflite(path, path.read_bytes())
    assert {first, f"{first}__1"} <= {t.name for t in again.main.tensors}
    check(path)


def open_batch() -> bytes:
    """A model whose file leaves the first axis open: reshaped, then the rows are added up."""
    model = ModelBuilder()
    main = model.graph()
    x = main.add(T(data=np.zeros((1, 2, 3), np.float32)), "x")
    shape = main.add(constant([-1, 6]))
    (rows,) = main.op("RESHAPE", [x, shape], [T(shape=(1, 6))], "ReshapeOptions")
    main.outputs = main.op("EXP", [rows], [T(shape=(1, 6))], "ExpOptions")
    for index in (x, rows, *main.outputs):
        tensor = main.tensors[index]
        tensor.shapeSignature = [-1, *tensor.shape[1:]]
    return model.write()


@pytest.mark.parametrize(("shapes", "rows"), [({}, 1), ({"x": (4, 2, 3)}, 4)])
def test_an_axis_that_the_file_leaves_open(tmp_path, shapes, rows):
    (tmp_path / "m.tflite").write_bytes(open_batch())
    imported = import_model(tmp_path / "m.tflite", shapes=shapes)
    assert [spec.shape for spec in imported.inputs] == [(rows, 2, 3)]
    assert [spec.shape for spec in imported.outputs] == [(rows, 6)]
    with pytest.raises(errors.ShapeError) as caught:
        import_model(tmp_path / "m.tflite", shapes={"x": (4, 2, 5)})
    assert caught.value.hint == "--shape x:D,2,3"


@pytest.mark.parametrize("rows", [1, 3])
def test_a_shape_computed_of_an_open_batch(tmp_path, rows):
    """As Keras writes a dense layer behind a layer of images: extents are multiplied."""
    model = ModelBuilder()
    main = model.graph()
    x = main.add(T(data=np.zeros((1, 4, 2, 3), np.float32)), "x")
    first, zero, last = (main.add(constant(v)) for v in ([0, 1, 2], [0], 3))
    whole = T(dtype="int32", shape=())
    (shape,) = main.op("SHAPE", [x], [T(dtype="int32", shape=(4,))], "ShapeOptions")
    (some,) = main.op("GATHER", [shape, first], [T(dtype="int32", shape=(3,))], "GatherOptions")
    (count,) = main.op("REDUCE_PROD", [some, zero], [whole], "ReducerOptions")
    pack = {"valuesCount": 2}
    wanted = main.op("PACK", [count, last], [T(dtype="int32", shape=(2,))], "PackOptions", pack)
    flat = main.op("RESHAPE", [x, *wanted], [T(shape=(1, 1))], "ReshapeOptions")
    main.outputs = main.op("EXP", flat, [T(shape=(1, 1))])
    main.tensors[x].shapeSignature = [-1, 4, 2, 3]
    for index in (*flat, *main.outputs):
        main.tensors[index].shapeSignature = [-1, -1]
    (tmp_path / "m.tflite").write_bytes(model.write())
    imported = import_model(tmp_path / "m.tflite", shapes={"x": (rows, 4, 2, 3)})
    assert [spec.shape for spec in imported.outputs] == [(rows * 8, 3)]


def test_a_graph_that_calls_itself(tmp_path):
    truth, x = T(dtype="bool", data=np.array([True])), T(data=np.zeros((2, 3), np.float32))
    both = {"thenSubgraphIndex": 0, "elseSubgraphIndex": 0}
    model = write_operator(tmp_path, "IF", [truth, truth, x], T(shape=(2, 3)), "IfOptions", both)
    assert "graph 0 of the file calls itself" in _refused(model).message


def test_a_tile_without_measure(tmp_path):
    """Each repeat is an operand; so many are no memory's."""
    operands = [T(data=np.zeros((1, 2), np.float32)), constant([1, 2**29])]
    model = write_operator(tmp_path, "TILE", operands, T(shape=(1, 4)), "TileOptions")
    assert "536870912 times" in _refused(model).message


def refused_at(folder: Path, kind: str, *, dtype: str, result: str) -> str:
    """Why an operator of one operand, or two, of `dtype` is refused that makes a `result`."""
    x = T(dtype=dtype, data=np.ones((1, 4, 4, 3), dtype))
    operands = [x, constant([2]) if kind in UNARY else x]
    return _refused(
        write_operator(folder, kind, operands, T(dtype=result, shape=x.data.shape))
    ).message


UNARY = ("ABS", "EXP", "REDUCE_MAX", "REDUCE_PROD", "SUM", "RELU", "NEG")
BINARY = ("ADD", "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "POW", "SUB", "LESS")
WINDOWS = ("AVERAGE_POOL_2D", "RESIZE_BILINEAR", "BATCH_MATMUL")


@pytest.mark.parametrize("kind", [*BINARY, *UNARY, *WINDOWS])
def test_arithmetic_of_truth_values_is_refused(tmp_path, kind):
    """LiteRT has no kernel for it, and so nothing says what it would be."""
    said = refused_at(tmp_path, kind, dtype="bool", result="bool")
    assert f"input 0 ('x') holds bool; {kind} takes numbers" in said


@pytest.mark.parametrize(
    ("kind", "dtype", "said"),
    [
        ("AVERAGE_POOL_2D", "int16", "holds int16"),
        ("LESS", "float32", "comes out as bool, not as float32"),
    ],
)
def test_dtypes_that_an_operator_does_not_make_are_refused(tmp_path, kind, dtype, said):
    assert said in refused_at(tmp_path, kind, dtype=dtype, result=dtype)


def test_language_models_of_several_calls_are_refused(tmp_path):
    path = write_network(tmp_path, "mixed_small", size=31, width=1.0)
    whole = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    for keys in (["train", "infer"], ["prefill_128", "decode"]):
        whole.signatureDefs = []
        for key in keys:
            one = schema.SignatureDefT()
            one.signatureKey = key
            one.inputs, one.outputs, one.subgraphIndex = [], [], 0
            whole.signatureDefs.append(one)
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(whole.Pack(builder), b"TFL3")
        path.write_bytes(builder.Output())
        if "train" in keys:
            assert import_model(path, shapes={}).outputs
    assert "prefill_128, decode of a lang" in _refused(path).message


@pytest.mark.parametrize(("name", "said"), [("loop", False), ("suppression_loop", True)])
def test_a_loop_that_data_end_is_the_one_thing_told(tmp_path, name, said):
    """What reads its results cannot be judged: their shapes and numbers are not known."""
    made = ModelBuilder()
    main, condition, body = made.graph(), made.graph("condition"), made.graph("body")
    x = main.add(T(data=np.ones((1, 4), np.float32)), "x")
    for graph in (condition, body):
        graph.inputs = [graph.add(T(shape=(1, 4)))]
    flat = condition.add(constant([4]))
    one = condition.op("RESHAPE", [condition.inputs[0], flat], [T(shape=(4,))], "ReshapeOptions")
    limit = condition.add(constant(np.ones(4), "float32"))
    condition.outputs = condition.op("LESS", [*one, limit], [T(dtype="bool")])
    body.outputs = body.op("ADD", [body.inputs[0]] * 2, [T(shape=(1, 4))], "AddOptions")
    both = {"condSubgraphIndex": 1, "bodySubgraphIndex": 2}
    results = main.op("WHILE", [x], [T(shape=(1, 4))], "WhileOptions", both)
    main.tensors[results[0]].name = name.encode()
    rows = main.add(constant([3]))
    main.outputs = main.op("RESHAPE", [*results, rows], [T(shape=(3,))], "ReshapeOptions")
    (tmp_path / "m.tflite").write_bytes(made.write())
    told = _refused(tmp_path / "m.tflite").message
    assert told.startswith("operators that cannot be imported: WHILE (1x); at ")
    assert "it loops as many times as data tell" in told
    assert ("tf.image.non_max_suppression is an operator" in told) == said


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("FlexCombinedNonMaxSuppression", "select on the CPU"),
        ("FlexAsString", "what it then names is TensorFlow's own"),
        ("Mine", "tell what Mine computes by an entry point of adrenoc.tflite_operators"),
    ],
)
def test_what_to_do_about_operators_of_others(tmp_path, kind, hint):
    x = T(data=np.ones((1, 4), np.float32))
    model = write_operator(tmp_path, kind, [x], T(shape=(1, 4)), custom=b"")
    assert hint in str(_refused(model, errors.CustomDomainError).hint)


def test_chains_on_static_shapes_fold(tmp_path):
    """Frames of a sound, of which exporters compute how many there are and where each begins."""
    made = ModelBuilder()
    main = made.graph()

    def held(value: object) -> int:
        return main.add(constant(value))

    def op(kind: str, inputs: list[int], *shapes: tuple[int, ...], **options: object) -> list[int]:
        name = str(options.pop("options", ""))
        results = [T(dtype="int32", shape=shape) for shape in shapes]
        return main.op(kind, inputs, results, name, options)

    x = main.add(T(data=np.ones((1, 144), np.float32)), "x")
    [shape] = op("SHAPE", [x], (2,), options="ShapeOptions", outType=2)
    split = [shape, held([1, 1]), held(0)]
    first, length = op("SPLIT_V", split, (1,), (1,), options="SplitVOptions", numSplits=2)
    [count] = op("FLOOR_DIV", [length, held([12])], (1,))
    [left] = op("FLOOR_MOD", [length, held([12])], (1,))
    [count] = op("ADD", [count, left], (1,), options="AddOptions")
    [scalar] = op("SQUEEZE", [count], (), options="SqueezeOptions", squeezeDims=[0])
    [starts] = op("RANGE", [held(0), scalar, held(1)], (12,))
    [starts] = op("MUL", [starts, held(12)], (12,), options="MulOptions")
    [starts] = op("RESHAPE", [starts, held([12, 1])], (12, 1))
    [within] = op("RANGE", [held(0), held(8), held(1)], (8,))
    [places] = op("ADD", [starts, within], (12, 8), options="AddOptions")
    frames = main.op("GATHER", [x, places], [T(shape=(1, 12, 8))], "GatherOptions", {"axis": 1})
    [most] = op("MAXIMUM", [count, held([3])], (1,))
    joined = [first, most, held([8])]
    [wanted] = op("CONCATENATION", joined, (3,), options="ConcatenationOptions", axis=0)
    main.outputs = main.op("RESHAPE", [*frames, wanted], [T(shape=(1, 12, 8))])
    (tmp_path / "m.tflite").write_bytes(made.write())
    _, module = check(tmp_path / "m.tflite")
    assert set(operators(module)) <= {"take", "reshape"}
