"""Bundles inside of onnxruntime, by the wheel as it is: numbers, refusals, cancelling, threads."""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.bundle.bundle import TOKENIZER, open_bundle, write_app_tar
from adrenoc.check.generation import check_tokens
from adrenoc.device.run import run_bundle
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.runtime_build import PROVIDER, Runtime, build_runtime
from tests.commands import compile_model, refuse, skip_where_lacking
from tests.host.decoder_bundles import DecoderShape, write_decoder, write_tokenizer
from tests.host.encoder_decoders import make_cross_decoder
from tests.models import graph, write, write_network, write_stepper
from tests.onnx_backend.cases import load_cases
from tests.onnx_backend.execute import read_table
from tests.runtime.programs import HERE, flip_bits, run_case

Deed = Callable[..., dict[str, Any]]

SAMPLE = 48
"""Of ONNX's node tests."""

ort = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="session")
def inside(runtime) -> Runtime:
    """The runtime with the provider, of the same objects."""
    with skip_where_lacking():
        return build_runtime(onnxruntime=True)


@pytest.fixture
def deed(inside, opencl, work, execute, tmp_path) -> Iterator[Deed]:
    """Do something in onnxruntime; the outputs come back as `outputs`."""

    def do(
        name: str, model: Path, inputs: list[np.ndarray], outputs: int = 0, **options: str
    ) -> dict[str, Any]:
        files = [tmp_path / f"{place}.npy" for place in range(len(inputs) + outputs)]
        for file, array in zip(files, inputs, strict=False):
            np.save(file, array)
        said = {"opencl_library": opencl, "cache_folder": str(work / "ort-cache"), **options}
        said = {key.replace("__", "."): value for key, value in said.items() if value}
        command = [sys.executable, HERE / "ort_program.py", name, inside.provider, model]
        done = execute(*command, json.dumps(said), *files, PYTHONPATH="")
        told = done.json()
        told["log"] = done.err
        assert told.pop("tvm") == []
        if outputs and "error" not in told:
            told["outputs"] = [np.load(file) for file in files[len(inputs) :]]
        return told

    yield do


def _compile(model: Path, output: Path, *more: str, preset: str = "fp32") -> Path:
    """The model that onnxruntime opens."""
    compile_model(model, output, "--onnxruntime", *more, preset=preset)
    return output.with_name(f"{output.stem}_ctx.onnx")


@pytest.fixture(scope="session")
def two(case, work) -> Path:
    """The network of the case: two inputs, two outputs."""
    (work / "ort").mkdir(exist_ok=True)
    return _compile(work / "two.onnx", work / "ort/two.adrenoc")


def _reference(model: Path, inputs: list[np.ndarray]) -> list[np.ndarray]:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def test_the_library_shows_two_functions_and_needs_no_onnxruntime(inside):
    facts = read_elf(inside.provider)
    assert sorted(facts.exported) == ["CreateEpFactories", "ReleaseEpFactory"]
    assert not [name for name in facts.needed if "onnxruntime" in name]
    assert facts.run_path == "$ORIGIN"


def test_a_runtime_without_it_has_no_such_file(runtime):
    assert PROVIDER not in {file.name for file in runtime.files}


def test_a_tar_of_an_app_under_the_bundles_name(two, case, deed, tmp_path):
    """As apps lay it, whose archive of the model holds a tar."""
    bundle = open_bundle(two.with_name("two.adrenoc"))
    write_app_tar(bundle.root, tmp_path / bundle.path.name, name=bundle.manifest.name)
    model = Path(shutil.copy(two, tmp_path))
    inputs = list(case.arrays.values())
    expected = deed("run", two, inputs, len(case.outputs))["outputs"]
    for made, wanted in zip(deed("run", model, inputs, 2)["outputs"], expected, strict=True):
        np.testing.assert_array_equal(made, wanted)


def test_it_needs_the_shared_library():
    assert "--onnxruntime needs the shared library: no --static" in refuse(
        2, "runtime", "build", "--static", "--onnxruntime"
    )


