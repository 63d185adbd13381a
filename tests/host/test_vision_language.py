"""Vision-language models in parts: text alone goes through the embedding and the decoder."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from model_zoo.decoder_shape import DecoderShape

from adrenoc.base.errors import ModelFormatError
from adrenoc.bundle.bundle import open_bundle
from adrenoc.cli.main import main
from adrenoc.importers.containers import find_embedding
from tests.commands import succeed
from tests.host.vision_models import ROWS, round_table, split_decoder, store_halves, write_parts

PROMPT = (3, 5, 7, 11, 2, 9, 44)
COUNT = 12
CASES = {
    "spelt out": DecoderShape(layers=1, context=32, plain=14, bits=0, kind="llama"),
    "a table of bytes": DecoderShape(layers=1, context=32, plain=14, bits=0, kind="llama"),
    "a table of halves": DecoderShape(layers=1, context=32),
    "an older embedding": DecoderShape(layers=1, context=32),
    "a table of blocks": DecoderShape(layers=1, context=32, embedding_bits=4),
    "short convolutions": DecoderShape(layers=2, context=32, conv_taps=3),
    "three positions": DecoderShape(layers=1, context=32, streams=True),
}
"""As SmolVLM and LLaVA have it, the same in int8, in two precisions, in q4, LFM2-VL, Qwen2-VL."""


def step_apart(
    folder: Path, prompt: tuple[int, ...], count: int, pictures: np.ndarray | None = None
) -> list[int]:
    """Greedy tokens of onnxruntime: one model after the other, each token by itself.

    Tokens below zero are rows of `pictures`, -1 the first.
    """
    embedding, decoder = (
        onnxruntime.InferenceSession(folder / "onnx" / f"{name}.onnx")
        for name in ("embed_tokens", "decoder_model_merged")
    )
    states: dict[str, np.ndarray] = {}
    for port in decoder.get_inputs():
        if port.name.startswith("past"):
            extents = [one if isinstance(one, int) else int(at == 0) for at, one in
                       enumerate(port.shape)]  # fmt: skip
            states[port.name] = np.zeros(extents, np.float32)
    names = [port.name for port in decoder.get_outputs()]
    takes = {port.name: port for port in decoder.get_inputs()}
    tokens, logits = list(prompt), np.zeros(0)
    while len(tokens) < len(prompt) + count:
        for at in range(len(tokens) - 1 if logits.size else 0, len(tokens)):
            (rows,) = embedding.run(None, {"input_ids": np.array([[max(tokens[at], 0)]])})
            if tokens[at] < 0 and pictures is not None:
                rows = pictures[None, -1 - tokens[at]][None]
            feeds = {ROWS: rows.astype(np.float32), **states}
            feeds["attention_mask"] = np.ones((1, at + 1), np.int64)
            if "position_ids" in takes:
                streams = takes["position_ids"].shape[:-2]
                feeds["position_ids"] = np.full((*streams, 1, 1), at, np.int64)
            made = dict(zip(names, decoder.run(names, feeds), strict=True))
            states = {name: made[_next_of(name, names)] for name in states}
            logits = made["logits"][0, -1]
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


def _next_of(name: str, names: list[str]) -> str:
    return next(
        new
        for old, present in (("past_key_values", "present"), ("past", "present"))
        if (new := name.replace(old, present, 1)) in names
    )


@pytest.mark.parametrize("case", CASES)
def test_text_alone_is_that_of_onnxruntime(device, tmp_path, case):
    shape, folder = CASES[case], tmp_path / "model"
    embedding, decoder = split_decoder(shape)
    if case == "a table of bytes":
        round_table(embedding)
    if case == "a table of halves":
        store_halves(embedding)
    if case == "an older embedding":
        embedding.opset_import[0].version = 13
    write_parts(folder, shape, embedding, decoder)
    bundle = tmp_path / "b.adrenoc"
    words = ["compile", folder, "--device", "host", "--preset", "fp32", "-o", bundle]
    made = json.loads(succeed(*words, "--prefill", 4, "--json").output)
    assert open_bundle(bundle).manifest.end_tokens == (shape.vocabulary - 1,)
    told = {one["subject"]: one["taken"] for one in made["decisions"]}
    assert told[ROWS] == "looked up by embed_tokens.onnx"
    assert told["context"] == f"{shape.context} rows"
    run = ["run", bundle, "--prompt-ids", ",".join(map(str, PROMPT)), "--max-tokens", COUNT]
    model = folder / "onnx" / "decoder_model_merged.onnx"
    said = json.loads(succeed(*run, "--check", model, "--json").output)
    assert said["check"]["equal"] == COUNT
    assert said["check"]["max_error"] < 1e-5
    assert said["tokens"] == step_apart(folder, PROMPT, COUNT)
    assert len(set(said["tokens"])) > 3  # logits that are flat would show nothing


def test_another_embedding_is_another_model(device, tmp_path):
    shape = DecoderShape(layers=1, context=32)
    parts = split_decoder(shape)
    write_parts(tmp_path / "a", shape, *parts)
    round_table(parts[0])
    write_parts(tmp_path / "b", shape, *parts)
    bundles = [tmp_path / f"{name}.adrenoc" for name in "ab"]
    for bundle in bundles:
        succeed("compile", bundle.with_suffix(""), "--device", "host", "-o", bundle)
    assert len({open_bundle(bundle).manifest.model.sha256 for bundle in bundles}) == 2


def test_an_embedding_that_takes_more_is_refused(tmp_path, capfd):
    shape = DecoderShape(layers=1, context=32)
    embedding, decoder = split_decoder(shape)
    more = embedding.graph.input.add()
    more.CopyFrom(embedding.graph.output[0])
    more.name = "image_features"
    write_parts(tmp_path / "a", shape, embedding, decoder)
    assert main(["compile", str(tmp_path / "a"), "--no-cache"]) == ModelFormatError.exit_code
    assert "takes 'input_ids', 'image_features'" in capfd.readouterr().err


def test_the_embedding_of_the_decoders_numbers_is_taken(tmp_path):
    for ending in ("", "_fp16", "_q4"):
        (tmp_path / f"embed_tokens{ending}.onnx").touch()
    found = {
        ending: find_embedding(tmp_path / f"decoder{ending}.onnx") for ending in ("_q4", "_q8")
    }
    names = ("embed_tokens_q4.onnx", "embed_tokens.onnx")
    assert found == dict(zip(("_q4", "_q8"), (tmp_path / n for n in names), strict=True))
    assert find_embedding(tmp_path / "embed_tokens_q4.onnx") is None
