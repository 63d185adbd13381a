"""A decoder that looks at what an encoder has made: both from the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from adrenoc.check.generation import check_tokens
from adrenoc.check.reference import run_reference
from tests.commands import invoke, succeed
from tests.host.decoder_bundles import DecoderShape
from tests.host.encoder_decoders import (
    FEATURES,
    FRAMES,
    make_cross_decoder,
    make_encoder,
    make_first_call,
    make_masked_decoder,
)

SHAPE = DecoderShape(kind="llama", layers=1, context=40, plain=14, packed=False)


def compile_model(folder: Path, name: str, model: onnx.ModelProto, *words: str) -> Path:
    path, bundle = folder / f"{name}.onnx", folder / f"{name}.adrenoc"
    onnx.save(model, path)
    succeed("compile", path, "--device", "host", "--preset", "fp32", "-o", bundle, *words)
    return bundle


def run(bundle: Path, ids: str, count: int, *words: object) -> dict[str, Any]:
    asked = ("--prompt-ids", ids, "--max-tokens", count)
    return json.loads(succeed("run", bundle, *asked, *words, "--json").output)


@pytest.fixture(scope="module")
def folder(device, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("speech")
    compile_model(folder, "encoder", make_encoder(SHAPE))
    decoder = make_cross_decoder(SHAPE)
    compile_model(folder, "decoder", decoder, "--context", "40", "--prefill", "4")
    features = np.random.default_rng(1).normal(size=(1, FEATURES, FRAMES)).astype(np.float32)
    np.save(folder / "features.npy", features)
    return folder


def test_tokens_are_those_of_onnxruntime(folder):
    decoder = folder / "decoder.adrenoc"
    encoder = ("--encoder", folder / "encoder.adrenoc", "--input")
    given = f"input_features={folder / 'features.npy'}"
    words = (*encoder, given, "--check", folder / "decoder.onnx")
    said = run(decoder, "3,5,7,2,9,1", 20, *words)
    assert said["check"]["equal"] == 20
    assert said["check"]["max_error"] < 1e-5
    # The same from the reference of both: what the encoder gives is handed on as it is.
    features = np.load(folder / "features.npy")
    made = run_reference(folder / "encoder.onnx", {"input_features": features})
    given = {name.replace("present", "past_key_values"): value for name, value in made.items()}
    rows: list[np.ndarray] = [np.zeros(SHAPE.vocabulary)] * 20
    how = {"tolerance": 1e-5, "given": given}
    tokens = said["tokens"]
    assert (
        check_tokens(folder / "decoder.onnx", (3, 5, 7, 2, 9, 1), tokens, rows, **how).equal == 20
    )
    np.save(folder / "other.npy", -features)
    other = f"input_features={folder / 'other.npy'}"
    assert run(decoder, "3,5,7,2,9,1", 20, *encoder, other)["tokens"] != tokens


def test_an_encoders_mask_is_its_decoders(folder):
    """As T5's and Marian's: both take which rows count, the one file is for both."""
    encoder = compile_model(folder, "masking", make_encoder(SHAPE, masked=True))
    decoder = compile_model(folder, "masked", make_masked_decoder(SHAPE), "--context", "40")
    words = ["--encoder", encoder, "--input", f"input_features={folder / 'features.npy'}"]
    np.save(folder / "mask.npy", np.array([[1.0] * 7 + [0.0] * 5], np.float32))
    np.save(folder / "all.npy", np.ones((1, FRAMES), np.float32))
    made = []
    for name, more in (("mask", ["--check", folder / "masked.onnx"]), ("all", [])):
        mask = ["--input", f"attention_mask={folder / name}.npy"]
        made.append(run(decoder, "3,5,7", 12, *words, *mask, *more))
    assert made[0]["check"]["equal"] == 12 and made[0]["check"]["max_error"] < 1e-5
    assert made[0]["tokens"] != made[1]["tokens"]


def test_what_is_not_given_is_named(folder):
    bundle = folder / "decoder.adrenoc"
    encoder = ["--encoder", str(folder / "encoder.adrenoc")]
    features = str(folder / "features.npy")
    given = ["--input", f"input_features={features}"]
    for words, message in (
        ([], "also takes past_key_values.0.encoder.key, past_key_values.0.encoder.value"),
        (encoder, "also takes input_features"),
        ([*encoder, "--input", f"audio={features}"], "also takes input_features"),
        ([*encoder, *given, "--input", f"x={features}"], "--input x="),
        (["--input", f"past_key_values.0.encoder.key={features}"], "features.npy"),
    ):
        done = invoke("run", bundle, "--prompt-ids", "3", *words, catch=True)
        assert done.exit_code != 0
        assert message in str(done.exception), done.exception
    assert "--encoder is for --prompt" in invoke("run", bundle, *encoder, catch=True).output


def test_a_first_call_makes_keys_of_hidden_states(folder):
    hidden = compile_model(folder, "hidden", make_encoder(SHAPE, gives_keys=False))
    first = compile_model(folder, "first", make_first_call(SHAPE))
    words = ["--encoder", hidden, "--encoder", first, "--input", folder / "features.npy"]
    words += ["--check", folder / "decoder.onnx"]
    assert run(folder / "decoder.adrenoc", "3,5,7", 9, *words)["check"]["equal"] == 9
