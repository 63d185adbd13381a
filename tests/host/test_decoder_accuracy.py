"""Decoders token by token: which layer's error enters, and which weights are off their source."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from adrenoc.base.errors import AccuracyError, CheckFailedError, InputError, OptionError
from adrenoc.base.reporter import Reporter, SilentReporter
from adrenoc.bundle.chat import Sampling
from adrenoc.check.accuracy import bench, samples
from adrenoc.check.accuracy.examine import check_accuracy
from adrenoc.check.accuracy.result import AccuracyReport
from adrenoc.check.accuracy.samples import Wording
from adrenoc.check.reference import run_steps
from adrenoc.cli.main import main
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.run import local_place
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx.session import open_session
from adrenoc.ir.precision_policy import PrecisionPolicy, write_policy
from adrenoc.target.target import load_target
from tests.commands import invoke
from tests.host.decoder_bundles import (
    DecoderShape,
    make_decoder_bundle,
    write_decoder,
    write_tokenizer,
)
from tests.models import graph, write

SHAPE = DecoderShape(context=24)
GATED, SUM = "/model/layers.1/mlp/gated", "/model/layers.1/input_layernorm/sum"
TOKENS = 8


def scale_constants(model: Path, **factors: float) -> None:
    """Multiply constants of a file."""
    proto = onnx.load(model)
    for tensor in proto.graph.initializer:
        factor = factors.pop(tensor.name, None)
        if factor is not None:
            value = (numpy_helper.to_array(tensor) * factor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    assert not factors
    onnx.save(proto, model)


def overflow_in_layer_1(model: Path) -> None:
    """What its MLP multiplies is beyond half; all else is as it was."""
    mlp = "/model/layers.1/mlp"
    scale_constants(model, **{f"{mlp}/up_proj/s": 3e4, f"{mlp}/down_proj/s": 1 / 3e4})


def examine(
    model: Path, preset: str = "mixed", reporter: Reporter | None = None, **more
) -> AccuracyReport:
    return check_accuracy(
        model,
        target=load_target("host"),
        presets=(preset,),
        tolerance=1e-2,
        wording=Wording(most=TOKENS, **more),
        reporter=reporter or SilentReporter(),
    )


@pytest.mark.nightly
@pytest.mark.usefixtures("halves")
def test_a_layer_that_overflows_is_found_and_mended(device, tmp_path):
    model = write_decoder(tmp_path, SHAPE)
    overflow_in_layer_1(model)
    policy, page = tmp_path / "policy.json", tmp_path / "page.html"
    words = ("--preset", "mixed", "--tokens", TOKENS, "-o", policy, "--html", page)
    told = invoke("check-accuracy", model, *words)
    assert told.exit_code == 0, told.output
    assert f"starts at {GATED}" in " ".join(told.output.split())
    assert "overflow" in told.output
    assert json.loads(policy.read_text())["float32_tensors"] == [GATED]
    shown = page.read_text()
    assert "<td>perplexity</td>" in shown
    assert "Decoder layers" in shown
    bundle = tmp_path / "mended.adrenoc"
    made = ("compile", model, "--device", "host", "--no-cache", "--prefill", 4, "-o", bundle)
    assert invoke(*made, "--precision-policy", policy).exit_code == 0
    check = ("--prompt-ids", "3,5,7,9,2,1", "--max-tokens", 10, "--check", model)
    assert invoke("run", bundle, *check).exit_code == 0


@pytest.mark.usefixtures("halves")
def test_logits_that_are_no_numbers_are_told(device, tmp_path):
    model = write_decoder(tmp_path, SHAPE)
    overflow_in_layer_1(model)
    bundle, _ = make_decoder_bundle(model, "mixed")
    for sampling in (Sampling(), Sampling(temperature=0.8, top_k=5, seed=1)):
        with local_place(bundle, "") as place:
            decoder = Decoder(place, bundle)
            decoder.take_in((3, 5, 7, 9))
            with pytest.raises(
                AccuracyError, match=r"no logit is a number \(NaN\) after [5-9] tokens"
            ):
                list(decoder.generate(2, Wish(most=8, sampling=sampling)))


@pytest.mark.nightly
def test_a_wrong_layer_is_found(device, tmp_path, monkeypatch):
    """The reference multiplies by other weights in the MLP of layer 0: as if ours were wrong."""
    model = write_decoder(tmp_path, SHAPE)
    (tmp_path / "other").mkdir()
    other = write_decoder(tmp_path / "other", SHAPE)
    scale_constants(other, **{"/model/layers.0/mlp/down_proj/s": 1.5})
    monkeypatch.setattr(
        samples, "run_steps", lambda _model, feeds, **more: run_steps(other, feeds, **more)
    )
    report = examine(model)
    (found,) = report.presets
    assert not report.passed
    assert found.error_in_float32 > 1e-2
    assert found.remedy is None
    assert found.starts_at == SUM
    assert found.score is not None and found.score.divergence > 1e-3


@pytest.fixture(scope="module")
def one_layer(device, tmp_path_factory) -> tuple[Path, AccuracyReport]:
    """A model and what is told of it; memory of the device holds rubbish at first."""

    def fill_with_rubbish(spec, place):
        tensor = make_empty(spec, place)
        tensor.copyfrom(np.full(spec.physical, 9, spec.dtype))
        return tensor

    make_empty = bench.empty
    model = write_decoder(tmp_path_factory.mktemp("one"), DecoderShape(context=24, layers=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "empty", fill_with_rubbish)
        return model, examine(model)


def test_agreement_and_perplexity_are_those_of_the_logits(one_layer):
    model, report = one_layer
    score = report.presets[0].score
    tokens = samples.draw_passage(TOKENS, vocabulary=SHAPE.vocabulary, seed=0).tokens
    wanted = _logits_by_onnxruntime(model, tokens)
    bundle, _ = make_decoder_bundle(model, "mixed")
    with local_place(bundle, "") as place:
        decoder = Decoder(place, bundle)
        rows = [decoder.step(token, logits=True)[1] for token in tokens]
    made = np.stack([row for row in rows if row is not None])
    assert score.tokens == TOKENS
    assert score.equal == int((made.argmax(-1) == wanted.argmax(-1)).sum())
    assert score.reference_perplexity == pytest.approx(_perplexity(wanted, tokens), rel=1e-5)
    assert score.perplexity == pytest.approx(_perplexity(made, tokens), rel=1e-3)
    assert score.perplexity != pytest.approx(score.reference_perplexity, rel=1e-7)
    assert 0 < score.divergence < 1e-4


def _logits_by_onnxruntime(model: Path, tokens: tuple[int, ...]) -> np.ndarray:
    """Token by token over its own pasts, apart from what is tested."""
    session = open_session(model)
    pasts = {
        port.name: np.zeros((1, SHAPE.kv_heads, 0, SHAPE.head), np.float32)
        for port in session.get_inputs()
        if port.name.startswith("past")
    }
    rows = []
    for number, token in enumerate(tokens):
        feeds = {
            "input_ids": np.array([[token]], np.int64),
            "attention_mask": np.ones((1, number + 1), np.int64),
        }
        logits, *presents = session.run(None, {**feeds, **pasts})
        pasts = dict(zip(pasts, presents, strict=True))
        rows.append(logits[0, 0])
    return np.stack(rows)


def _perplexity(logits: np.ndarray, tokens: tuple[int, ...]) -> float:
    shares = np.exp(logits.astype(np.float64))
    shares /= shares.sum(-1, keepdims=True)
    chosen = [shares[at, token] for at, token in enumerate(tokens[1:])]
    return float(np.prod(chosen) ** (-1 / len(chosen)))


@pytest.mark.nightly
@pytest.mark.usefixtures("halves")
def test_what_enters_is_told_by_what_is_rounded(device, tmp_path):
    (found,) = examine(write_decoder(tmp_path, SHAPE)).presets
    assert found.passed and found.suspects == ()
    layers = {layer.name: layer for layer in found.layers}
    attention, gated = layers["/model/layers.1/attn/out"], layers[GATED]
    assert 1e-5 < attention.parts.cache < 1e-3
    assert gated.parts.cache < 1e-6 < min(gated.parts.weights, gated.parts.activations)
    # A sum behind a product is of the layer whose weights it multiplies.
    assert (layers[SUM].part_of, gated.part_of, layers["logits"].part_of) == ("0", "1", "head")
    assert layers["embedded"].part_of == "embedding"
    assert layers[SUM].total_error > layers["embedded"].total_error > 0


@pytest.mark.parametrize(
    "shape",
    [
        DecoderShape(context=24, layers=1, cache_bits=8),
        DecoderShape(context=24, layers=1, plain=14, bits=0),
        DecoderShape(context=24, layers=1, half=True),
    ],
    ids=["a cache of bytes", "the standard's operators", "a model in halves"],
)
@pytest.mark.nightly
def test_forms_of_decoders(device, tmp_path, shape):
    report = examine(write_decoder(tmp_path, shape))
    (found,) = report.presets
    assert report.passed
    assert found.score is not None and found.score.equal >= TOKENS - 1
    assert {layer.part_of for layer in found.layers} == {"embedding", "0", "head"}


@pytest.mark.parametrize(
    "shape",
    [
        DecoderShape(context=24, layers=2, conv_taps=3, seed=3),
        DecoderShape(context=24, layers=2, conv_taps=4, linear=True, streams=True,
                     rotary_apart=True, seed=1),
    ],
    ids=["short convolutions", "linear attention"],
)  # fmt: skip
@pytest.mark.nightly
def test_recurrent_states_are_examined_token_by_token(device, tmp_path, shape):
    model = write_decoder(tmp_path, shape)
    log = _Warnings()
    report = examine(model, reporter=log)
    (found,) = report.presets
    assert report.passed and log.told == []  # no layer in float32 is another than the reference's
    assert found.score is not None and found.score.equal >= TOKENS - 1
    assert {layer.part_of for layer in found.layers} >= {"embedding", "0", "1", "head"}
    # Of norms of keys, which differ little, a half's rounding is a larger part of the range.
    assert all(layer.total_error < 2e-2 for layer in found.layers)


class _Warnings(SilentReporter):
    """Keeps what a user would be warned of."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def warn(self, message: str) -> None:
        self.told.append(message)


