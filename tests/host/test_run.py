"""`run` on a device of this machine, of bundles that are made of files as people have them."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import helper
from tvm import relax

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import (
    BundleError,
    CheckFailedError,
    CustomDomainError,
    DeviceError,
    InputError,
    ModelFormatError,
    ModelNotFoundError,
    OptionError,
)
from adrenoc.bundle.bundle import LIBRARY, Bundle, fill_bundle, open_bundle
from adrenoc.bundle.manifest import (
    MemoryPlan,
    ModelInfo,
    OptionsInfo,
    ParamSpec,
    Statistics,
    TargetInfo,
    TensorSpec,
)
from adrenoc.cli.main import main
from adrenoc.device.place import list_devices, pick_device
from adrenoc.device.run import run_bundle
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx.load import read_ort
from adrenoc.native.android.link import find_linker, link_library
from adrenoc.target.target import load_target
from tests.commands import ask, refuse, succeed
from tests.models import graph, write

pytestmark = pytest.mark.usefixtures("device")

SHAPE = (1, 4, 8, 8)
WEIGHT = np.random.default_rng(5).standard_normal(SHAPE).astype("float32")


class Compiled:
    """relu(image + p0), by TVM's own pipeline for OpenCL buffers."""

    params = {"p0": WEIGHT}  # noqa: RUF012
    param_specs = (ParamSpec(name="p0", shape=SHAPE, dtype="float32"),)
    inputs = (TensorSpec(name="image", shape=SHAPE, dtype="float32"),)
    outputs = (TensorSpec(name="scores", shape=SHAPE, dtype="float32"),)
    states = ()
    kernels = ()
    memory = MemoryPlan()
    statistics = Statistics()
    regions = ()
    launches = ()
    decisions = DecisionLog()


def _library():
    builder = relax.BlockBuilder()
    image, weight = (relax.Var(n, relax.TensorType(SHAPE, "float32")) for n in ("image", "p0"))
    with builder.function("main", [image, weight]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.nn.relu(relax.op.add(image, weight)))
        builder.emit_func_output(y)
    host = {"kind": "llvm", "mtriple": load_target("host").llvm_triple}
    return relax.build(builder.get(), tvm.target.Target({"kind": "opencl"}, host=host))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    if not list_devices():
        pytest.skip("no OpenCL device on this machine")
    root = tmp_path_factory.mktemp("run") / "tiny.adrenoc"
    root.mkdir()
    target = load_target("host")
    linker = find_linker(host=True)
    library = link_library(_library(), root / LIBRARY, triple=target.llvm_triple, linker=linker)
    types = {"storage_dtype": "float32", "compute_dtype": "float32"}
    about = {
        "name": "tiny",
        "model": ModelInfo(file="tiny.onnx", format="onnx", sha256="00" * 32),
        "target": TargetInfo(
            name="host", host=True, llvm_triple=target.llvm_triple, digest=target.digest()
        ),
        "options": OptionsInfo(preset="fp32", values=types, digest="00" * 32),
        "versions": {"linker": linker.version},
    }
    fill_bundle(root, Compiled(), library=library, manifest=about)
    return root


def _model(path: Path, weight: np.ndarray) -> Path:
    """The same as an ONNX file."""
    nodes = "sum = Add(image, w) scores = Relu(sum)"
    onnx.save(graph(nodes, {"image": SHAPE}, ["scores"], {"w": weight}, opset=13), path)
    return path


def test_computes_and_times(bundle):
    image = np.random.default_rng(6).standard_normal(SHAPE).astype("float32")
    result = run_bundle(open_bundle(bundle), inputs={"image": image}, repeat=3, profile=True)
    np.testing.assert_allclose(result.outputs["scores"], np.maximum(image + WEIGHT, 0), rtol=1e-6)
    times = result.times
    assert times.runs == 3
    assert 0 < times.p50_ms <= times.p90_ms <= times.p99_ms
    assert times.cold_ms == times.load_ms + times.build_ms + times.first_ms
    assert [kernel.calls for kernel in result.kernels] == [1]


