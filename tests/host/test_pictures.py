"""Pictures in prompts: rows of an encoder in place of tokens, held against onnxruntime."""

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from model_zoo.decoder_shape import DecoderShape
from PIL import Image

from adrenoc.base.errors import InputError, OptionError
from adrenoc.bundle.bundle import open_bundle
from adrenoc.bundle.chat import read_chat
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.check.inputs import InputFile, make_inputs
from adrenoc.cli.generate import EncoderInputs
from adrenoc.device.generate import Wish
from adrenoc.device.openai.protocol import RequestError, read_request
from tests.commands import ask, refuse, succeed
from tests.host.decoder_bundles import write_tokenizer
from tests.host.test_openai_server import serve
from tests.host.test_vision_language import (
    PATCH,
    PROMPT,
    SIDE,
    make_encoder,
    split_decoder,
    step_apart,
    write_parts,
)

SHAPE = DecoderShape(layers=1, context=48, plain=14, bits=0, kind="llama")
ROWS = (SIDE // PATCH) ** 2
ENCODER, MASK = "onnx/vision_encoder.onnx", "pixel_attention_mask=true"
TOKEN, BEGIN, END, COUNT = 60, 61, 62, 10
TEMPLATE = (
    "{% for message in messages %}w91 {% for part in message.content %}"
    "{% if part.type == 'image' %}w60 {% else %}{{ part.text }} {% endif %}{% endfor %}w93 "
    "{% endfor %}w92"
)


def write_model(folder: Path) -> None:
    """All that lies in a folder as transformers.js has it."""
    write_parts(folder, SHAPE, *split_decoder(SHAPE))
    onnx.save(make_encoder(SHAPE), folder / ENCODER)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "lfm2_vl", "image_token_id": TOKEN}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads(write_tokenizer(folder / "tokenizer.json", 97).read_text())
    around = {BEGIN: "<|image_start|>", END: "<|image_end|>"}
    tokenizer["added_tokens"] = [
        {**dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)}
        | {"id": at, "content": word, "special": True}
        for at, word in around.items()
    ]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    prepared = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "resample": 1}
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared))