def test_bits_equal_the_runner(two, case, deed, inside, runner, tmp_path):
    told = deed("run", two, list(case.arrays.values()), len(case.outputs))
    bundle = two.with_name("two.adrenoc")
    (tmp_path / "out").mkdir()
    _, outputs = run_case(partial(runner, of=inside), bundle, case, tmp_path / "out")
    for made, wanted in zip(told["outputs"], outputs.values(), strict=True):
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize(
    ("preset", "bound"), [pytest.param("fp32", 1e-5, marks=pytest.mark.nightly), ("mixed", 1e-2)]
)
def test_a_network(preset, bound, deed, tmp_path):
    model = write_network(tmp_path, "mobilenet_v2")
    context = _compile(model, tmp_path / "net.adrenoc", preset=preset)
    x = np.random.default_rng(1).standard_normal((1, 3, 64, 64)).astype("float32")
    made = deed("run", context, [x], 1)["outputs"][0]
    expected = _reference(model, [x])[0]
    assert np.abs(made - expected).max() <= bound * np.ptp(expected)
    bundle = open_bundle(tmp_path / "net.adrenoc")
    own = run_bundle(bundle, inputs={bundle.manifest.inputs[0].name: x}, repeat=1).outputs
    np.testing.assert_array_equal(made, next(iter(own.values())))


def test_names_tell_which_tensor_is_which(two, case, deed):
    model = onnx.load(two)
    for repeated in (
        model.graph.input,
        model.graph.output,
        model.graph.node[0].input,
        model.graph.node[0].output,
    ):
        repeated.reverse()
    turned = two.with_name("turned_ctx.onnx")
    onnx.save(model, turned)
    told = deed("run", turned, list(case.arrays.values())[::-1], len(case.outputs))
    for made, wanted in zip(told["outputs"][::-1], case.outputs.values(), strict=True):
        np.testing.assert_array_equal(made, wanted)


def test_two_parts_with_onnxruntime_between(deed, tmp_path):
    """Convolution and a dense layer by a bundle each, under other names; Mish by onnxruntime."""
    rng = np.random.default_rng(2)
    conv = {"w": rng.standard_normal((4, 3, 3, 3)).astype("float32")}
    dense = {"d": rng.standard_normal((4, 5)).astype("float32")}
    head = [helper.make_node("Conv", ["x", "w"], ["m"], pads=[1, 1, 1, 1])]
    tail = "g = GlobalAveragePool(n) f = Flatten(g) y = MatMul(f, d)"
    shapes = {"x": (1, 3, 8, 8), "n": (1, 4, 8, 8)}
    parts = [
        write(graph(head, {"x": shapes["x"]}, ["m"], conv), tmp_path, "head.onnx"),
        write(graph(tail, {"n": shapes["n"]}, ["y"], dense), tmp_path, "tail.onnx"),
    ]
    nodes = []
    for part, (read, made) in zip(parts, (("a", "b"), ("c", "e")), strict=True):
        node = onnx.load(_compile(part, part.with_suffix(".adrenoc"))).graph.node[0]
        node.input[:], node.output[:] = [read], [made]
        nodes.append(node)
    between = helper.make_node("Mish", ["b"], ["c"])
    float32 = onnx.TensorProto.FLOAT
    whole = helper.make_model(
        helper.make_graph(
            [nodes[0], between, nodes[1]],
            "whole",
            [helper.make_tensor_value_info("a", float32, shapes["x"])],
            [helper.make_tensor_value_info("e", float32, (1, 5))],
            value_info=[helper.make_tensor_value_info("b", float32, shapes["n"])],
        ),
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)],
    )
    onnx.save(whole, tmp_path / "whole.onnx")
    x = rng.standard_normal(shapes["x"]).astype("float32")
    made = deed("run", tmp_path / "whole.onnx", [x], 1)["outputs"][0]
    m = _reference(parts[0], [x])[0]
    n = m * np.tanh(np.log1p(np.exp(m)))
    expected = _reference(parts[1], [n.astype("float32")])[0]
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def test_a_range_of_shapes(deed, tmp_path):
    weights = {"d": np.random.default_rng(3).standard_normal((6, 5)).astype("float32")}
    nodes = "y = MatMul(x, d) turned = Transpose <perm = [1, 0]>(y)"
    model = write(graph(nodes, {"x": ("n", 6)}, ["y", "turned"], weights), tmp_path, "rows.onnx")
    context = _compile(model, tmp_path / "rows.adrenoc", "--shape", "x:1|4,6")
    for rows in (4, 1, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 6)).astype("float32")
        told = deed("run", context, [x], 2)
        assert told["inputs"] == [["x_0", 6]]
        for made, expected in zip(told["outputs"], _reference(model, [x]), strict=True):
            np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
    said = deed("run", context, [np.zeros((5, 6), "float32")])["error"]
    assert "adrenoc: no bucket takes 5x6; the bundle has 1x6, 4x6" in said