def test_the_floor_goes_on_with_the_caches_of_the_tokens_before(one_layer):
    """Rows of caches that nobody wrote are not read."""
    (found,) = one_layer[1].presets
    assert found.floor.float32_error < 1e-5
    assert 1e-5 < found.floor.error < 1e-2


@pytest.mark.parametrize(
    "shape",
    [
        DecoderShape(context=24, layers=1),
        DecoderShape(context=24, layers=1, plain=14, bits=0),
        DecoderShape(context=24, layers=1, half=True, embedding_bits=4),
    ],
    ids=["onnxruntime's operators", "the standard's operators", "halves"],
)
@pytest.mark.nightly
def test_a_policy_may_name_every_tensor(device, tmp_path, shape):
    """Caches, products by few bits and what prompts do not compute, in both entry points."""
    model = write_decoder(tmp_path, shape)
    names = [layer.name for layer in examine(model).presets[0].layers]
    assert {"present.0.key", "logits"} <= {*names}
    policy = PrecisionPolicy(
        model_file=model.name,
        model_sha256=find_model_files(model).sha256(),
        preset="fp16",
        tolerance=1e-2,
        float32_tensors=tuple(names),
        error_before=None,
        error_after=None,
    )
    write_policy(policy, tmp_path / "policy.json")
    bundle = tmp_path / "exact.adrenoc"
    made = ("compile", model, "--device", "host", "--no-cache", "--prefill", 4, "-o", bundle)
    told = invoke(*made, "--precision-policy", tmp_path / "policy.json")
    assert told.exit_code == 0, told.output
    check = ("--prompt-ids", "3,5,7,9,2,1", "--max-tokens", 6, "--check", model)
    told = invoke("run", bundle, *check)
    assert told.exit_code == 0, told.output


