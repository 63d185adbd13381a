from pathlib import Path

import numpy as np
import pytest
import tflite

from adrenoc.base import errors
from adrenoc.importers import import_model
from adrenoc.importers.tflite.file import read_tflite
from tests.ir.import_and_run import check, operators
from tests.models import network, write_network


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


def patched(content: bytes, old: int, new: int) -> bytes:
    """The file with each use of builtin operator `old` turned into `new` (both below 127)."""
    data = bytearray(content)
    model = tflite.Model.GetRootAsModel(data, 0)
    for index in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(index)
        if code.BuiltinCode() == old:
            for slot in (4, 10):
                offset = code._tab.Offset(slot)
                data[code._tab.Pos + offset] = new
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


def test_unsupported_operators_are_listed(tmp_path):
    kinds = tflite.BuiltinOperator
    content = network("mixed_small", size=31, width=1.0)
    content = patched(content, kinds.AVERAGE_POOL_2D, kinds.SKIP_GRAM)
    path = tmp_path / "m.tflite"
    path.write_bytes(patched(content, kinds.SOFTMAX, kinds.LSH_PROJECTION))
    with pytest.raises(errors.UnsupportedOperatorError) as caught:
        import_model(path, shapes={})
    assert "LSH_PROJECTION (1x), SKIP_GRAM (2x)" in caught.value.message
    reason = "'output': not supported, expected an operator that adrenoc translates"
    assert reason in caught.value.message


def test_options_of_tensorflows_own_operators_are_no_text(tmp_path):
    """They hold a serialised node: a file with one is whole, and says which operator it is."""
    build = pytest.importorskip("tests.tflite.build")
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    made = build.ModelBuilder()
    main = made.graph()
    main.inputs = [main.add(build.T(shape=(3, 4)))]
    options = flexbuffers.Dumps(["FlexAsString", "#fill"]).replace(b"#", b"\xff")
    main.outputs = main.op("FlexAsString", main.inputs, [build.T(shape=(3, 4))], custom=options)
    path = tmp_path / "m.tflite"
    path.write_bytes(made.write())
    with pytest.raises(errors.CustomDomainError, match=r"FlexAsString \(1x\)"):
        import_model(path, shapes={})


def test_what_keeps_variables_is_told_once(tmp_path):
    kinds = tflite.BuiltinOperator
    content = network("mixed_small", size=31, width=1.0)
    content = patched(content, kinds.AVERAGE_POOL_2D, kinds.CALL_ONCE)
    path = tmp_path / "m.tflite"
    path.write_bytes(patched(content, kinds.SOFTMAX, kinds.RANDOM_UNIFORM))
    with pytest.raises(errors.UnsupportedOperatorError) as caught:
        import_model(path, shapes={})
    assert caught.value.message.count("it keeps a variable from run to run") == 1
    assert "'output': it draws random numbers: make them an input" in caught.value.message


def test_weights_that_were_left_out_are_no_states(tmp_path):
    """As of a Keras 3 model by from_concrete_functions: variables that nothing ever sets."""
    kinds = tflite.BuiltinOperator
    content = network("mixed_small", size=31, width=1.0)
    content = patched(content, kinds.AVERAGE_POOL_2D, kinds.READ_VARIABLE)
    path = tmp_path / "m.tflite"
    path.write_bytes(patched(content, kinds.SOFTMAX, kinds.VAR_HANDLE))
    with pytest.raises(errors.UnsupportedOperatorError) as caught:
        import_model(path, shapes={})
    assert "from run to run" not in caught.value.message
    assert caught.value.message.count("TFLiteConverter.from_keras_model") == 1


def test_a_refusal_says_what_was_seen_and_expected(tmp_path):
    build = pytest.importorskip("tests.tflite.cases")
    case = build.recipe("BITCAST", "", [build.f(3, 4)], [build.it("int16")]).case()
    path = tmp_path / "m.tflite"
    path.write_bytes(case.model)
    with pytest.raises(errors.UnsupportedOperatorError) as caught:
        import_model(path, shapes={})
    expected = "from float32 of 4 bytes to int16 of 2, expected the same size"
    assert expected in caught.value.message


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
    from tests.tflite.build import ModelBuilder, T

    model = ModelBuilder()
    main = model.graph()
    x = main.add(T(data=np.zeros((1, 2, 3), np.float32)), "x")
    shape = main.add(T(dtype="int32", data=np.array([-1, 6], np.int32), is_constant=True))
    (rows,) = main.op("RESHAPE", [x, shape], [T(shape=(1, 6))], "ReshapeOptions")
    main.outputs = main.op("EXP", [rows], [T(shape=(1, 6))], "ExpOptions")
    for index in (x, rows, *main.outputs):
        tensor = main.tensors[index]
        tensor.shapeSignature = [-1, *tensor.shape[1:]]
    return model.write()


