"""Files and folders as people have them: onnxruntime's own format, folders of exports, and formats
that hold no graph."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from adrenoc.base.errors import CustomDomainError, ModelFormatError, ModelNotFoundError, OptionError
from adrenoc.bundle.bundle import open_bundle
from adrenoc.cli.main import main
from adrenoc.importers.onnx.load import read_ort
from tests.commands import succeed
from tests.models import graph, write

pytestmark = pytest.mark.usefixtures("device")

DRAW = np.random.default_rng(2)


def small(gain: float = 1.0) -> onnx.ModelProto:
    """Weights, attributes of several kinds, an open batch, and an If with branches of their own."""
    weights = (DRAW.standard_normal((4, 3, 3, 3)) * gain).astype(np.float32)
    sides = [
        helper.make_graph(
            [helper.make_node("Mul", ["t", f"by{by}"], [f"s{by}"])],
            f"b{by}",
            [],
            [helper.make_tensor_value_info(f"s{by}", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.float32([by]), f"by{by}")],
        )
        for by in (2, 3)
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], auto_pad="NOTSET"),
        helper.make_node("LeakyRelu", ["c"], ["t"], alpha=0.25),
        helper.make_node("Greater", ["flag", "zero"], ["more"]),
        helper.make_node("If", ["more"], ["y"], then_branch=sides[0], else_branch=sides[1]),
    ]
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


def test_layouts_of_one_cpu_are_told_with_the_way_to_a_plain_file(tmp_path, capfd):
    weights = np.ones((32, 3, 3, 3), np.float32)
    conv = helper.make_node("Conv", ["x", "w"], ["y"])
    model = graph([conv], {"x": (1, 3, 8, 8)}, ["y"], {"w": weights})
    written = read_ort((path := write_ort(tmp_path, model, level="ALL")).read_bytes(), path)
    if not any(node.domain == "com.microsoft.nchwc" for node in written.graph.node):
        pytest.skip("onnxruntime has no layouts of this CPU's own")
    assert main(["compile", str(path)]) == CustomDomainError.exit_code
    err = " ".join(capfd.readouterr().err.split())
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
def test_weights_without_a_graph(tmp_path, capfd, name, content, said):
    (tmp_path / name).write_bytes(content)
    assert main(["compile", str(tmp_path / name)]) == ModelFormatError.exit_code
    err = capfd.readouterr().err
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
def test_folders_that_leave_it_open(tmp_path, capfd, names, words, code, said):
    folder = write_folder(tmp_path / "hf", *names)
    assert main(["compile", str(folder), *words]) == code.exit_code
    assert said in capfd.readouterr().err


def test_numbers_are_of_folders(tmp_path, capfd):
    path = write(small(), tmp_path)
    assert main(["compile", str(path), "--dtype", "q4"]) == OptionError.exit_code
    assert "is no folder of models" in capfd.readouterr().err


def test_a_folder_of_a_pipeline(tmp_path, capfd):
    for name in ("unet", "text_encoder", "vae_decoder"):
        write_folder(tmp_path, "model.onnx", place=name)
    (tmp_path / "scheduler").mkdir()
    assert main(["compile", str(tmp_path)]) == ModelNotFoundError.exit_code
    said = capfd.readouterr().err
    assert "holds models in folders of their own: text_encoder, unet, vae_decoder;" in said
    assert f"adrenoc compile {tmp_path / 'text_encoder'}" in said