def test_threads_share_a_session(two, case, deed):
    assert deed("threads", two, list(case.arrays.values()))["wrong"] == []


def test_a_deadline_and_a_dynamic_option_end_runs(long_chain, deed, work):
    context = _compile(work / "chain.onnx", work / "ort-long.adrenoc")
    x = np.ones(long_chain.manifest.inputs[0].shape, "float32")
    told = deed("ends", context, [x], cancel_within_ms="0.5")
    assert "adrenoc: the deadline of the run has passed" in told["late"]
    assert "adrenoc: the call was cancelled" in told["cancelled"]
    assert 'adrenoc.deadline_ms is "soon", expected 0 or more milliseconds' in told["odd"]
    assert told["right"] is True


def test_a_session_outlives_the_registration(two, case, deed):
    assert deed("unregister", two, list(case.arrays.values()))["right"] is True


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"opencl_library": "/none/libOpenCL.so"}, "No usable OpenCL library"),
        ({"device": "none such"}, 'no OpenCL device "none such"'),
        ({"device": "cpu"}, "has OpenCL kernels and no code for the CPU"),
        ({"speed": "high"}, 'there is no option "speed=high", expected KEY=VALUE with one of'),
        ({"cancel_within_ms": "soon"}, 'cancel_within_ms is "soon", expected 0 or more'),
        ({"ep__context_enable": "1"}, "adrenoc compile --onnxruntime writes such a model"),
    ],
)
def test_options_that_are_refused(options, said, two, case, deed):
    assert said in deed("run", two, list(case.arrays.values()), **options)["error"]


def test_bundles_that_are_refused(two, case, deed, tmp_path):
    inputs = list(case.arrays.values())
    model = tmp_path / two.name
    shutil.copy(two, model)
    bundle = tmp_path / "two.adrenoc"
    assert f"{bundle}" in deed("run", model, inputs)["error"]
    shutil.copytree(two.with_name("two.adrenoc"), bundle)
    flip_bits(bundle / "params.safetensors", -1)
    said = deed("run", model, inputs)["error"]
    assert "adrenoc: params.safetensors is not what was compiled (its SHA-256 differs)" in said
    # Another model's bundle under the same name, by its tensors.
    shutil.rmtree(bundle)
    other = write(
        graph([helper.make_node("Relu", ["q"], ["r"])], {"q": (1, 4)}, ["r"], {}),
        tmp_path,
        "other.onnx",
    )
    _compile(other, bundle)
    shutil.copy(two, model)
    assert "the node has 2 inputs, the bundle has 1" in deed("run", model, inputs)["error"]
    # A bundle inside of the node.
    node = onnx.load(two)
    next(one for one in node.graph.node[0].attribute if one.name == "embed_mode").i = 1
    onnx.save(node, model)
    assert "embed_mode 1, expected 0" in deed("run", model, inputs)["error"]


def test_the_model_itself_by_its_digest(two, deed, work, case):
    """The bits are those of the bundle; the first of the two that are named is another model's."""
    relu = graph([helper.make_node("Relu", ["q"], ["r"])], {"q": (1, 4)}, ["r"], {})
    other = _compile(write(relu, work, "q.onnx"), work / "q.adrenoc")
    bundles = f"{other.with_name('q.adrenoc')};{two.with_name('two.adrenoc')}"
    inputs = list(case.arrays.values())
    told = deed("run", work / "two.onnx", inputs, len(case.outputs), bundles=bundles)
    for made, wanted in zip(told["outputs"], case.outputs.values(), strict=True):
        np.testing.assert_array_equal(made, wanted)
    assert "q.adrenoc is not used: it was compiled from another file" in told["log"]