@pytest.mark.nightly
def test_a_text(device, tmp_path):
    model = write_decoder(tmp_path, SHAPE)
    text = tmp_path / "text.txt"
    text.write_text("w3 w5 w7 w11 w13")
    with pytest.raises(InputError, match=r"no tokenizer\.json lies beside"):
        examine(model, text=text)
    tokenizer = write_tokenizer(tmp_path / "other.json", 200)
    report = examine(model, text=text, tokenizer=tokenizer)
    assert (report.samples, report.passage) == (5, "text.txt")
    text.write_text(" ".join(f"w{number}" for number in range(30)))
    assert examine(model, text=text, tokenizer=tokenizer).passage.endswith("first 8 of 30 tokens")
    text.write_text("w3 w150")
    with pytest.raises(InputError, match=r"makes the token 150 of text\.txt"):
        examine(model, text=text, tokenizer=tokenizer)
    text.write_text("w3")
    with pytest.raises(InputError, match="is 1 token, expected at least 2"):
        examine(model, text=text, tokenizer=tokenizer)


def test_what_does_not_go_together(tmp_path):
    model = write_decoder(tmp_path, SHAPE)
    (tmp_path / "inputs").mkdir()
    np.save(tmp_path / "inputs" / "x.npy", np.zeros(3))
    with pytest.raises(OptionError, match="examined token by token") as refused:
        invoke("check-accuracy", model, "--set", "int8_prompts=true")
    assert "int8_prompts" in refused.value.hint
    with pytest.raises(InputError, match="examined on tokens"):
        invoke("check-accuracy", model, "--inputs", tmp_path / "inputs")
    with pytest.raises(InputError, match="takes no text"):
        invoke("check-accuracy", _plain(tmp_path), "--tokens", 4)


