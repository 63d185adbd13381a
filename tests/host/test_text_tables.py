"""Bundles of models that take a text's tokens hold what a phone makes these of."""

import json

import numpy as np
import onnx
import pytest

from adrenoc.bundle.bundle import TEXT_TABLES, TOKENIZER, open_bundle
from adrenoc.cli.main import main
from tests.models import graph, write
from tests.tokenizer_files import KINDS

pytest.importorskip("tokenizers")


@pytest.mark.parametrize("named", [False, True])
def test_an_encoder_s_bundle_makes_tokens_of_texts(device, tmp_path, named):
    tokenizer = tmp_path / ("other.json" if named else TOKENIZER)
    tokenizer.write_text(json.dumps(KINDS["words"]()), encoding="utf-8")
    model = graph(
        "rows = Gather(table, input_ids)",
        {"input_ids": [1, 16]},
        ["rows"],
        {"table": np.ones((900, 8), np.float32)},
        dtype=onnx.TensorProto.INT64,
    )
    words = ["--tokenizer", str(tokenizer)] if named else []
    output = tmp_path / "encoder.adrenoc"
    command = ["compile", str(write(model, tmp_path)), "--device", "host", "-o", str(output)]
    assert main([*command, "--no-cache", *words]) == 0
    bundle = open_bundle(output)
    assert {TOKENIZER, TEXT_TABLES} <= {entry.path for entry in bundle.manifest.files}


def test_a_tokenizer_for_what_takes_no_tokens_is_refused(tmp_path, capsys):
    (tmp_path / TOKENIZER).write_text(json.dumps(KINDS["words"]()), encoding="utf-8")
    model = write(graph("y = Relu(x)", {"x": [1, 4]}, ["y"]), tmp_path)
    command = ["compile", str(model), "--device", "host", "-o", str(tmp_path / "x.adrenoc")]
    assert main([*command, "--tokenizer", str(tmp_path / TOKENIZER)]) == 2
    assert "--tokenizer is for models that take tokens, as input_ids" in capsys.readouterr().err