@pytest.mark.parametrize("wrong", ["none is named", "another file", "no device", "no such bundle"])
def test_other_models_are_left_to_onnxruntime(wrong, two, deed, work, case, tmp_path):
    """A warning where a bundle was named, and the numbers of onnxruntime's own CPU."""
    bundle = str(two.with_name("two.adrenoc"))
    model = tmp_path / "two.onnx"
    shutil.copy(work / "two.onnx", model)
    options, said = {
        "none is named": ({}, ""),
        "another file": ({"bundles": bundle}, "it was compiled from another file"),
        "no device": ({"bundles": bundle, "device": "none such"}, 'no OpenCL device "none such"'),
        "no such bundle": ({"bundles": f"{bundle}.not"}, "is not used: "),
    }[wrong]
    if wrong == "another file":  # the same names and shapes, and other numbers
        changed = onnx.load(model)
        weights = changed.graph.initializer[0]
        array = onnx.numpy_helper.to_array(weights) * np.float32(2)
        weights.CopyFrom(onnx.numpy_helper.from_array(array, weights.name))
        onnx.save(changed, model)
    inputs = list(case.arrays.values())
    told = deed("run", model, inputs, len(case.outputs), **options)
    for made, wanted in zip(told["outputs"], _reference(model, inputs), strict=True):
        np.testing.assert_array_equal(made, wanted)
    assert said in told["log"]


def test_states_are_refused_before_the_work(tmp_path):
    model = write_stepper(tmp_path, (1, 4))
    words = ["compile", str(model), "--device", "host", "--state", "h=hn", "--onnxruntime"]
    assert "--onnxruntime keeps no states: --state none" in refuse(
        2, *words, "-o", tmp_path / "s.adrenoc"
    )


SHAPES = {
    "grouped": DecoderShape(),
    "slides": DecoderShape(slides=True, window=6, alternating=True),
    "recurrent": DecoderShape(conv_taps=3, positions=True),
}
PROMPT = [3, 5, 7, 11, 2, 9, 8]


@pytest.mark.parametrize(
    "name",
    ["grouped", *(pytest.param(name, marks=pytest.mark.nightly) for name in list(SHAPES)[1:])],
)
def test_a_decoder_keeps_its_caches(name, deed, inside, runner, tmp_path):
    """The tokens are the runner's, and onnxruntime's from the file; caches are no tensors."""
    model = write_decoder(tmp_path, SHAPES[name])
    context = _compile(model, tmp_path / "d.adrenoc", "--prefill", "4")
    graph = onnx.load(context).graph
    assert [one.name for one in graph.input] == ["input_ids", "attention_mask"]
    told = deed("generate", context, [np.array(PROMPT)])
    assert "error" not in told
    made = told["tokens"]
    words = ("--max-tokens", "20", "--end", 10**6, "--prompt", ",".join(map(str, PROMPT)))
    said = runner(tmp_path / "d.adrenoc", *words, of=inside).out.splitlines()[0]
    assert made == [int(token) for token in said.split()]
    row: list[np.ndarray] = [np.zeros(SHAPES[name].vocabulary)] * len(made)
    assert check_tokens(model, PROMPT, made, row, tolerance=1.0).equal == len(made) == 20
    assert told["again"] == made[4:9]
    assert (told["padded"], told["shape"]) == (made[0], [1, 1, SHAPES[name].vocabulary])
    assert told["after"] == made[:3]
    refused = told["refused"]
    assert "adrenoc: the tokens come after 9 others, of which the context holds 7" in refused["gap"]
    assert "attention_mask hides tokens that others follow" in refused["hidden"]
    assert "attention_mask shows 1 tokens, expected at least the 7" in refused["short"]
    assert "there is no token to go on from" in refused["none"]
    assert "the prompt has the token -5, expected 0 to 96" in refused["odd"]
    assert "Expected: 1" in refused["batch"]
    assert "the context is full: it has 64 rows" in refused["full"]