def _plain(folder: Path) -> Path:
    """What is no decoder."""
    return write(graph("y = Relu(x)", {"x": [1, 4]}, ["y"]), folder, "plain.onnx")


SOURCE_TOKENS = (3, 5, 7, 9, 2, 1, 44, 13)
SPOILT = "/model/layers.1/mlp/down_proj/s"
SOURCE_SHAPE = {"context": 24, "bits": 8}


def write_source(folder: Path, **more) -> Path:
    folder.mkdir()
    return write_decoder(folder, DecoderShape(**{**SOURCE_SHAPE, **more}))


def spoil(model: Path, factor: float = 1.25) -> str:
    """Scale the weights of one product; the tensor that it makes."""
    scale_constants(model, **{SPOILT: factor})
    return next(str(n.output[0]) for n in onnx.load(model).graph.node if SPOILT in n.input)


def compare(model: Path, source: Path, *more) -> tuple[int, dict[str, Any]]:
    told = invoke("check-accuracy", model, "--source", source, "--tokens", 8, "--json", *more)
    return told.exit_code, json.loads(told.output)


def logits_of(model: Path) -> np.ndarray:
    """By onnxruntime, of all tokens at once."""
    session = open_session(model)
    feeds: dict[str, np.ndarray] = {
        "input_ids": np.array([SOURCE_TOKENS], np.int64),
        "attention_mask": np.ones((1, len(SOURCE_TOKENS)), np.int64),
    }
    for port in session.get_inputs():
        if port.name.startswith("past"):
            dtype = np.float16 if "float16" in port.type else np.float32
            feeds[port.name] = np.zeros((1, port.shape[1], 0, port.shape[3]), dtype)
    return np.asarray(session.run(["logits"], feeds)[0]).astype(np.float32)


def test_the_one_product_that_is_off_is_found_and_taken(device, tmp_path):
    model, source = write_source(tmp_path / "shipped"), write_source(tmp_path / "source")
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
    model = write_source(tmp_path / "shipped", bits=4)
    source = write_source(tmp_path / "source", **more)
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
    model, source = write_source(tmp_path / "shipped"), write_source(tmp_path / "source", bits=0)
    mended = model.with_name("mended.onnx")
    told = invoke("check-accuracy", model, "--source", source, "--tokens", 8, "--mended", mended)
    assert told.exit_code == 0, told.output
    assert "is near the source" in told.output
    assert not mended.exists()


def test_what_weights_do_not_explain_is_told(tmp_path, capsys):
    """A norm's gains are no weights of a product."""
    model, source = write_source(tmp_path / "shipped"), write_source(tmp_path / "source")
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
    model = write_source(tmp_path / "shipped")
    told = invoke("check-accuracy", model, "--mended", tmp_path / "mended.onnx")
    assert "--mended is for --source" in told.output
    other = write_source(tmp_path / "other", vocabulary=50)
    with pytest.raises(InputError, match=r"knows 97 tokens and .* 50"):
        invoke("check-accuracy", model, "--source", other, "--tokens", 8)
    with pytest.raises(InputError, match="is no decoder in ONNX"):
        invoke("check-accuracy", model, "--source", _plain(tmp_path))
