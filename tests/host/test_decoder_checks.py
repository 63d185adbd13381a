"""Checks of decoders, guessed tokens, and adapters that are swapped."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from adrenoc.base.errors import InputError
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.chat import Sampling
from adrenoc.check.accuracy.samples import Passage, compute_passage
from adrenoc.cli.main import main
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.run import local_place
from adrenoc.importers.decoder_form import find_decoder
from tests.commands import invoke, refuse, succeed
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


PHRASE = (3, 5, 7, 11, 2, 9)
PROMPT = PHRASE * 3
SHAPES = {
    "whole caches": DecoderShape(layers=1, context=96),
    "caches of windows": DecoderShape(layers=2, context=96, slides=True, window=6),
}


@pytest.fixture(scope="module", params=SHAPES)
def bundle(device, tmp_path_factory, request) -> Bundle:
    model = write_decoder(tmp_path_factory.mktemp("guesses"), SHAPES[request.param])
    return make_decoder_bundle(model, "fp32")[0]


@pytest.fixture(scope="module")
def decoder(bundle) -> Iterator[Decoder]:
    with local_place(bundle, "") as place:
        yield Decoder(place, bundle)


def one_by_one(decoder: Decoder, count: int) -> list[int]:
    """The likeliest tokens after the prompt, each made by itself."""
    decoder.rewind(0)
    decoder.take_in(PROMPT[:-1])
    tokens = [PROMPT[-1]]
    for _ in range(count):
        tokens.append(decoder.step(tokens[-1])[0])
    return tokens[1:]


def together(decoder: Decoder, wish: Wish) -> list[int]:
    """Tokens after the prompt, with guesses."""
    decoder.rewind(0)
    decoder.take_in(PROMPT[:-1])
    return [token for some in decoder.generate(PROMPT[-1], wish) for token in some]


@pytest.mark.parametrize("most", [1, 2, 7, 40])
def test_tokens_are_those_that_are_made_one_by_one(decoder, most):
    expected = one_by_one(decoder, most)
    assert together(decoder, Wish(most=most)) == expected
    assert decoder.ended == "most"
    runs, right = decoder.count_guesses()
    assert (runs == 0) == (most == 1)  # one token is no more than a step gives
    if most == 40:
        assert right > 0, "a text that repeats itself is guessed"
    # What comes next goes on from there: rows of wrong guesses are gone.
    assert decoder.step(expected[-1])[0] == one_by_one(decoder, most + 1)[-1]


def test_it_ends_where_it_would_without_guesses(decoder):
    expected = one_by_one(decoder, 40)
    for end in dict.fromkeys(expected):
        wanted = expected[: expected.index(end) + 1]
        assert together(decoder, Wish(most=40, ends=(end,))) == wanted
        assert decoder.ended == "end"
        assert decoder.length == len(PROMPT) - 1 + len(wanted)


def test_the_whole_context_is_filled(decoder):
    expected = one_by_one(decoder, decoder.rows - len(PROMPT) + 1)
    assert together(decoder, Wish()) == expected
    assert (decoder.ended, decoder.length) == ("full", decoder.rows)


@pytest.mark.parametrize(
    "wish",
    [Wish(most=20, sampling=Sampling(temperature=1.0, seed=3)), Wish(most=20, guesses=False)],
    ids=["drawn", "one by one"],
)
def test_nobody_guesses(decoder, wish):
    assert together(decoder, wish) == together(decoder, wish)
    assert decoder.count_guesses() == (0, 0)


def test_somebody_stops_between_two_tokens_of_a_guess(decoder):
    expected = one_by_one(decoder, 12)
    decoder.rewind(0)
    decoder.take_in(PROMPT[:-1])
    made: list[int] = []
    for some in decoder.generate(PROMPT[-1], Wish(most=12)):
        made += some
        if len(made) >= 5:
            decoder.stop()
    assert made == expected[: len(made)]
    assert decoder.length == len(PROMPT) - 1 + len(made)
    assert decoder.step(made[-1])[0] == expected[len(made)]


SHAPE_ADAPTERS = DecoderShape(layers=1, context=64)
RANK = 4
LEFT, RIGHT = (f"model.layers.0.attn.o_proj.lora_{side}.weight" for side in "AB")
PRODUCT, NEXT = "/model/layers.0/attn/o_proj/out", "/model/layers.0/post_attention_layernorm/out"


def write_adapted(folder: Path) -> Path:
    """A decoder one of whose products adds what an adapter makes, as Olive's exports have it."""
    path = write_decoder(folder, SHAPE_ADAPTERS)
    model = onnx.load(path)
    nodes = {node.name: node for node in model.graph.node}
    source, width = nodes[PRODUCT].input[0], SHAPE_ADAPTERS.hidden
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
def adapted(device, tmp_path_factory) -> tuple[Path, Path]:
    """The model, and its bundle."""
    folder = tmp_path_factory.mktemp("adapted")
    model, bundle = write_adapted(folder), folder / "adapted.adrenoc"
    words = ["compile", str(model), "--device", "host", "--preset", "fp32", "-o", str(bundle)]
    assert main([*words, "--prefill", "4", "--no-cache"]) == 0
    return model, bundle


def test_adapters_are_swapped_without_compiling(adapted, tmp_path):
    model, bundle = adapted
    made = []
    for seed in (1, 2):
        adapter = write_adapter(tmp_path / f"{seed}.onnx_adapter", model, seed)
        words = ["run", str(bundle), "--prompt-ids", "3,5,7,11", "--max-tokens", "12", "--json"]
        said = json.loads(succeed(*words, "--input", adapter, "--check", model).stdout)
        assert said["check"]["equal"] == len(said["tokens"]) > 1
        made.append(said["tokens"])
    assert made[0] != made[1]


def test_what_is_no_adapter_is_refused_in_a_sentence(adapted, tmp_path):
    damaged = tmp_path / "damaged.onnx_adapter"
    damaged.write_bytes(b"no flatbuffer of any kind")
    words = ["run", str(adapted[1]), "--prompt-ids", "3,5", "--input"]
    assert "is no adapter" in refuse(InputError, *words, damaged)
    assert main([*words, str(tmp_path / "missing.onnx_adapter")]) == InputError.exit_code
    assert LEFT in refuse(InputError, *words[:-1])
