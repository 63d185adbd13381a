"""A decoder that looks at what an encoder has made: both from the command line."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from adrenoc.check.generation import check_tokens
from adrenoc.check.reference import run_reference
from adrenoc.cli.main import cli
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


def invoke(*words: str):
    return CliRunner().invoke(cli, list(words))


def compile_model(folder: Path, name: str, model: onnx.ModelProto, *words: str) -> str:
    path, bundle = folder / f"{name}.onnx", str(folder / f"{name}.adrenoc")
    onnx.save(model, path)
    done = invoke(
        "compile", str(path), "--device", "host", "--preset", "fp32", "-o", bundle, *words
    )
    assert done.exit_code == 0, done.output + str(done.exception)
    return bundle


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
    run = ["run", str(folder / "decoder.adrenoc"), "--prompt-ids", "3,5,7,2,9,1"]
    files = ["--input", f"input_features={folder / 'features.npy'}"]
    done = invoke(
        *[*run, "--encoder", str(folder / "encoder.adrenoc"), *files, "--max-tokens", "20"],
        *["--check", str(folder / "decoder.onnx"), "--json"],
    )
    assert done.exit_code == 0, done.output + str(done.exception)
    said = json.loads(done.output)
    assert said["check"]["equal"] == 20
    assert said["check"]["max_error"] < 1e-5
    # The same from the reference of both: what the encoder gives is handed on as it is.
    features = np.load(folder / "features.npy")
    made = run_reference(folder / "encoder.onnx", {"input_features": features})
    given = {name.replace("present", "past_key_values"): value for name, value in made.items()}
    rows: list[np.ndarray] = [np.zeros(SHAPE.vocabulary)] * 20
    found = check_tokens(
        folder / "decoder.onnx",
        (3, 5, 7, 2, 9, 1),
        said["tokens"],
        rows,
        tolerance=1e-5,
        given=given,
    )
    assert found.equal == 20
    np.save(folder / "other.npy", -features)
    again = invoke(
        *[*run, "--encoder", str(folder / "encoder.adrenoc"), "--max-tokens", "20", "--json"],
        *["--input", f"input_features={folder / 'other.npy'}"],
    )
    assert json.loads(again.output)["tokens"] != said["tokens"]


def test_an_encoders_mask_is_its_decoders(folder):
    """As T5's and Marian's: both take which rows count, the one file is for both."""
    encoder = compile_model(folder, "masking", make_encoder(SHAPE, masked=True))
    decoder = compile_model(folder, "masked", make_masked_decoder(SHAPE), "--context", "40")
    run = ["run", decoder, "--prompt-ids", "3,5,7", "--max-tokens", "12", "--encoder", encoder]
    run += ["--input", f"input_features={folder / 'features.npy'}"]
    np.save(folder / "mask.npy", np.array([[1.0] * 7 + [0.0] * 5], np.float32))
    run += ["--input", f"attention_mask={folder / 'mask.npy'}"]
    done = invoke(*run, "--check", str(folder / "masked.onnx"), "--json")
    assert done.exit_code == 0, done.output + str(done.exception)
    check = json.loads(done.output)["check"]
    assert check["equal"] == 12 and check["max_error"] < 1e-5
    np.save(folder / "all.npy", np.ones((1, FRAMES), np.float32))
    other = invoke(*[word.replace("mask.npy", "all.npy") for word in run], "--json")
    assert json.loads(other.output)["tokens"] != json.loads(done.output)["tokens"]


def test_what_is_not_given_is_named(folder):
    run = ["run", str(folder / "decoder.adrenoc"), "--prompt-ids", "3"]
    encoder = ["--encoder", str(folder / "encoder.adrenoc")]
    features = str(folder / "features.npy")
    for words, message in (
        ([], "also takes past_key_values.0.encoder.key, past_key_values.0.encoder.value"),
        (encoder, "also takes input_features"),
        ([*encoder, "--input", f"audio={features}"], "also takes input_features"),
        (
            [*encoder, "--input", f"input_features={features}", "--input", f"x={features}"],
            "--input x=",
        ),
        (["--input", f"past_key_values.0.encoder.key={features}"], "features.npy"),
    ):
        done = invoke(*run, *words)
        assert done.exit_code != 0
        assert message in str(done.exception), done.exception
    alone = invoke("run", str(folder / "decoder.adrenoc"), *encoder)
    assert "--encoder is for --prompt" in alone.output


def test_a_first_call_makes_keys_of_hidden_states(folder):
    hidden = compile_model(folder, "hidden", make_encoder(SHAPE, gives_keys=False))
    first = compile_model(folder, "first", make_first_call(SHAPE))
    done = invoke(
        *["run", str(folder / "decoder.adrenoc"), "--prompt-ids", "3,5,7", "--max-tokens", "9"],
        *["--encoder", hidden, "--encoder", first, "--input", str(folder / "features.npy")],
        *["--check", str(folder / "decoder.onnx"), "--json"],
    )
    assert done.exit_code == 0, done.output + str(done.exception)
    assert json.loads(done.output)["check"]["equal"] == 9
