"""A decoder beside the same one with more bits: which weights are off, and what mends them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from adrenoc.base.errors import CheckFailedError, InputError
from adrenoc.cli.main import main
from adrenoc.importers.onnx.session import open_session
from tests.commands import invoke
from tests.host.decoder_bundles import DecoderShape, write_decoder

TOKENS = (3, 5, 7, 9, 2, 1, 44, 13)
SPOILT = "/model/layers.1/mlp/down_proj/s"
SHAPE = {"context": 24, "bits": 8}


def write(folder: Path, **more) -> Path:
    folder.mkdir()
    return write_decoder(folder, DecoderShape(**{**SHAPE, **more}))


def spoil(model: Path, factor: float = 1.25) -> str:
    """Scale the weights of one product; the tensor that it makes."""
    proto = onnx.load(model)
    tensor = next(one for one in proto.graph.initializer if one.name == SPOILT)
    value = (numpy_helper.to_array(tensor) * factor).astype(np.float32)
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    onnx.save(proto, model)
    return next(str(node.output[0]) for node in proto.graph.node if SPOILT in node.input)


def compare(model: Path, source: Path, *more) -> tuple[int, dict[str, Any]]:
    told = invoke("check-accuracy", model, "--source", source, "--tokens", 8, "--json", *more)
    return told.exit_code, json.loads(told.output)


def logits_of(model: Path) -> np.ndarray:
    """By onnxruntime, of all tokens at once."""
    session = open_session(model)
    feeds: dict[str, np.ndarray] = {
        "input_ids": np.array([TOKENS], np.int64),
        "attention_mask": np.ones((1, len(TOKENS)), np.int64),
    }
    for port in session.get_inputs():
        if port.name.startswith("past"):
            dtype = np.float16 if "float16" in port.type else np.float32
            feeds[port.name] = np.zeros((1, port.shape[1], 0, port.shape[3]), dtype)
    return np.asarray(session.run(["logits"], feeds)[0]).astype(np.float32)


def test_the_one_product_that_is_off_is_found_and_taken(device, tmp_path):
    model, source = write(tmp_path / "shipped"), write(tmp_path / "source")
    name, mended = spoil(model), model.with_name("mended.onnx")
    code, said = compare(model, source, "--mended", mended, "--tolerance", 1e-4)
    assert code == 0
    errors = {product["name"]: product["error"] for product in said["products"]}
    assert errors.pop(name) == pytest.approx(0.25, rel=1e-4)
    assert max(errors.values()) < 1e-6
    assert [p["layer"] for p in said["products"] if p["name"] == name] == ["1"]
    assert said["score"]["divergence"] > 1e-4 >= said["mended"]["score"]["divergence"]
    assert said["mended"]["taken"] == [name]
    np.testing.assert_array_equal(logits_of(mended), logits_of(source))
    bundle = tmp_path / "mended.adrenoc"
    made = invoke("compile", mended, "--device", "host", "--no-cache", "--prefill", 4, "-o", bundle)
    assert made.exit_code == 0, made.output
    check = ("--prompt-ids", "3,5,7,9", "--max-tokens", 4, "--check", source)
    assert invoke("run", bundle, *check).exit_code == 0


@pytest.mark.parametrize(
    "more",
    [
        {"bits": 0},
        {"bits": 0, "half": True},
        {"bits": 8, "half": True},
        {"bits": 4, "qdq": True, "block": 16},
        {"bits": 8, "zeros": True},
    ],
    ids=["floats", "halves", "scales in halves", "opened by a node", "with zero points"],
)
def test_sources_of_other_forms_mend_four_bits(tmp_path, more):
    model = write(tmp_path / "shipped", bits=4)
    source = write(tmp_path / "source", **more)
    mended = model.with_name("mended.onnx")
    code, said = compare(model, source, "--mended", mended, "--tolerance", 0.02)
    assert code == 0
    assert said["apart"] == []
    assert said["score"]["divergence"] > 0.02
    assert 0 < len(said["mended"]["taken"]) < len(said["products"])
    before, after = said["mended"]["bytes"]
    assert before < after
    wanted = logits_of(source)
    assert np.ptp(logits_of(mended) - wanted) < 0.5 * np.ptp(logits_of(model) - wanted)


def test_what_is_near_is_not_mended(tmp_path):
    model, source = write(tmp_path / "shipped"), write(tmp_path / "source", bits=0)
    mended = model.with_name("mended.onnx")
    told = invoke("check-accuracy", model, "--source", source, "--tokens", 8, "--mended", mended)
    assert told.exit_code == 0, told.output
    assert "is near the source" in told.output
    assert not mended.exists()


def test_what_weights_do_not_explain_is_told(tmp_path, capsys):
    """A norm's gains are no weights of a product."""
    model, source = write(tmp_path / "shipped"), write(tmp_path / "source")
    proto = onnx.load(model)
    gains = next(one for one in proto.graph.initializer if "final_norm" in one.name)
    value = numpy_helper.to_array(gains) * np.linspace(0.2, 2, gains.dims[0], dtype=np.float32)
    gains.CopyFrom(numpy_helper.from_array(value.astype(np.float32), gains.name))
    onnx.save(proto, model)
    words = ("--source", source, "--tokens", 8, "--mended", tmp_path / "mended.onnx")
    code = main([str(word) for word in ("check-accuracy", model, *words)])
    assert code == CheckFailedError.exit_code
    assert "what else differs is no weight" in " ".join(capsys.readouterr().out.split())


def test_what_is_no_source_is_refused(tmp_path):
    model = write(tmp_path / "shipped")
    told = invoke("check-accuracy", model, "--mended", tmp_path / "mended.onnx")
    assert "--mended is for --source" in told.output
    other = write(tmp_path / "other", vocabulary=50)
    with pytest.raises(InputError, match=r"knows 97 tokens and .* 50"):
        invoke("check-accuracy", model, "--source", other, "--tokens", 8)
    plain = tmp_path / "plain.onnx"
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    ends = [[value(name, 1, [1, 4])] for name in "xy"]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", *ends)), plain)
    with pytest.raises(InputError, match="is no decoder in ONNX"):
        invoke("check-accuracy", model, "--source", plain)
