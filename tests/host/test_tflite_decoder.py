"""A decoder in a TFLite file: its calls share caches in place, as LiteRT computes it."""

import json
from typing import Any

import numpy as np
import pytest
from model_zoo.containers import write_litertlm, write_task
from model_zoo.tflite_decoders import TFLiteDecoder, make_tflite_decoder

from adrenoc.check.generation import check_tokens
from adrenoc.device.generate import Decoder
from adrenoc.device.run import local_place
from tests.commands import succeed
from tests.host.decoder_bundles import generate_tokens, make_decoder_bundle, write_tokenizer

FORMS = {
    "plain": TFLiteDecoder(layers=1),
    "four bits in blocks": TFLiteDecoder(transposed=True, bits=4, block=32, lengths=(4, 16)),
    "capped": TFLiteDecoder(layers=1, mask_given=False, cap=20.0, composite=True, bits=8),
    "window": TFLiteDecoder(layers=1, mask_given=False, window=7, transposed=True, bits=4),
}
PROMPT = (3, 5, 7, 11, 2, 9, 44, 23, 1, 60)


@pytest.mark.parametrize("form", FORMS)
def test_tokens_are_those_of_litert(device, tmp_path, form):
    model = tmp_path / "m.tflite"
    model.write_bytes(make_tflite_decoder(FORMS[form]))
    bundle, decisions = make_decoder_bundle(model, "fp32")
    assert any(d["taken"] == "read and write their caches in place" for d in decisions)
    with local_place(bundle, "") as place:
        decoder = Decoder(place, bundle)
        tokens, rows = generate_tokens(decoder, PROMPT, 16)
        found = check_tokens(model, PROMPT, tokens, rows, tolerance=1e-5)
        assert (found.equal, found.near) == (16, 0)
        found.raise_if_failed()
        assert len(set(tokens)) > 4  # logits that are flat would show nothing
        # A run of a prompt that is filled up, up to the last row, and one token at a time.
        whole = [*PROMPT, *tokens][:21]
        left = [3 * n % 97 for n in range(decoder.rows - 21)]
        decoder.rewind(0)
        decoder.take_in([*whole, *left])
        caches = {name: decoder.read_cache(name) for name in bundle.manifest.states}
        decoder.rewind(0)
        for token in [*whole, *left]:
            decoder.take_in([token])
        for name, rows_of_runs in caches.items():
            one_by_one = decoder.read_cache(name)
            np.testing.assert_allclose(rows_of_runs, one_by_one, atol=1e-5 * np.ptp(one_by_one))


def test_containers_are_opened(device, tmp_path):
    model = make_tflite_decoder(FORMS["plain"])
    text = write_tokenizer(tmp_path / "elsewhere.json", 97).read_bytes()
    said: list[dict[str, Any]] = []
    for name in ("m.task", "m.litertlm"):
        ends = [one["tokens"][7] for one in said]
        whole = write_task(model) if not said else write_litertlm(model, tokenizer=text, ends=ends)
        (tmp_path / name).write_bytes(whole)
        bundle = str(tmp_path / f"{name}.adrenoc")
        compile_it = ["compile", str(tmp_path / name), "--device", "host", "--preset", "fp32"]
        done = succeed(*compile_it, "--prefill", "4", "-o", bundle)
        run = ["run", bundle, "--prompt-ids", "3,5,7,2,9", "--check", str(tmp_path / name)]
        done = succeed(*run, "--max-tokens", "12", "--json")
        said.append(json.loads(done.output))
    tokens = said[0]["tokens"]
    assert said[0]["check"]["equal"] == len(tokens) == 12
    assert said[1]["tokens"] == tokens[: tokens.index(tokens[7]) + 1]
    assert said[1]["ended"] == "end"
    # The tokeniser of the container came into the bundle.
    run = ["run", bundle, "--prompt", "w3 w5 w7 w2 w9", "--max-tokens", "12", "--json"]
    done = succeed(*run)
    assert json.loads(done.output)["text"].split() == [f"w{t}" for t in said[1]["tokens"]]
