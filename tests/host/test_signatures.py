"""TFLite files with several signatures, and with open axes: what is compiled is told of, and LiteRT
is called in the same way.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from adrenoc.base.errors import OptionError, ShapeError
from adrenoc.base.files.spill import LEAST_BYTES
from adrenoc.bundle.buckets import name_parts, open_signature, read_signatures
from adrenoc.bundle.bundle import PROOF, open_bundle
from adrenoc.check.reference import run_reference
from adrenoc.cli.main import main
from adrenoc.device.fit import compile_again
from tests.commands import ask, check_run, compile_here, refuse, succeed
from tests.models import graph, parse_nodes, write
from tests.tflite.build import ModelBuilder, T, constant
from tests.tflite.signature_models import write_shared

pytestmark = pytest.mark.usefixtures("device")


def write_scales(path: Path, scales: dict[str, float], shape: Sequence[int] = (2, 3)) -> Path:
    """A graph for each of the scales, which is also its signature, over a tensor of this shape, in
    which an extent of -1 is open."""
    builder = ModelBuilder()
    for name, scale in scales.items():
        graph = builder.graph(name)
        given = graph.add(T(data=np.ones([max(d, 1) for d in shape], np.float32)), f"{name}_x:0")
        factor = graph.add(T(is_constant=True, data=np.array([scale], np.float32)))
        (result,) = graph.op("MUL", [given, factor], [T(shape=tuple(shape))], "MulOptions")
        for index in (given, result):
            graph.tensors[index].shapeSignature = list(shape)
            graph.tensors[index].shape = [max(d, 1) for d in shape]
        graph.tensors[result].name = b"y"
        builder.sign(graph, {"x": given}, {"y": result})
    path.write_bytes(builder.write())
    return path


TWO = {"double": 2.0, "triple": 3.0}


def compile_host(model: Path, *words: object) -> tuple[Path, str]:
    """The bundle beside a model, and what is said of it."""
    bundle = model.with_suffix(".adrenoc")
    return bundle, succeed("compile", model, "--device", "host", "-o", bundle, *words).stdout


@pytest.mark.parametrize("key", TWO)
def test_a_signature_is_compiled(tmp_path, key):
    model = write_scales(tmp_path / "m.tflite", TWO)
    bundle, _ = compile_host(model, "--signature", key)
    manifest = open_bundle(bundle).manifest
    assert [spec.name for spec in manifest.inputs] == [f"{key}_x:0"]
    assert manifest.options.values["signature"] == key
    check_run(bundle, model)
    succeed("run", bundle, "--check-layers", model)
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(run_reference(model, {f"{key}_x:0": given})["y"], TWO[key] * given)


def test_the_first_is_told(tmp_path):
    model = write_scales(tmp_path / "m.tflite", TWO)
    line = (
        "assumed the first graph's signature, double: the file has others: 'triple'; "
        "--signature triple takes it"
    )
    bundle, said = compile_host(model)
    for text in (said, succeed("inspect", bundle).stdout, succeed("check", model).stdout):
        assert line in " ".join(text.split())


def test_of_one_signature_nothing_is_told(tmp_path):
    assert "assumed" not in compile_host(write_scales(tmp_path / "m.tflite", {"double": 2.0}))[1]


def test_an_unknown_signature(tmp_path):
    model = write_scales(tmp_path / "m.tflite", TWO)
    said = refuse(OptionError, "compile", model, "--signature", "tripel")
    assert "did you mean" in said
    assert "its signatures are 'double', 'triple'" in said


def test_an_open_batch_is_one_and_another_is_computed(tmp_path):
    model = write_scales(tmp_path / "m.tflite", {"f": 2.0}, (-1, 3))
    said = compile_host(model)[1]
    assert "a batch of 1, f_x:0: the file leaves it open; --shape f_x:0:N,3" in said
    bundle, _ = compile_host(model, "--shape", "f_x:0:5,3")
    check_run(bundle, model)
    assert open_bundle(bundle).manifest.outputs[0].shape == (5, 3)


def test_the_reference_is_resized_before_it_is_laid_out(tmp_path):
    """Of the extents in the file, ones, no window fits."""
    builder = ModelBuilder()
    graph = builder.graph()
    weights = np.random.default_rng(0).standard_normal((2, 3, 3, 1))
    x = graph.add(T(data=np.ones((1, 1, 1, 1), np.float32)), "x")
    held = [graph.add(constant(w, "float32")) for w in (weights, np.ones(2))]
    options = {"padding": 1, "strideH": 1, "strideW": 1}
    result = [T(shape=(1, 1, 1, 2))]
    graph.outputs = graph.op("CONV_2D", [x, *held], result, "Conv2DOptions", options)
    for index, channels in ((x, 1), (graph.outputs[0], 2)):
        graph.tensors[index].shapeSignature = [1, -1, -1, channels]
    path = tmp_path / "m.tflite"
    path.write_bytes(builder.write())
    bundle, _ = compile_host(path, "--shape", "x:1,8,9,1")
    check_run(bundle, path)
    assert open_bundle(bundle).manifest.outputs[0].shape == (1, 6, 7, 2)


@pytest.mark.parametrize(
    ("shape", "option"),
    [((-1, -1, -1, 3), "--shape f_x:0:1,224,224,3"), ((-1,), "--shape f_x:0:128")],
)
def test_other_open_axes_are_asked_for(tmp_path, shape, option):
    """A converter writes 1 for each, which no image and no sound has."""
    model = write_scales(tmp_path / "m.tflite", {"f": 2.0}, shape)
    assert f"add {option} (" in refuse(ShapeError, "compile", model)


@pytest.mark.parametrize("names", [["all"], ["wide", "tall"]])
def test_several_signatures_are_one_bundle(tmp_path, names):
    model = write_shared(tmp_path / "m.tflite")
    asked = [part for name in names for part in ("--signature", name)]
    bundle, said = compile_host(model, *asked)
    assert "assumed" not in said
    opened = open_bundle(bundle)
    assert read_signatures(opened) == ("wide", "tall")
    # What both read is there once, where it is packed alike.
    each = [{spec.name for spec in open_signature(opened, n).manifest.params} for n in TALL_WIDE]
    assert each[0] & each[1]
    told = ask("inspect", bundle)
    assert told["signatures"] == ["wide", "tall"]
    assert "tall_x:0" in succeed("inspect", bundle).stdout
    for name in (*TALL_WIDE, ""):
        ran = check_run(bundle, model, *(["--signature", name] if name else []))
        assert set(ran["outputs"]) == OUTPUTS[name or "wide"]
        notes = " ".join(ran["notes"])
        assert ("the signature 'wide' ran; --signature picks" in notes) == (not name)
    succeed("run", bundle, "--check-layers", model, "--signature", "tall")
    succeed("device", "warm", bundle, "--embed")
    assert [*name_parts(opened)] == ["signature tall, 1x64", "signature wide, 3x64"]
    succeed("view", bundle, "-o", tmp_path / "page.html")
    assert "signature tall, 1x64" in (tmp_path / "page.html").read_text()
    succeed("prove", bundle, model)
    trials = json.loads((bundle / PROOF).read_text())["trials"]
    assert [trial["bucket"] for trial in trials] == [0, 1]


def test_a_project_lists_several_signatures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compile_here(monkeypatch)
    write_shared(tmp_path / "m.tflite")
    listed = '[[model]]\nfile = "m.tflite"\nsignatures = {}\ndevices = ["host"]\nname = "{}"\n'
    asked = {"every": '["all"]', "both": '["wide", "tall"]', "one": '["tall"]'}
    text = "".join(listed.format(words, name) for name, words in asked.items())
    (tmp_path / "adrenoc.toml").write_text(text)
    assert main(["build", "--jobs", "1"]) == 0
    held = {name: read_signatures(open_bundle(Path("build", f"{name}.adrenoc"))) for name in asked}
    assert held == {"every": ("wide", "tall"), "both": ("wide", "tall"), "one": ()}
    assert main(["build", "--locked"]) == 0


@pytest.mark.parametrize("command", ["check", "check-accuracy"])
def test_a_signature_is_examined(tmp_path, command):
    model = write_scales(tmp_path / "m.tflite", TWO)
    words = [command, str(model), "--device", "host", "--signature"]
    succeed(*words, "triple")
    assert main([*words, "tripel"]) == OptionError.exit_code


def test_what_compiles_again_names_the_signature(tmp_path):
    bundle, _ = compile_host(write_scales(tmp_path / "m.tflite", TWO), "--signature", "triple")
    again = compile_again(open_bundle(bundle), "host")
    assert again == "adrenoc compile m.tflite --device host --signature triple"


TALL_WIDE = ("tall", "wide")
OUTPUTS = {"wide": {"wide_y0", "wide_y1"}, "tall": {"tall_y0"}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "signature=wide"), "'signature' is no setting here"),
        (("--accuracy", "1e-3"), "--accuracy is for one signature, and --signature names 2"),
        (("--device", "adreno:660,adreno:750"), "a list of devices is for one signature"),
        (("--signature", "none"), "--signature none: the file has no such signature"),
        (("--signature", "all"), "--signature all names every one: no other"),
        (("--shape", "tall_x:0:1..2,64"), "a range of shapes is for one signature"),
    ],
)
def test_what_does_not_go_with_several(tmp_path, capfd, words, said):
    model = write_shared(tmp_path / "m.tflite")
    both = ("--signature", "wide", "--signature", "tall")
    assert main(["compile", str(model), *both, *words]) != 0
    assert said in " ".join(capfd.readouterr().err.split())


def test_a_signature_that_a_bundle_lacks(tmp_path):
    bundle, _ = compile_host(write_scales(tmp_path / "m.tflite", TWO), "--signature", "triple")
    succeed("run", bundle, "--signature", "triple")
    assert "has no signature 'tripel' (did you mean" in refuse(
        OptionError, "run", bundle, "--signature", "tripel"
    )


DRAW = np.random.default_rng(8)


def write_rates(path: Path, *, fast: int = 16000) -> Path:
    """A filter of five taps for one rate, of three for others: the branches differ in shape."""

    def branch(taps: int, name: str) -> onnx.GraphProto:
        weights = DRAW.standard_normal((2, 1, taps)).astype(np.float32)
        nodes = parse_nodes(f"y{name} = Conv(x, w{name})")
        made = [helper.make_tensor_value_info(f"y{name}", TensorProto.FLOAT, None)]
        held = [numpy_helper.from_array(weights, f"w{name}")]
        return helper.make_graph(nodes, name, [], made, held)

    sides = {"then_branch": branch(5, "fast"), "else_branch": branch(3, "slow")}
    nodes = [
        *parse_nodes("is_fast = Equal(sr, rate)"),
        helper.make_node("If", ["is_fast"], ["t"], **sides),
        *parse_nodes("y = Mul(t, gain)"),
    ]
    inputs = {"x": ("batch", 1, 12), "sr": (), "gain": (1,)}
    whole = {"sr": TensorProto.INT64}
    made = graph(nodes, inputs, ["y"], {"rate": np.array(fast, np.int64)}, dtypes=whole)
    return write(made, path.parent, path.name)


@pytest.mark.parametrize(("rate", "length"), [(16000, 8), (8000, 10)])
def test_a_setting_decides_a_branch(tmp_path, rate, length):
    model = write_rates(tmp_path / "m.onnx")
    bundle, _ = compile_host(model, "--fix", f"sr={rate}")
    check_run(bundle, model)
    manifest = open_bundle(bundle).manifest
    inputs = [(spec.name, spec.shape) for spec in manifest.inputs]
    assert inputs == [("x", (1, 1, 12)), ("gain", (1,))]
    assert manifest.outputs[0].shape == (1, 2, length)
    assert manifest.options.values["fixed"] == [["sr", str(rate)]]
    decided = [d for d in open_bundle(bundle).decisions() if d["subject"] == "sr"]
    assert decided[0]["taken"] == f"a constant of {rate}"


def test_the_numbers_are_those_of_the_value(tmp_path):
    """A comparison feeds the reference the same value, and another value is another result."""
    model = write_rates(tmp_path / "m.onnx")
    words = "--fix", "sr=16000", "--fix", "gain=0.25"
    bundle, _ = compile_host(model, *words, "--preset", "fp32")
    check_run(bundle, model)
    succeed("run", bundle, "--check-layers", model)


def test_an_if_on_an_input_names_the_option(tmp_path, capfd):
    model = write_rates(tmp_path / "m.onnx")
    assert main(["compile", str(model)]) != 0
    assert "--fix sr=16000 decides it" in capfd.readouterr().err


def test_an_if_on_what_weights_make_is_no_setting(tmp_path):
    """Large weights lie apart from the file that is read; what many numbers decide is no option."""

    nodes = """y = MatMul(x, w) most = ReduceMax <keepdims = 0>(y) is_large = Greater(most, zero)
               t = If <then_branch = b () => (float[] z) { z = Sin(y) },
                       else_branch = b () => (float[] z) { z = NonZero(y) }>(is_large)"""
    weights = DRAW.standard_normal((256, 256)).astype(np.float32)
    assert weights.nbytes > LEAST_BYTES
    held = {"w": weights, "zero": np.float32(0)}
    write(graph(nodes, {"x": ("batch", 256)}, ["t"], held), tmp_path, "m.onnx")
    assert "--fix" not in refuse(ShapeError, "compile", tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fix", "rate=1"), "did you mean"),
        (("--fix", "sr=fast"), "input 'sr' is int64; expected a whole number"),
        (("--fix", "sr=1.5"), "input 'sr' is int64; expected a whole number"),
        (("--fix", "sr=99999999999999999999"), "input 'sr' is int64; expected a whole number"),
        (("--fix", "gain=1,2"), "has 2 values"),
        (("--fix", "sr=1", "--fix", "sr=2"), "twice"),
        (("--fix", "sr"), "expected NAME=VALUE"),
    ],
)
def test_what_is_no_setting(tmp_path, words, said):
    model = write_rates(tmp_path / "m.onnx")
    if said == "did you mean":
        said = "--fix names the input 'rate'"
    assert said in refuse(OptionError, "compile", model, *words)


def test_a_build_fixes_inputs(tmp_path, monkeypatch):
    compile_here(monkeypatch)
    write_rates(tmp_path / "m.onnx")
    (tmp_path / "adrenoc.toml").write_text(
        '[[model]]\nfile = "m.onnx"\ndevices = ["host"]\nfix = ["sr=8000"]\n'
    )
    succeed("build", tmp_path / "adrenoc.toml")
    manifest = open_bundle(tmp_path / "build" / "m.adrenoc").manifest
    assert manifest.outputs[0].shape == (1, 2, 10)