@pytest.mark.parametrize(("shapes", "rows"), [({}, 1), ({"x": (4, 2, 3)}, 4)])
def test_an_axis_that_the_file_leaves_open(tmp_path, shapes, rows):
    pytest.importorskip("ai_edge_litert")
    (tmp_path / "m.tflite").write_bytes(open_batch())
    imported = import_model(tmp_path / "m.tflite", shapes=shapes)
    assert [spec.shape for spec in imported.inputs] == [(rows, 2, 3)]
    assert [spec.shape for spec in imported.outputs] == [(rows, 6)]


def test_an_axis_that_the_file_fixes(tmp_path):
    pytest.importorskip("ai_edge_litert")
    (tmp_path / "m.tflite").write_bytes(open_batch())
    with pytest.raises(errors.ShapeError) as caught:
        import_model(tmp_path / "m.tflite", shapes={"x": (4, 2, 5)})
    assert caught.value.hint == "--shape x:D,2,3"


@pytest.mark.parametrize("rows", [1, 3])
def test_a_shape_computed_of_an_open_batch(tmp_path, rows):
    """As Keras writes a dense layer behind a layer of images: extents are multiplied."""
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    model = ModelBuilder()
    main = model.graph()
    x = main.add(T(data=np.zeros((1, 4, 2, 3), np.float32)), "x")
    constants = {"first": [0, 1, 2], "zero": [0], "last": 3}
    first, zero, last = (
        main.add(T(dtype="int32", data=np.array(v, np.int32), is_constant=True), name)
        for name, v in constants.items()
    )
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
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    model = ModelBuilder()
    main = model.graph()
    condition = main.add(T(dtype="bool", data=np.array([True])), "c")
    x = main.add(T(data=np.zeros((2, 3), np.float32)), "x")
    both = {"thenSubgraphIndex": 0, "elseSubgraphIndex": 0}
    inputs = [condition, condition, x]
    main.outputs = main.op("IF", inputs, [T(shape=(2, 3))], "IfOptions", both)
    (tmp_path / "m.tflite").write_bytes(model.write())
    with pytest.raises(errors.UnsupportedOperatorError, match="graph 0 of the file calls itself"):
        import_model(tmp_path / "m.tflite", shapes={})


def test_a_tile_without_measure(tmp_path):
    """Each repeat is an operand; so many are no memory's."""
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    model = ModelBuilder()
    main = model.graph()
    x = main.add(T(data=np.zeros((1, 2), np.float32)), "x")
    times = main.add(T(dtype="int32", data=np.array([1, 2**29], np.int32), is_constant=True))
    main.outputs = main.op("TILE", [x, times], [T(shape=(1, 4))], "TileOptions")
    (tmp_path / "m.tflite").write_bytes(model.write())
    with pytest.raises(errors.UnsupportedOperatorError, match="536870912 times"):
        import_model(tmp_path / "m.tflite", shapes={})


def refused_at(folder: Path, kind: str, *, dtype: str, result: str) -> str:
    """Why an operator of one operand, or two, of `dtype` is refused that makes a `result`."""
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    model = ModelBuilder()
    main = model.graph()
    ones = np.ones((1, 4, 4, 3), dtype)
    operands = [main.add(T(dtype=dtype, data=ones), name) for name in "xz"[: OPERANDS[kind]]]
    if OPERANDS[kind] == 1:
        axis = np.array([2], np.int32)
        operands.append(main.add(T(dtype="int32", data=axis, is_constant=True), "axis"))
    main.outputs = main.op(kind, operands, [T(dtype=result, shape=ones.shape)])
    (folder / "m.tflite").write_bytes(model.write())
    with pytest.raises(errors.UnsupportedOperatorError) as caught:
        import_model(folder / "m.tflite", shapes={})
    return caught.value.message