def test_check_passes_and_fails_with_a_code(bundle, tmp_path, capsys):
    good = str(_model(tmp_path / "good.onnx", WEIGHT))
    bad = str(_model(tmp_path / "bad.onnx", WEIGHT * 1.1))
    assert "agrees with the reference" in succeed("run", bundle, "--check", good).stdout
    assert "the output `scores` disagrees" in refuse(
        CheckFailedError, "run", bundle, "--check", bad
    )
    assert main(["run", str(bundle), "--check", bad, "--tolerance", "0.5"]) == 0
    capsys.readouterr()
    command = ["run", str(bundle), "--check", bad, "--json", "--save", str(tmp_path / "out.npz")]
    assert main(command) == CheckFailedError.exit_code
    plain = json.loads(capsys.readouterr().out)
    assert not plain["check"]["passed"]
    assert plain["outputs"]["scores"]["shape"] == list(SHAPE)
    assert np.load(tmp_path / "out.npz")["scores"].shape == SHAPE


def test_check_says_where_the_bundle_is_of_another_file(bundle, tmp_path):
    own, other = (_model(tmp_path / f"{name}.onnx", WEIGHT * k) for name, k in (("a", 1), ("b", 2)))
    place = tmp_path / "b.adrenoc"
    shutil.copytree(bundle, place)
    plain = json.loads((place / "manifest.json").read_text())
    plain["model"]["sha256"] = find_model_files(own).sha256()
    (place / "manifest.json").write_text(json.dumps(plain))
    notes = []
    for model, tolerance in ((own, "1e-3"), (other, "9")):
        words = ["run", str(place), "--check", str(model), "--tolerance", tolerance]
        notes.append("was compiled from" in " ".join(succeed(*words).stdout.split()))
    assert notes == [False, True]
    said = ask(*words)["check"]["note"]
    assert said.startswith(f"{place} was compiled from tiny.onnx with SHA-256 ")
    assert said.split(";")[0] in refuse(BundleError, "run", place, "--check-layers", other)


@pytest.mark.parametrize("recording", ["best", "always", "kept", "off"])
def test_runs_are_repeated_in_each_way(bundle, recording):
    image = np.random.default_rng(2).standard_normal(SHAPE).astype("float32")
    ran = run_bundle(open_bundle(bundle), inputs={"image": image}, recording=recording, repeat=6)
    np.testing.assert_array_equal(ran.outputs["scores"], np.maximum(image + WEIGHT, 0))
    assert ran.notes == ()
    launching = ran.launching
    assert launching.launches >= 1
    assert launching.host_ms > 0
    assert (launching.mode == "the virtual machine") == (recording == "off")
    if recording == "kept":
        assert launching.api_calls == launching.launches


def test_what_is_said_of_launches(bundle, monkeypatch, capsys):
    monkeypatch.setenv("ADRENOC_RECORD", "off")
    assert main(["run", str(bundle), "--json"]) == 0
    monkeypatch.delenv("ADRENOC_RECORD")
    told = json.loads(capsys.readouterr().out)["launching"]
    assert told["mode"] == "the virtual machine"
    assert told["reason"] == "it was not asked for"
    assert told["api_calls"] > told["launches"]
    shown = " ".join(succeed("run", bundle).stdout.split())
    assert " OpenCL call" in shown
    assert " ms of the host a run" in shown


def test_inputs_must_fit(bundle):
    opened = open_bundle(bundle)
    image = np.zeros(SHAPE, "float32")
    for inputs, said in (
        ({}, "the input `image` is missing"),
        ({"image": image, "other": image}, "no input `other`"),
        ({"image": image[:, :3]}, "expected float32"),
        ({"image": image.astype("float16")}, "is float16"),
    ):
        with pytest.raises(InputError, match=said):
            run_bundle(opened, inputs=inputs)


def test_a_bundle_for_android_is_refused_before_it_is_loaded(bundle):
    opened = open_bundle(bundle)
    android = TargetInfo(
        name="adreno", host=False, llvm_triple="aarch64-linux-android", digest="00" * 32
    )
    values = opened.manifest.options.values | {"shapes": [["image", [*SHAPE]]]}
    options = replace(opened.manifest.options, values=values)
    other = replace(opened, manifest=replace(opened.manifest, target=android, options=options))
    with pytest.raises(BundleError, match="was compiled for adreno") as caught:
        run_bundle(other, inputs={"image": np.zeros(SHAPE, "float32")})
    shape = ",".join(map(str, SHAPE))
    assert caught.value.hint.endswith(f" --shape image:{shape}")