@pytest.mark.nightly
def test_a_decoder_reads_what_an_encoder_made(deed, tmp_path):
    shape = DecoderShape(kind="llama", layers=2, context=64, plain=14, packed=False)
    model = tmp_path / "decoder.onnx"
    onnx.save(make_cross_decoder(shape), model)
    context = _compile(model, tmp_path / "d.adrenoc", "--context", "64", "--prefill", "4")
    beside = onnx.load(context).graph.input[2:]
    rng = np.random.default_rng(6)
    arrays = {
        one.name: rng.standard_normal(
            [extent.dim_value for extent in one.type.tensor_type.shape.dim]
        ).astype("float32")
        for one in beside
    }
    made = deed("generate", context, [np.array(PROMPT), *arrays.values()])["tokens"]
    row: list[np.ndarray] = [np.zeros(shape.vocabulary)] * len(made)
    found = check_tokens(model, PROMPT, made, row, tolerance=1.0, given=arrays)
    assert found.equal == len(made) == 20


def test_the_decoders_model_itself_is_left_to_onnxruntime(deed, tmp_path):
    model = write_decoder(tmp_path, SHAPES["grouped"])
    _compile(model, tmp_path / "d.adrenoc", "--prefill", "1")
    told = deed("open", model, [], bundles=str(tmp_path / "d.adrenoc"))
    assert told["inputs"][:2] == ["input_ids", "attention_mask"]
    assert "d.adrenoc is not used: it keeps states, which the model hands out" in told["log"]


def test_a_decoder_has_no_code_for_the_cpu(tmp_path):
    model = write_decoder(tmp_path, DecoderShape())
    command = ["compile", str(model), "--device", "host", "--fallback", "cpu"]
    assert "keeps no caches from token to token" in refuse(
        2, *command, "-o", tmp_path / "d.adrenoc"
    )


@pytest.mark.nightly
def test_nodes_of_onnx(inside, opencl, execute, tmp_path):
    """A sample of ONNX's node tests that pass: each a bundle that onnxruntime opens."""
    table = read_table()
    passing = [
        case
        for case in load_cases().values()
        if table[case.name] == "passed" and all(array.size for array in case.inputs.values())
    ]
    # Spread by the hash of their names, the same each time.
    passing.sort(key=lambda case: hashlib.sha256(case.name.encode()).hexdigest())
    sample = passing[:SAMPLE]
    for case in sample:
        folder = tmp_path / case.name
        folder.mkdir()
        (folder / case.file_name).write_bytes(case.model)
        words = ("--state", "none")
        context = _compile(folder / case.file_name, folder / "case.adrenoc", *words)
        names = [one.name for one in onnx.load(context).graph.input]
        np.savez(folder / "in.npz", *(case.inputs[name] for name in names))
    said = json.dumps({"opencl_library": opencl, "cache_folder": str(tmp_path / "cache")})
    folders = [tmp_path / case.name for case in sample]
    program = HERE / "ort_nodes.py"
    execute(sys.executable, program, inside.provider, said, *folders, PYTHONPATH="")
    wrong = {}
    for case in sample:
        folder = tmp_path / case.name
        if (error := folder / "error.txt").is_file():
            wrong[case.name] = error.read_text()
            continue
        names = [one.name for one in onnx.load(folder / "case_ctx.onnx").graph.output]
        with np.load(folder / "out.npz") as held:
            seen = dict(zip(names, (held[key] for key in held.files), strict=True))
        if difference := case.difference(seen):
            wrong[case.name] = difference
    assert wrong == {}


def test_tokens_are_those_of_the_cpu(inside, device, execute, tmp_path):
    """Also when a generator goes back, and when another one follows."""
    pytest.importorskip("onnxruntime_genai")
    shape = SHAPES["grouped"]
    model = write_decoder(tmp_path, shape)
    write_tokenizer(tmp_path / TOKENIZER, shape.vocabulary)
    _compile(model, tmp_path / "d.adrenoc", "--prefill", "4")
    command = [HERE / "genai_program.py", inside.provider, tmp_path, "d_ctx.onnx", 20, 3, 5, 7, 11]
    told = execute(sys.executable, *command).json()
    assert told["made"] == told["cpu"] == told["second"]
    assert len(told["made"]) == 20
    assert told["again"] == told["made"][4:]
