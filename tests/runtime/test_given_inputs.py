"""Decoders that read more than tokens, through the C API: what an encoder made is bound."""

import ctypes
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from adrenoc.base.errors import AdrenocError, BundleError, DeviceError, InputError
from adrenoc.bundle.bundle import TOKENIZER
from adrenoc.check.generation import check_tokens
from adrenoc.check.reference import run_reference
from adrenoc.native import model as module
from adrenoc.native.model import Model, read_memory, set_memory_budget
from tests.commands import compile_model
from tests.host.decoder_bundles import DecoderShape
from tests.host.encoder_decoders import FEATURES, FRAMES, make_cross_decoder, make_encoder
from tests.models import write_stepper
from tests.runtime.programs import compile_against
from tests.tokenizer_files import make_bytes

SHAPE = DecoderShape(kind="llama", layers=2, context=64, plain=14, packed=False, vocabulary=300)
PROMPT = [3, 5, 7, 2, 9, 1]


@pytest.fixture(scope="module")
def folder(runtime, opencl, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    (folder / TOKENIZER).write_text(json.dumps(make_bytes(size=SHAPE.vocabulary)), "utf-8")
    for name, model, words in (
        ("encoder", make_encoder(SHAPE), ()),
        ("decoder", make_cross_decoder(SHAPE), ("--context", "64", "--prefill", "4")),
    ):
        onnx.save(model, folder / f"{name}.onnx")
        compile_model(folder / f"{name}.onnx", folder / f"{name}.adrenoc", *words)
    return folder


def given_by(made: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What an encoder made, under the names that the decoder reads."""
    return {name.replace("present", "past_key_values"): value for name, value in made.items()}


def draw_features(seed: int, count: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.normal(size=(1, FEATURES, FRAMES)).astype(np.float32) for _ in range(count)]


def test_tokens_are_those_of_onnxruntime(folder):
    """For each of two inputs, one after the other, also when the constants had to leave."""
    features, said = draw_features(1, 2), []
    with Model(folder / "encoder.adrenoc") as encoder, Model(folder / "decoder.adrenoc") as model:
        for one in (*features, features[0]):
            given = given_by(encoder.run({"input_features": one}))
            model.rewind()
            tokens = model.generate(PROMPT, given, max_tokens=8)
            set_memory_budget(1e-6)
            encoder.run({"input_features": one})
            set_memory_budget(0)
            tokens += model.generate([], given, max_tokens=8)
            said.append(tokens)
    for one, tokens in zip(features, said, strict=False):
        given = given_by(run_reference(folder / "encoder.onnx", {"input_features": one}))
        rows: list[np.ndarray] = [np.zeros(SHAPE.vocabulary)] * 16
        found = check_tokens(
            folder / "decoder.onnx", PROMPT, tokens, rows, tolerance=1.0, given=given
        )
        assert found.equal == len(tokens) == 16
    assert said[0] == said[2] != said[1]


def test_the_runner_takes_files_and_programs_buffers(folder, runtime, opencl, execute, runner):
    (features,) = draw_features(2, 1)
    run = partial(runner, folder / "decoder.adrenoc", "--prompt", ",".join(map(str, PROMPT)))
    words: list[object] = ["--max-tokens", "8"]
    with Model(folder / "encoder.adrenoc") as encoder:
        given = given_by(encoder.run({"input_features": features}))
    for name, array in given.items():
        array.tofile(folder / name)
        words += ["--input", f"{name}={folder / name}"]
    told = run(*words).out.splitlines()
    with Model(folder / "decoder.adrenoc") as model:
        assert [int(token) for token in told[0].split()] == model.generate(
            PROMPT, given, max_tokens=8
        )
    features.tofile(folder / "features.raw")
    program = compile_against(runtime, "given_program.cc", folder / "given", "-ldl")
    models = [folder / "encoder.adrenoc", folder / "decoder.adrenoc"]
    on_device = execute(program, *models, opencl, folder / "features.raw", "8", *PROMPT)
    assert on_device.out.split() == told[0].split()
    done = run(*words[:2], expect=None)
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

    with Model(folder / "encoder.adrenoc") as encoder:
        given = [given_by(encoder.run({"input_features": one})) for one in draw_features(5, 2)]
    alone = []
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


pytestmark = pytest.mark.usefixtures("runtime", "opencl")


def test_numbers_are_those_of_run(bundle, case):
    with Model(bundle.path) as model:
        assert list(model.inputs) == [spec.name for spec in bundle.manifest.inputs]
        case.check(model.run(case.arrays))
        assert model.run(case.arrays, wanted=["sum"]).keys() == {"sum"}
        assert model.run(case.arrays, wanted=[]) == {}
        assert model.device


def test_a_bucket_is_taken_by_the_shapes(shapes, runtime):
    x = np.random.default_rng(1).standard_normal((4, 3, 12, 9))
    with Model(shapes.path) as model:
        large, small = model.run({"x": x}), model.run({"x": x[:1]})
    assert large["map"].shape == (4, 6, 6, 5) and small["map"].shape == (1, 6, 6, 5)
    np.testing.assert_array_equal(small["map"], large["map"][:1])


def test_memory_goes_back_with_the_last_reference(bundle, case):
    before = read_memory().used
    model = Model(bundle.path)
    model.run(case.arrays)
    assert read_memory().used > before
    del model
    assert read_memory().used == before
    again = Model(bundle.path)
    again.close()
    again.close()
    assert read_memory().used == before


def test_what_does_not_fit_is_a_sentence(bundle, case, tmp_path):
    wrong: dict[Callable[[Model], object], str] = {
        lambda model: model.run({**case.arrays, "picture": np.zeros(1)}): "no input 'picture'",
        lambda model: model.run(case.arrays, wanted=["total"]): "no output 'total', expected sum",
        lambda model: model.run({"image": case.arrays["image"]}): "`bias`",
        lambda model: model.run({**case.arrays, "bias": np.zeros((1, 2))}): "no bucket takes",
        lambda model: model.run({**case.arrays, "bias": np.zeros(1, complex)}): "gets complex128",
    }
    with Model(bundle.path) as model:
        for call, message in wrong.items():
            with pytest.raises(InputError, match=message):
                call(model)
    with pytest.raises(AdrenocError, match="null"):
        model.run(case.arrays)  # it is closed
    with pytest.raises(BundleError, match="none"):
        Model(tmp_path / "none.adrenoc")
    with pytest.raises(DeviceError, match="no device of that name"):
        Model(bundle.path, device="no device of that name")


def test_a_state_goes_on_and_comes_back(tmp_path):
    bundle = tmp_path / "step.adrenoc"
    compile_model(write_stepper(tmp_path, (1, 8)), bundle, "--state", "h=hn")
    x = np.full((1, 8), 4.0)
    with Model(bundle) as one, Model(bundle) as other:

        def step(given: dict[str, np.ndarray]) -> float:
            (y,) = one.run({"x": x, **given}).values()
            return float(y[0, -1]) / 2  # the model: y = 2 (h / 2 + x), h becomes h / 2 + x

        assert [step({}), step({})] == [4, 6]
        assert [step({"h": np.full((1, 8), 8.0)}), step({})] == [8, 8]
        set_memory_budget(1e-6)
        try:
            left = read_memory().evictions
            other.run({"x": x})
            assert step({"h": np.zeros((1, 8))}) == 4
            other.run({"x": x})
            assert step({}) == 6
            memory = read_memory()
            assert memory.budget == 1 and memory.evictions > left and memory.returns > 0
        finally:
            set_memory_budget(0)