@pytest.fixture(scope="module")
def folder(device, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    write_model(folder / "model")
    common = ["--device", "host", "--preset", "fp32"]
    rows = f"image_features:1,{ROWS},{SHAPE.hidden}"
    out = folder / "decoder.adrenoc"
    succeed("compile", folder / "model", *common, "--shape", rows, "--prefill", 4, "-o", out)
    pixels = ["--shape", f"pixel_values:1,1,3,{SIDE},{SIDE}"]
    mask = ["--shape", f"pixel_attention_mask:1,1,{SIDE},{SIDE}", "--fix", MASK]
    out = folder / "encoder.adrenoc"
    succeed("compile", folder / "model" / ENCODER, *common, *pixels, *mask, "-o", out)
    draw = np.random.default_rng(3)
    for name in ("one.png", "other.png"):
        Image.fromarray(draw.integers(0, 256, (20, 31, 3), dtype=np.uint8)).save(folder / name)
    return folder


def encode(folder: Path, name: str) -> np.ndarray:
    """The rows of an image by onnxruntime, and by Pillow's own resizing."""
    image = Image.open(folder / name).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    pixels = ((np.asarray(image) / 255 - 0.5) / 0.25).astype(np.float32).transpose(2, 0, 1)
    mask = np.ones((1, 1, SIDE, SIDE), bool)
    feeds = {"pixel_values": pixels[None, None], "pixel_attention_mask": mask}
    (rows,) = onnxruntime.InferenceSession(folder / "model" / ENCODER).run(None, feeds)
    return np.asarray(rows).reshape(ROWS, -1)


@pytest.mark.parametrize("expanded", [False, True])
def test_tokens_behind_a_picture_are_those_of_onnxruntime(folder, expanded):
    middle = (BEGIN, *[TOKEN] * ROWS, END) if expanded else (TOKEN,)
    ids = ",".join(map(str, (*PROMPT[:3], *middle, *PROMPT[3:])))
    run = ["run", folder / "decoder.adrenoc", "--encoder", folder / "encoder.adrenoc"]
    model = folder / "model" / "onnx" / "decoder_model_merged.onnx"
    told = {}
    for name in ("one.png", "other.png"):
        words = ["--input", folder / name, "--prompt-ids", ids, "--max-tokens", COUNT]
        said = ask(*run, *words, "--check", model)
        assert said["check"]["equal"] == COUNT
        assert said["check"]["max_error"] < 1e-4
        whole = (*PROMPT[:3], BEGIN, *range(-1, -ROWS - 1, -1), END, *PROMPT[3:])
        told[name] = said["tokens"]
        assert said["tokens"] == step_apart(folder / "model", whole, COUNT, encode(folder, name))
    assert told["one.png"] != told["other.png"]


def test_text_alone_goes_through_the_same_bundle(folder):
    ids = ",".join(map(str, PROMPT))
    run = ["run", folder / "decoder.adrenoc", "--prompt-ids", ids, "--max-tokens", COUNT]
    model = folder / "model" / "onnx" / "decoder_model_merged.onnx"
    said = ask(*run, "--check", model)
    assert said["check"]["equal"] == COUNT


def test_a_chat_about_a_picture(folder):
    encoder, image = folder / "encoder.adrenoc", folder / "one.png"
    words = ["chat", folder / "decoder.adrenoc", "--max-tokens", "5", "--json"]
    lines = "w3 w5\nw7\n"
    done = succeed(*words, "--image", encoder, image, typed=lines)
    first, second = (json.loads(line) for line in done.output.splitlines())
    # w91, the picture and its two marks, w3 w5 w93 w92.
    assert first["prompt"] == ROWS + 2 + 5
    assert second["kept"] == first["prompt"] - 1  # the template heads answers otherwise
    whole = (91, BEGIN, *range(-1, -ROWS - 1, -1), END, 3, 5, 93, 92)
    tokens = step_apart(folder / "model", whole, 5, encode(folder, "one.png"))
    assert first["text"].split() == [f"w{token}" for token in tokens]
    plain = succeed(*words, typed=lines)
    assert json.loads(plain.output.splitlines()[0])["prompt"] == 5


@pytest.mark.parametrize(
    ("ids", "given", "said"),
    [
        ((3, TOKEN), False, f"has 1 token of a picture ({TOKEN}), and no picture is given"),
        ((3, 5), True, f"has 0 tokens of a picture ({TOKEN}), and a picture is given"),
        ((TOKEN, 3, TOKEN), True, f"expected once, or {ROWS} times"),
    ],
)
def test_pictures_that_do_not_go_with_the_prompt_are_refused(folder, ids, given, said):
    run = ["run", folder / "decoder.adrenoc", "--prompt-ids", ",".join(map(str, ids))]
    picture = ["--encoder", folder / "encoder.adrenoc", "--input", folder / "one.png"]
    assert said in refuse(InputError, *run, *(picture if given else []))


@pytest.mark.parametrize("name", ["", "pixel_values"])
def test_a_mask_that_nobody_gives_is_to_be_fixed(folder, name):
    side = (1, 1, SIDE, SIDE)
    specs = [
        TensorSpec(name="pixel_values", shape=(1, 1, 3, SIDE, SIDE), dtype="float32"),
        TensorSpec(name="pixel_attention_mask", shape=side, dtype="bool"),
    ]
    np.save(folder / "pixels.npy", np.ones(specs[0].shape, np.float32))
    offer = EncoderInputs([InputFile(path=folder / "pixels.npy", name=name)])
    with pytest.raises(InputError) as refused:
        offer.take(open_bundle(folder / "encoder.adrenoc"), specs, is_last=False)
    assert f"adrenoc compile MODEL --fix {MASK}" in refused.value.hint


def test_what_is_known_of_pictures_is_in_the_bundle(folder):
    picture = read_chat(open_bundle(folder / "decoder.adrenoc")).picture
    assert (picture.token, picture.before, picture.after) == (TOKEN, (BEGIN,), (END,))
    assert (picture.mean, picture.std, picture.filter) == ((0.5,) * 3, (0.25,) * 3, 1)
    assert not picture.crops


def test_pictures_of_three_positions_are_refused(tmp_path):
    shape = DecoderShape(layers=1, context=32, streams=True)
    write_parts(tmp_path / "a", shape, *split_decoder(shape))
    words = ["compile", str(tmp_path / "a"), "--shape", f"image_features:1,4,{shape.hidden}"]
    assert "counts 3 positions a token" in refuse(OptionError, *words)


def test_the_encoder_is_that_of_onnxruntime(folder):
    run = ["run", folder / "encoder.adrenoc", "--check", folder / "model" / ENCODER]
    succeed(*run, "--repeat", 1)


def test_an_image_becomes_patches(tmp_path):
    pixels = np.random.default_rng(2).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    spec = TensorSpec(name="pixel_values", shape=(1, 9, 48), dtype="float32")
    patches = make_inputs([spec], [InputFile(path=path)])["pixel_values"]
    squares = [pixels[y : y + 4, x : x + 4] for y in (0, 4, 8) for x in (0, 4, 8)]
    assert np.allclose(patches[0], np.stack(squares).reshape(9, 48) / 255)


def test_inspect_tells_how_many_rows_a_picture_has(folder):
    assert f"pictures of {ROWS} rows" in succeed("inspect", folder / "decoder.adrenoc").output


def url_of(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def show(url: str, *, text: str = "w3 w5") -> list[dict[str, Any]]:
    """A message as OpenAI's clients write it."""
    image = {"type": "image_url", "image_url": {"url": url}}
    return [{"role": "user", "content": [image, {"type": "text", "text": text}]}]


@pytest.fixture(scope="module")
def client(folder) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    bundle = open_bundle(folder / "decoder.adrenoc")
    with serve(bundle, str(folder / "encoder.adrenoc")) as url:
        yield openai.OpenAI(base_url=url, api_key="none", max_retries=0)


@pytest.mark.parametrize("name", ["one.png", "other.png", "one.png"])
@pytest.mark.parametrize("streams", [False, True])
def test_a_client_shows_a_picture(folder, client, name, streams):
    messages = show(url_of((folder / name).read_bytes()))
    asked = {"model": "decoder", "messages": messages, "max_tokens": 5, "stream": streams}
    answer = client.chat.completions.create(**asked)
    if streams:
        said = "".join(piece.choices[0].delta.content or "" for piece in answer)
    else:
        said = answer.choices[0].message.content
        assert answer.usage.prompt_tokens == ROWS + 2 + 5
    whole = (91, BEGIN, *range(-1, -ROWS - 1, -1), END, 3, 5, 93, 92)
    tokens = step_apart(folder / "model", whole, 5, encode(folder, name))
    assert said.split() == [f"w{token}" for token in tokens]


def test_a_conversation_about_a_picture_goes_on(folder, client):
    first = show(url_of((folder / "one.png").read_bytes()))
    asked = {"model": "decoder", "max_tokens": 5}
    said = client.chat.completions.create(messages=first, **asked).choices[0].message.content
    turns = [*first, {"role": "assistant", "content": said}, {"role": "user", "content": "w7"}]
    told = client.chat.completions.create(messages=turns, **asked).usage
    assert told.prompt_tokens_details.cached_tokens >= ROWS + 2
    # Of another picture all but what stands before it is read anew.
    other = show(url_of((folder / "other.png").read_bytes()))
    told = client.chat.completions.create(messages=[*other, *turns[1:]], **asked).usage
    assert told.prompt_tokens_details.cached_tokens == 2
    plain = client.chat.completions.create(messages=turns[2:], **asked)
    assert plain.usage.prompt_tokens == 4


def test_pictures_that_cannot_be_shown_are_refused(folder, client):
    import openai

    whole = (folder / "one.png").read_bytes()
    for url, said in (
        ("https://example.com/cat.png", "nothing is fetched"),
        ("file:///etc/passwd", "nothing is fetched"),
        ("data:image/png;base64,!!", "not in base64"),
        (url_of(b"GIF"), "is no picture of PNG"),
        (url_of(whole[: len(whole) // 2]), "the picture is not a whole image"),
        (url_of(promise_pixels(1 << 13)), "of up to 50331648 pixels"),
        (url_of(promise_pixels(1 << 14)), "of up to 50331648 pixels"),
        (url_of(bytes(17 << 20)), "bytes, expected up to"),
    ):
        with pytest.raises(openai.BadRequestError, match=said):
            client.chat.completions.create(model="decoder", messages=show(url))
    two = show(url_of(whole))[0]["content"] * 2
    with pytest.raises(openai.BadRequestError, match="one picture goes into a conversation"):
        client.chat.completions.create(model="decoder", messages=[{"role": "user", "content": two}])
    # The next one is served as if nothing had been.
    test_a_client_shows_a_picture(folder, client, "other.png", False)


def promise_pixels(side: int) -> bytes:
    """A PNG file that promises more pixels than it has."""
    head = b"\0\0\0\rIHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + head + struct.pack(">I", zlib.crc32(head[4:]))


def test_a_model_of_text_is_shown_no_picture(folder):
    body = {"messages": show(url_of((folder / "one.png").read_bytes()))}
    with pytest.raises(RequestError, match="the model that is served here reads no pictures"):
        read_request(body, Wish(), "talker", chat=True)


def test_a_server_needs_an_encoder_that_goes_with_its_model(folder):
    decoder = str(folder / "decoder.adrenoc")
    assert "takes input_ids, image_features, past_length" in refuse(
        InputError, "serve", "--openai", decoder, decoder, "--port", "0"
    )