OPERANDS = {
    **dict.fromkeys(("ADD", "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "POW", "SUB", "LESS"), 2),
    **dict.fromkeys(("ABS", "EXP", "REDUCE_MAX", "REDUCE_PROD", "SUM", "RELU", "NEG"), 1),
    **dict.fromkeys(("AVERAGE_POOL_2D", "RESIZE_BILINEAR", "BATCH_MATMUL"), 2),
}


@pytest.mark.parametrize("kind", OPERANDS)
def test_arithmetic_of_truth_values_is_refused(tmp_path, kind):
    """LiteRT has no kernel for it, and so nothing says what it would be."""
    said = refused_at(tmp_path, kind, dtype="bool", result="bool")
    assert f"input 0 ('x') holds bool; {kind} takes numbers" in said


def test_a_mean_of_plain_integers_is_refused(tmp_path):
    assert "holds int16" in refused_at(tmp_path, "AVERAGE_POOL_2D", dtype="int16", result="int16")


def test_a_result_of_another_dtype_is_refused(tmp_path):
    said = refused_at(tmp_path, "LESS", dtype="float32", result="float32")
    assert "comes out as bool, not as float32" in said


def test_language_models_of_several_calls_are_refused(tmp_path):
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    flatbuffers = pytest.importorskip("flatbuffers")
    path = write_network(tmp_path, "mixed_small", size=31, width=1.0)
    whole = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    for keys, refused in ((["prefill_128", "decode"], True), (["train", "infer"], False)):
        whole.signatureDefs = []
        for key in keys:
            one = schema.SignatureDefT()
            one.signatureKey = key
            one.inputs, one.outputs, one.subgraphIndex = [], [], 0
            whole.signatureDefs.append(one)
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(whole.Pack(builder), b"TFL3")
        path.write_bytes(builder.Output())
        if not refused:
            assert import_model(path, shapes={}).outputs
            continue
        with pytest.raises(errors.UnsupportedOperatorError, match="prefill_128, decode of a lang"):
            import_model(path, shapes={})


@pytest.mark.parametrize(("name", "said"), [("loop", False), ("suppression_loop", True)])
def test_a_loop_that_data_end_is_the_one_thing_told(tmp_path, name, said):
    """What reads its results cannot be judged: their shapes and numbers are not known."""
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    made = ModelBuilder()
    main, condition, body = made.graph(), made.graph("condition"), made.graph("body")
    x = main.add(T(data=np.ones((1, 4), np.float32)), "x")
    for graph in (condition, body):
        graph.inputs = [graph.add(T(shape=(1, 4)))]
    flat = condition.add(T(dtype="int32", data=np.array([4], np.int32), is_constant=True))
    one = condition.op("RESHAPE", [condition.inputs[0], flat], [T(shape=(4,))], "ReshapeOptions")
    limit = condition.add(T(data=np.ones(4, np.float32), is_constant=True))
    condition.outputs = condition.op("LESS", [*one, limit], [T(dtype="bool")])
    body.outputs = body.op("ADD", [body.inputs[0]] * 2, [T(shape=(1, 4))], "AddOptions")
    both = {"condSubgraphIndex": 1, "bodySubgraphIndex": 2}
    results = main.op("WHILE", [x], [T(shape=(1, 4))], "WhileOptions", both)
    main.tensors[results[0]].name = name.encode()
    rows = main.add(T(dtype="int32", data=np.array([3], np.int32), is_constant=True))
    main.outputs = main.op("RESHAPE", [*results, rows], [T(shape=(3,))], "ReshapeOptions")
    (tmp_path / "m.tflite").write_bytes(made.write())
    with pytest.raises(errors.UnsupportedOperatorError) as caught:
        import_model(tmp_path / "m.tflite", shapes={})
    told = caught.value.message
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
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    made = ModelBuilder()
    main = made.graph()
    x = main.add(T(data=np.ones((1, 4), np.float32)), "x")
    main.outputs = main.op(kind, [x], [T(shape=(1, 4))], custom=b"")
    (tmp_path / "m.tflite").write_bytes(made.write())
    with pytest.raises(errors.CustomDomainError) as caught:
        import_model(tmp_path / "m.tflite", shapes={})
    assert hint in str(caught.value.hint)


def test_chains_on_static_shapes_fold(tmp_path):
    """Frames of a sound, of which exporters compute how many there are and where each begins."""
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.build import ModelBuilder, T

    made = ModelBuilder()
    main = made.graph()

    def constant(value: object) -> int:
        return main.add(T(dtype="int32", is_constant=True, data=np.array(value, np.int32)))

    def op(kind: str, inputs: list[int], *shapes: tuple[int, ...], **options: object) -> list[int]:
        name = str(options.pop("options", ""))
        results = [T(dtype="int32", shape=shape) for shape in shapes]
        return main.op(kind, inputs, results, name, options)

    x = main.add(T(data=np.ones((1, 144), np.float32)), "x")
    [shape] = op("SHAPE", [x], (2,), options="ShapeOptions", outType=2)
    split = [shape, constant([1, 1]), constant(0)]
    first, length = op("SPLIT_V", split, (1,), (1,), options="SplitVOptions", numSplits=2)
    [count] = op("FLOOR_DIV", [length, constant([12])], (1,))
    [left] = op("FLOOR_MOD", [length, constant([12])], (1,))
    [count] = op("ADD", [count, left], (1,), options="AddOptions")
    [scalar] = op("SQUEEZE", [count], (), options="SqueezeOptions", squeezeDims=[0])
    [starts] = op("RANGE", [constant(0), scalar, constant(1)], (12,))
    [starts] = op("MUL", [starts, constant(12)], (12,), options="MulOptions")
    [starts] = op("RESHAPE", [starts, constant([12, 1])], (12, 1))
    [within] = op("RANGE", [constant(0), constant(8), constant(1)], (8,))
    [places] = op("ADD", [starts, within], (12, 8), options="AddOptions")
    frames = main.op("GATHER", [x, places], [T(shape=(1, 12, 8))], "GatherOptions", {"axis": 1})
    [most] = op("MAXIMUM", [count, constant([3])], (1,))
    joined = [first, most, constant([8])]
    [wanted] = op("CONCATENATION", joined, (3,), options="ConcatenationOptions", axis=0)
    main.outputs = main.op("RESHAPE", [*frames, wanted], [T(shape=(1, 12, 8))])
    (tmp_path / "m.tflite").write_bytes(made.write())
    _, module = check(tmp_path / "m.tflite")
    assert set(operators(module)) <= {"take", "reshape"}
