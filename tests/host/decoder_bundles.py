"""Small decoders on disk, their bundles, and tokens of them."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from model_zoo.decoder_shape import DecoderShape, genai_config
from model_zoo.make_decoders import make_decoder

from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.bundle import TOKENIZER, Bundle, open_bundle
from adrenoc.cli.main import main
from adrenoc.compile.decoder_plan import plan_decoder
from adrenoc.compile.make import make_bundle
from adrenoc.device.generate import Decoder
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.ir.options import resolve_options
from adrenoc.target.gpu import Quirk
from adrenoc.target.target import load_target
from tests.tokenizer_files import CHAT_TEMPLATE, END, make_bytes


def write_decoder(folder: Path, shape: DecoderShape) -> Path:
    """The model with its configuration beside it."""
    path = folder / "model.onnx"
    onnx.save(make_decoder(shape), path)
    (folder / "genai_config.json").write_text(genai_config(shape), encoding="utf-8")
    return path


def make_decoder_bundle(model: Path, preset: str) -> tuple[Bundle, list[dict[str, str]]]:
    """Its bundle, of one token and, where the file allows it, of four, and what was decided."""
    form = find_decoder(model)
    plan = plan_decoder(form, None, (1,) if form.single else (4,))
    target = load_target("host")
    said = {
        "caches": plan.caches,
        "recurrent": plan.recurrent,
        "slack": plan.slack or None,
        "shapes": plan.buckets[-1],
    }
    made = make_bundle(
        model,
        target=target,
        options=resolve_options(target, preset=preset, command_line=said).options,
        output=model.with_suffix(f".{preset}.adrenoc"),
        reporter=SilentReporter(),
        buckets=plan.buckets,
        use_cache=False,
        chosen_before=plan.decisions,
    )
    return open_bundle(made.path), list(made.decisions)


def avoid_kernels(patch: pytest.MonkeyPatch, *operators: str) -> None:
    """Have bundles made for a target whose driver is wrong with the kernels of these operators."""
    host = load_target("host")
    words = tuple(f"operator:{name}" for name in operators)
    quirk = Quirk(name="q", text="t", source="s", avoid=words)
    target = replace(host, gpu=replace(host.gpu, quirks=(*host.gpu.quirks, quirk)))
    patch.setattr(sys.modules[__name__], "load_target", lambda _: target)


def generate_tokens(
    decoder: Decoder, prompt: Sequence[int], count: int
) -> tuple[list[int], list[np.ndarray]]:
    """Tokens after the prompt, each with its logits."""
    *before, token = prompt
    decoder.take_in(before)
    tokens, rows = [], []
    for _ in range(count):
        token, row = decoder.step(token, logits=True)
        tokens.append(token)
        rows.append(row)
    return tokens, rows


def write_tokenizer(path: Path, words: int) -> Path:
    """A tokenizer.json whose token N is the word `wN`."""
    library = pytest.importorskip("tokenizers")
    vocabulary = {f"w{number}": number for number in range(words)}
    tokenizer = library.Tokenizer(library.models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = library.pre_tokenizers.Whitespace()
    tokenizer.save(str(path))
    return path


TALKER = DecoderShape(layers=1, context=64)
TALKERS_TEMPLATE = (
    "{% for message in messages %}\n"
    "{{ {'system': 'w90', 'user': 'w91', 'assistant': 'w92'}[message.role] }} "
    "{{ message.content }} w93 \n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}w92{% endif %}"
)


def make_talker(folder: Path) -> Bundle:
    """A bundle of a small decoder whose words are w0, w1 and so on, with a template of chats."""
    write_tokenizer(folder / TOKENIZER, TALKER.vocabulary)
    return _compile_talker(folder, TALKER, TALKERS_TEMPLATE, "talker")


SPELLER = DecoderShape(layers=1, context=128, vocabulary=270)
SPELLERS_TEMPLATE = (
    "{% set said = messages[-1] %}{{ said.content }}{% for call in said.tool_calls %}"
    '<call>{"name": "{{ call.function.name }}", "arguments": '
    "{{ call.function.arguments | tojson }}}</call>{% endfor %}"
)


def make_speller(folder: Path) -> Bundle:
    """A bundle of a small decoder whose tokens are bytes; the last of all ends a turn."""
    library = pytest.importorskip("tokenizers")
    letters = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: at for at, letter in enumerate(letters)}
    fill = {f"<{at}>": at for at in range(len(letters), SPELLER.vocabulary - 1)}
    end = {"<end>": SPELLER.vocabulary - 1}
    model = library.models.BPE(vocab=vocabulary | fill | end, merges=[])
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    tokenizer.add_special_tokens([*fill, *end])
    tokenizer.save(str(folder / TOKENIZER))
    return _compile_talker(folder, SPELLER, SPELLERS_TEMPLATE, "speller")


WRITER = DecoderShape(layers=1, context=256, vocabulary=600)


def make_writer(folder: Path) -> Bundle:
    """A bundle of a small decoder with a tokenizer of the kind of Qwen's, and its chats."""
    pytest.importorskip("tokenizers")
    made = make_bytes(size=WRITER.vocabulary)
    (folder / TOKENIZER).write_text(json.dumps(made), encoding="utf-8")
    said = {"eos_token_id": made["model"]["vocab"][END]}
    said |= {"do_sample": True, "temperature": 0.7, "top_p": 0.875, "top_k": 0}
    (folder / "generation_config.json").write_text(json.dumps(said))
    return _compile_talker(folder, WRITER, CHAT_TEMPLATE, "writer")


def _compile_talker(folder: Path, shape: DecoderShape, template: str, name: str) -> Bundle:
    model = write_decoder(folder, shape)
    config = {"chat_template": template, "bos_token": {"content": "w1"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    output = folder / f"{name}.adrenoc"
    words = ["compile", str(model), "--device", "host", "--preset", "fp32", "-o", str(output)]
    assert main([*words, "--prefill", "4", "--no-cache"]) == 0
    return open_bundle(output)
