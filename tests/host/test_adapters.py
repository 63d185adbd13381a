"""LoRA adapters: files of onnxruntime are inputs of a decoder, and swapped without compiling."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from adrenoc.base.errors import InputError
from adrenoc.cli.main import main
from tests.host.decoder_bundles import DecoderShape, write_decoder

SHAPE = DecoderShape(layers=1, context=64)
RANK = 4
LEFT, RIGHT = (f"model.layers.0.attn.o_proj.lora_{side}.weight" for side in "AB")
PRODUCT, NEXT = "/model/layers.0/attn/o_proj/out", "/model/layers.0/post_attention_layernorm/out"


def write_adapted(folder: Path) -> Path:
    """A decoder one of whose products adds what an adapter makes, as Olive's exports have it."""
    path = write_decoder(folder, SHAPE)
    model = onnx.load(path)
    nodes = {node.name: node for node in model.graph.node}
    source, width = nodes[PRODUCT].input[0], SHAPE.hidden
    nodes[NEXT].input[1] = "adapted"
    at = list(model.graph.node).index(nodes[NEXT])
    made = [
        helper.make_node("MatMul", [source, LEFT], ["narrow"]),
        helper.make_node("MatMul", ["narrow", RIGHT], ["delta"]),
        helper.make_node("Add", [nodes[PRODUCT].output[0], "delta"], ["adapted"]),
    ]
    for number, node in enumerate(made):
        model.graph.node.insert(at + number, node)
    wide = next(a.i for a in nodes[PRODUCT].attribute if a.name == "K")
    for name, shape in ((LEFT, (wide, RANK)), (RIGHT, (RANK, width))):
        model.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    onnx.save(model, path)
    return path


def write_adapter(path: Path, model: Path, seed: int) -> Path:
    """An adapter for it, by onnxruntime itself."""
    draw = np.random.default_rng(seed)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim]
              for i in onnx.load(model).graph.input}  # fmt: skip
    # onnxruntime reads their memory when it writes the file.
    arrays = {
        name: (0.3 * draw.standard_normal(shapes[name])).astype(np.float32)
        for name in (LEFT, RIGHT)
    }
    held = {n: onnxruntime.OrtValue.ortvalue_from_numpy(array) for n, array in arrays.items()}
    file = onnxruntime.AdapterFormat()
    file.set_adapter_version(1)
    file.set_model_version(1)
    file.set_parameters(held)
    file.export_adapter(str(path))
    return path


@pytest.fixture(scope="module")
def adapted(device: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The model, and its bundle."""
    folder = tmp_path_factory.mktemp("adapted")
    model, bundle = write_adapted(folder), folder / "adapted.adrenoc"
    words = ["compile", str(model), "--device", "host", "--preset", "fp32", "-o", str(bundle)]
    assert main([*words, "--prefill", "4", "--no-cache"]) == 0
    return model, bundle


def test_adapters_are_swapped_without_compiling(adapted, tmp_path, capsys):
    model, bundle = adapted
    capsys.readouterr()
    made = []
    for seed in (1, 2):
        adapter = write_adapter(tmp_path / f"{seed}.onnx_adapter", model, seed)
        words = ["run", str(bundle), "--prompt-ids", "3,5,7,11", "--max-tokens", "12", "--json"]
        assert main([*words, "--input", str(adapter), "--check", str(model)]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["check"]["equal"] == len(said["tokens"]) > 1
        made.append(said["tokens"])
    assert made[0] != made[1]


def test_what_is_no_adapter_is_refused_in_a_sentence(adapted, tmp_path, capsys):
    damaged = tmp_path / "damaged.onnx_adapter"
    damaged.write_bytes(b"no flatbuffer of any kind")
    words = ["run", str(adapted[1]), "--prompt-ids", "3,5", "--input"]
    assert main([*words, str(damaged)]) == InputError.exit_code
    assert "is no adapter" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "missing.onnx_adapter")]) == InputError.exit_code
    capsys.readouterr()
    assert main(words[:-1]) == InputError.exit_code
    assert LEFT in capsys.readouterr().err
