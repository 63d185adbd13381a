"""`run --check` of decoders whose files give few logits, and of prompts that nobody gave."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from adrenoc.check.accuracy.passage import Passage, compute_passage
from adrenoc.importers.decoder_form import find_decoder
from tests.commands import invoke
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, write_decoder

SHAPE = DecoderShape(layers=1, context=48)


def prune_head(path: Path) -> None:
    """Leave the logits of the last token, as builders do that prune the head."""
    model = onnx.load(path)
    graph = model.graph
    head = next(node for node in graph.node if "logits" in node.output)
    at = list(graph.node).index(head)
    graph.node.insert(at, helper.make_node("Gather", [head.input[0], "last"], ["row"], axis=1))
    graph.node.insert(at + 1, helper.make_node("Unsqueeze", ["row", "one"], ["rows"]))
    head.input[0] = "rows"
    for name, value in (("last", np.array(-1)), ("one", np.array([1]))):
        graph.initializer.append(numpy_helper.from_array(value, name))
    onnx.save(model, path)


@pytest.mark.parametrize("pruned", [False, True], ids=["whole", "pruned"])
def test_a_decoder_is_checked_by_a_prompt_of_its_own(device, tmp_path, pruned):
    model = write_decoder(tmp_path, SHAPE)
    if pruned:
        prune_head(model)
    bundle, _ = make_decoder_bundle(model, "mixed")
    words = ("run", str(bundle.path), "--check", str(model))
    said = json.loads(invoke(*words, "--prompt-ids", "3,5,7", "--max-tokens", "4", "--json").stdout)
    assert said["check"]["passed"] and said["check"]["tokens"] == 4
    shown = invoke(*words, "--repeat", "1")
    assert "8 random tokens from seed 0" in shown.output
    assert "32 of 32 tokens are the reference's" in shown.output
    drawn = json.loads(invoke(*words, "--seed", "1", "--json").stdout)
    assert drawn["fed"] == "8 random tokens from seed 1" and drawn["check"]["passed"]


def test_logits_of_the_last_token_alone_are_taken_of_each(tmp_path):
    model = write_decoder(tmp_path, SHAPE)
    form, passage = find_decoder(model), Passage(tokens=(3, 5, 7, 11), source="")
    assert form is not None
    whole = compute_passage(model, form, passage)["logits"]
    prune_head(model)
    pruned = compute_passage(model, form, passage, ["/lm_head/q"])["logits"]
    assert whole.shape == pruned.shape == (1, 4, SHAPE.vocabulary)
    np.testing.assert_allclose(pruned, whole, atol=1e-4)


def test_what_a_file_lets_onnxruntime_round_is_told_and_fails_nothing(device, tmp_path):
    """As builders write decoders of 4 bits for CPUs."""
    path = write_decoder(tmp_path, SHAPE)
    model = onnx.load(path)
    for attribute in (a for node in model.graph.node for a in node.attribute):
        if attribute.name == "accuracy_level":
            attribute.i = 4
    onnx.save(model, path)
    bundle, _ = make_decoder_bundle(path, "fp32")
    said = json.loads(invoke("run", str(bundle.path), "--check", str(path), "--json").stdout)[
        "check"
    ]
    assert said["passed"] and said["max_error"] < 1e-4
    assert "its accuracy_level lets it round data to bytes" in said["note"]