def test_a_bundle_whose_path_is_not_utf_8(bundle, tmp_path):
    """TVM's strings are UTF-8: the library cannot be opened, and is not damaged."""
    link = tmp_path / os.fsdecode(b"b\xff.adrenoc")
    link.symlink_to(bundle)
    with pytest.raises(OptionError, match="is not UTF-8") as caught:
        run_bundle(open_bundle(link), inputs={"image": np.zeros(SHAPE, "float32")})
    assert "compile" not in caught.value.hint


@pytest.mark.parametrize("fits", [True, False])
def test_a_bundle_that_is_replaced_while_it_is_read(bundle, tmp_path, monkeypatch, fits):
    """As by a compilation beside the run: the manifest of one, library and constants of another."""
    place = tmp_path / "b.adrenoc"
    shutil.copytree(bundle, place)
    walk = Bundle.walk_params

    def replaced(self: Bundle, specs):
        plain = json.loads((place / "manifest.json").read_text())
        plain["model"]["sha256"] = "11" * 32
        (place / "manifest.json").write_text(json.dumps(plain))
        if not fits:
            (place / "params.safetensors").write_bytes(b"")
        return walk(self, specs)

    monkeypatch.setattr(Bundle, "walk_params", replaced)
    with pytest.raises(BundleError, match="was replaced while it was read") as caught:
        run_bundle(open_bundle(place), inputs={"image": np.zeros(SHAPE, "float32")})
    assert caught.value.hint == "run it again"


def test_devices_by_number_and_name(bundle):
    number, facts = pick_device("")
    assert facts["images"]["supported"]
    assert pick_device(str(number))[1] == facts
    assert pick_device(facts["name"].upper())[1]["name"] == facts["name"]
    for wanted in ("99", "no such device"):
        with pytest.raises(DeviceError, match=f'no OpenCL device "{wanted}"; there is 0 = '):
            pick_device(wanted)


def test_doctor_finds_the_device(bundle):
    findings = {finding["subject"]: finding for finding in ask("doctor")}
    assert findings["OpenCL device 0"]["state"] == "ok"
    assert findings["TVM loads"]["state"] == "ok"
    assert all(finding["fix"] for finding in findings.values() if finding["state"] != "ok")


DRAW = np.random.default_rng(2)


def small(gain: float = 1.0) -> onnx.ModelProto:
    """Weights, attributes of several kinds, an open batch, and an If with branches of their own."""
    weights = (DRAW.standard_normal((4, 3, 3, 3)) * gain).astype(np.float32)
    two, three = (
        f"b{by} () => (float[] s{by}) <float[1] by{by} = {{{by}}}> {{ s{by} = Mul(t, by{by}) }}"
        for by in (2, 3)
    )
    nodes = f"""c = Conv <pads = [1, 1, 1, 1], auto_pad = "NOTSET">(x, w)
                t = LeakyRelu <alpha = 0.25>(c) more = Greater(flag, zero)
                y = If <then_branch = {two}, else_branch = {three}>(more)"""
    constants = {"w": weights, "zero": np.float32(0)}
    return graph(nodes, {"x": ("batch", 3, 8, 8), "flag": ()}, ["y"], constants)


def write_ort(
    folder: Path, model: onnx.ModelProto, name: str = "model.ort", level: str = "BASIC"
) -> Path:
    path = folder / name
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = getattr(levels, f"ORT_ENABLE_{level}")
    onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return path


def test_a_model_in_onnxruntimes_format(tmp_path):
    model, bundle = write_ort(tmp_path, small()), tmp_path / "b.adrenoc"
    for words in (
        ["compile", str(model), "--device", "host", "-o", str(bundle), "--shape", "x:2,3,8,8"],
        ["check", str(model)],
        ["run", str(bundle), "--check", str(model)],
        ["run", str(bundle), "--check-layers", str(model)],
    ):
        succeed(*words)
    assert open_bundle(bundle).manifest.model.format == "onnx"


