"""Decoders that read more than tokens, through the C API: what an encoder made is bound."""

import ctypes
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from adrenoc.base.errors import InputError
from adrenoc.bundle.bundle import TOKENIZER
from adrenoc.check.generation import check_tokens
from adrenoc.check.reference import run_reference
from adrenoc.cli.main import main
from adrenoc.native import model as module
from adrenoc.native.model import Model, set_memory_budget
from tests.host.decoder_bundles import DecoderShape
from tests.host.encoder_decoders import FEATURES, FRAMES, make_cross_decoder, make_encoder
from tests.runtime.programs import compile_against
from tests.tokenizer_files import make_bytes

SHAPE = DecoderShape(kind="llama", layers=2, context=64, plain=14, packed=False, vocabulary=300)
PROMPT = [3, 5, 7, 2, 9, 1]


@pytest.fixture(scope="module")
def folder(runtime, opencl, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    (folder / TOKENIZER).write_text(json.dumps(make_bytes(size=SHAPE.vocabulary)), "utf-8")
    options = ["--device", "host", "--preset", "fp32"]
    for name, model, words in (
        ("encoder", make_encoder(SHAPE), []),
        ("decoder", make_cross_decoder(SHAPE), ["--context", "64", "--prefill", "4"]),
    ):
        onnx.save(model, folder / f"{name}.onnx")
        command = ["compile", str(folder / f"{name}.onnx"), *options, *words]
        assert main([*command, "-o", str(folder / f"{name}.adrenoc")]) == 0
    return folder


def test_tokens_are_those_of_onnxruntime(folder):
    """For each of two inputs, one after the other, also when the constants had to leave."""
    random = np.random.default_rng(1)
    features = [random.normal(size=(1, FEATURES, FRAMES)).astype(np.float32) for _ in range(2)]
    said = []
    with Model(folder / "encoder.adrenoc") as encoder, Model(folder / "decoder.adrenoc") as model:
        for one in (*features, features[0]):
            made = encoder.run({"input_features": one})
            given = {name.replace("present", "past_key_values"): v for name, v in made.items()}
            model.rewind()
            tokens = model.generate(PROMPT, given, max_tokens=8)
            set_memory_budget(1e-6)
            encoder.run({"input_features": one})
            set_memory_budget(0)
            tokens += model.generate([], given, max_tokens=8)
            said.append(tokens)
    for one, tokens in zip(features, said, strict=False):
        made = run_reference(folder / "encoder.onnx", {"input_features": one})
        given = {name.replace("present", "past_key_values"): v for name, v in made.items()}
        rows: list[np.ndarray] = [np.zeros(SHAPE.vocabulary)] * 16
        found = check_tokens(
            folder / "decoder.onnx", PROMPT, tokens, rows, tolerance=1.0, given=given
        )
        assert found.equal == len(tokens) == 16
    assert said[0] == said[2] != said[1]


def test_the_runner_takes_files_and_programs_buffers(folder, runtime, opencl, execute):
    features = np.random.default_rng(2).normal(size=(1, FEATURES, FRAMES)).astype(np.float32)
    words = ["--prompt", ",".join(map(str, PROMPT)), "--max-tokens", "8", "--opencl", opencl]
    with Model(folder / "encoder.adrenoc") as encoder:
        made = encoder.run({"input_features": features})
    given = {name.replace("present", "past_key_values"): v for name, v in made.items()}
    for name, array in given.items():
        array.tofile(folder / name)
        words += ["--input", f"{name}={folder / name}"]
    told = execute(runtime.runner, folder / "decoder.adrenoc", *words).out.splitlines()
    with Model(folder / "decoder.adrenoc") as model:
        assert [int(token) for token in told[0].split()] == model.generate(
            PROMPT, given, max_tokens=8
        )
    features.tofile(folder / "features.raw")
    program = compile_against(runtime, "given_program.cc", folder / "given", "-ldl")
    models = [folder / "encoder.adrenoc", folder / "decoder.adrenoc"]
    on_device = execute(program, *models, opencl, folder / "features.raw", "8", *PROMPT)
    assert on_device.out.split() == told[0].split()
    done = execute(runtime.runner, folder / "decoder.adrenoc", *words[:6], expect=None)
    assert done.code != 0 and "is not bound" in done.err


def test_text_that_goes_on_is_of_what_is_bound(folder):
    """Nothing of the context stays that was made with other inputs."""
    text = b"Once upon a time"
    said: list[bytes] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    def hear(piece: bytes, _user: object) -> int:
        said.append(piece)
        return 0

    def go_on(model: Model) -> bytes:
        said.clear()
        how = module._Generation(struct_bytes=ctypes.sizeof(module._Generation), max_tokens=6)
        module._call("continue", model._model, text, ctypes.byref(how), hear, None)
        return b"".join(said)

    random = np.random.default_rng(5)
    features = [random.normal(size=(1, FEATURES, FRAMES)).astype(np.float32) for _ in range(2)]
    given, alone = [], []
    with Model(folder / "encoder.adrenoc") as encoder:
        for one in features:
            made = encoder.run({"input_features": one})
            given.append({k.replace("present", "past_key_values"): v for k, v in made.items()})
    for one in given:
        with Model(folder / "decoder.adrenoc") as model:
            model.generate([1], one, max_tokens=1)
            alone.append(go_on(model))
    with Model(folder / "decoder.adrenoc") as model:
        model.generate([1], given[0], max_tokens=1)
        assert go_on(model) == alone[0]
        model.generate([], given[1], max_tokens=1)
        assert go_on(model) == alone[1] != alone[0]
        tokens, row = (ctypes.c_int64 * 2)(3, 5), (ctypes.c_float * SHAPE.vocabulary)()
        module._call("logits", model._model, 0, tokens, 2, row, ctypes.sizeof(row), None)
        model.rewind()
        assert [np.argmax(row)] == model.generate([3, 5], given[1], max_tokens=1)
        with pytest.raises(InputError, match="`logits` has 1200 bytes, got 4"):
            module._call("logits", model._model, 0, tokens, 2, row, 4, None)


def test_what_is_not_bound_is_named(folder):
    with Model(folder / "decoder.adrenoc") as model:
        with pytest.raises(InputError, match=r"`past_key_values.0.encoder.key` is not bound"):
            model.generate(PROMPT)
        with pytest.raises(InputError, match="no input 'audio'"):
            model.generate(PROMPT, {"audio": np.zeros(1)})
        row, prompt = (ctypes.c_float * SHAPE.vocabulary)(), (ctypes.c_int64 * 2)(3, 5)
        with pytest.raises(InputError, match=r"`past_key_values.0.encoder.key` is not bound"):
            module._call("logits", model._model, 0, prompt, 2, row, ctypes.sizeof(row), None)
    with (
        Model(folder / "encoder.adrenoc") as model,
        pytest.raises(InputError, match="no decoder with caches"),
    ):
        model.generate(PROMPT)