def test_its_graph_is_that_of_the_file(tmp_path):
    source = small()
    path = write_ort(tmp_path, source)
    read = read_ort(path.read_bytes(), path)
    onnx.checker.check_model(read)
    x = DRAW.standard_normal((2, 3, 8, 8)).astype(np.float32)
    made = [
        onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        ).run(None, {"x": x, "flag": np.array(1, np.float32)})[0]
        for model in (source, read)
    ]
    assert np.allclose(*made, atol=1e-6)
    assert read.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_layouts_of_one_cpu_are_told_with_the_way_to_a_plain_file(tmp_path):
    weights = np.ones((32, 3, 3, 3), np.float32)
    conv = helper.make_node("Conv", ["x", "w"], ["y"])
    model = graph([conv], {"x": (1, 3, 8, 8)}, ["y"], {"w": weights})
    written = read_ort((path := write_ort(tmp_path, model, level="ALL")).read_bytes(), path)
    if not any(node.domain == "com.microsoft.nchwc" for node in written.graph.node):
        pytest.skip("onnxruntime has no layouts of this CPU's own")
    err = refuse(CustomDomainError, "compile", path)
    assert "onnxruntime optimised the file for one CPU" in err
    command = err.split("a plain .ort file of that: ")[1].split("MODEL.onnx")[0].split()
    command = [sys.executable, *command[1:], str(write(model, tmp_path, "plain.onnx"))]
    subprocess.run([*command, "--optimization_style", "Fixed"], check=True, capture_output=True)
    assert main(["check", str(tmp_path / "plain.ort")]) == 0


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_damaged_one_is_told(tmp_path, capfd, share):
    path = write_ort(tmp_path, small())
    content = bytearray(path.read_bytes())
    path.write_bytes(content[: int(len(content) * share)])
    assert main(["compile", str(path)]) == ModelFormatError.exit_code
    for at in DRAW.integers(8, len(content), 60):
        content[at] ^= 0xFF
    path.write_bytes(content)
    code = main(["check", str(path)])
    assert "Traceback" not in capfd.readouterr().err
    assert code != 10


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("m.gguf", b"GGUF\3\0\0\0" + bytes(64), "is GGUF: weights for llama.cpp"),
        ("m.safetensors", b"\x40\0\0\0\0\0\0\0{}" + bytes(64), "weights without a graph"),
    ],
)
def test_weights_without_a_graph(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    err = refuse(ModelFormatError, "compile", tmp_path / name)
    assert said in err
    assert "optimum-cli export onnx" in err


def write_folder(folder: Path, *names: str, place: str = "onnx") -> Path:
    (folder / place).mkdir(parents=True, exist_ok=True)
    for gain, name in enumerate(names, start=1):
        write(small(float(gain)), folder / place, name)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("names", "words", "chosen"),
    [
        (("model.onnx", "model_q4.onnx"), (), "model"),
        (("model.onnx", "model_q4.onnx"), ("--dtype", "q4"), "model_q4"),
        (("model_quantized.onnx", "model.onnx"), ("--dtype", "q8"), "model_quantized"),
        (("decoder_q8.onnx", "embed_tokens.onnx", "vision.onnx"), ("--dtype", "q8"), "decoder_q8"),
        (("model_fp16.onnx",), (), "model_fp16"),
        (("model.onnx", "encoder_model.onnx"), (), "model"),
        (("net.onnx", "net_int8.onnx"), (), "net"),
    ],
)
def test_a_folder_of_exports(tmp_path, names, words, chosen):
    said = ["check", str(write_folder(tmp_path / "hf", *names)), "--json", *words]
    assert json.loads(succeed(*said).stdout)["model"] == f"{chosen}.onnx"


@pytest.mark.parametrize(
    ("names", "words", "code", "said"),
    [
        (("model.onnx",), ("--dtype", "q4"), OptionError, "holds a model of fp32, and none of q4"),
        (("model_q4.onnx", "model_fp16.onnx"), (), OptionError, "none of fp32"),
        (("encoder.onnx", "decoder.onnx"), (), OptionError, "holds 2 models"),
        ((), (), ModelNotFoundError, "is a folder without a model"),
    ],
)
def test_folders_that_leave_it_open(tmp_path, names, words, code, said):
    folder = write_folder(tmp_path / "hf", *names)
    assert said in refuse(code, "compile", folder, *words)


def test_numbers_are_of_folders(tmp_path):
    path = write(small(), tmp_path)
    assert "is no folder of models" in refuse(OptionError, "compile", path, "--dtype", "q4")


def test_a_folder_of_a_pipeline(tmp_path):
    for name in ("unet", "text_encoder", "vae_decoder"):
        write_folder(tmp_path, "model.onnx", place=name)
    (tmp_path / "scheduler").mkdir()
    said = refuse(ModelNotFoundError, "compile", tmp_path)
    assert "holds models in folders of their own: text_encoder, unet, vae_decoder;" in said
    assert f"adrenoc compile {tmp_path / 'text_encoder'}" in said
