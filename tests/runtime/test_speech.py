"""The samples of pipelines, with small models: sound, tokens and images are onnxruntime's."""

import json
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

from adrenoc.native.model import Model, read_memory, set_memory_budget
from tests.commands import ask, compile_model, run_program
from tests.host.decoder_bundles import DecoderShape
from tests.host.encoder_decoders import (
    FEATURES,
    FRAMES,
    make_cross_decoder,
    make_encoder,
    make_first_call,
)
from tests.runtime.programs import compile_against, draw
from tests.sources import load_script

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "docs/samples/speech"
TEXT = [3, 7, 1, 9, 20, 4, 4, 31]


def run_scripts(folder: Path, *commands: str) -> Path:
    """Run scripts of the project, one after the other in a folder, and return it."""
    for command in commands:
        script, *words = command.split()
        subprocess.run([sys.executable, ROOT / script, *words], check=True, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def folder(runtime, opencl, tmp_path_factory) -> Path:
    """The synthesiser, cut in two; the voice compiled for 16 and for 32 frames."""
    made, cut = "scripts/make_synthesiser.py model.onnx", "split_synthesiser.py model.onnx ."
    folder = run_scripts(tmp_path_factory.mktemp("speech"), made, f"{SAMPLE}/{cut}")
    shape = ("--shape", "latents:1,8,16|32")
    compile_model(folder / "voice.onnx", folder / "voice.adrenoc", *shape)
    return folder


def expect(folder: Path, ids: list[int]) -> np.ndarray:
    """What onnxruntime makes of the whole model, whose noise has a seed."""
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    row = np.array([ids])
    return session.run(None, {"input_ids": row, "attention_mask": np.ones_like(row)})[0][0]


@pytest.mark.parametrize(("ids", "frames"), [(TEXT[:1], 1), (TEXT, 11), (TEXT * 2, 22)])
def test_speech_is_that_of_onnxruntime(folder, ids, frames):
    sample = load_script("speak.py", SAMPLE)
    front = onnxruntime.InferenceSession(folder / "front.onnx")
    with Model(folder / "voice.adrenoc") as voice:
        assert [bucket["latents"].shape for bucket in voice.buckets] == [(1, 8, 16), (1, 8, 32)]
        made = sample.speak(front, voice, np.array([ids]))
    expected = expect(folder, ids)
    assert made.shape == expected.shape == (16 * frames,)
    np.testing.assert_allclose(made, expected, atol=1e-4 * np.ptp(expected))


def test_frames_that_do_not_count_change_nothing(folder):
    """Without the masks the last samples hear them."""
    feeds = {"input_ids": np.array([TEXT]), "attention_mask": np.ones((1, len(TEXT)), np.int64)}
    latents, mask = onnxruntime.InferenceSession(folder / "front.onnx").run(None, feeds)
    rest = ((0, 0), (0, 0), (0, 5))
    padded = {"latents": np.pad(latents, rest), "mask": np.pad(mask, rest)}
    expected = expect(folder, TEXT)
    _, plain = load_script("split_synthesiser.py", SAMPLE).split(onnx.load(folder / "model.onnx"))
    errors = []
    for voice in (onnx.load(folder / "voice.onnx"), plain):
        (made,) = onnxruntime.InferenceSession(voice.SerializeToString()).run(None, padded)
        errors.append(np.abs(made[0, : expected.size] - expected).max())
    assert errors[0] < 1e-6 and errors[1] > 1e-2


def test_it_is_written_as_wav(folder):
    words = [str(ROOT / SAMPLE / "speak.py"), ".", "-o", "out.wav", "--ids"]
    subprocess.run([sys.executable, *words, "3,7,1,9,20,4,4,31"], check=True, cwd=folder)
    with wave.open(str(folder / "out.wav")) as file:
        assert (file.getframerate(), file.getnchannels()) == (16000, 1)
        made = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767
    np.testing.assert_allclose(made, expect(folder, TEXT), atol=1e-3)
    ids = ",".join(map(str, TEXT * 4))
    done = run_program([sys.executable, *words, ids], cwd=folder)
    assert done.returncode != 0
    assert "takes 44 frames, voice.adrenoc 32 at most" in done.stderr


def test_other_models_are_refused(folder):
    cut = load_script("split_synthesiser.py", SAMPLE).split
    model = onnx.load(folder / "model.onnx")
    speaker = onnx.helper.make_node("Add", ["shifted", "durations"], ["told"])
    model.graph.node.insert(len(model.graph.node) - 12, speaker)
    for node in model.graph.node:
        if node.op_type == "Concat":
            node.input[1] = "told"
    with pytest.raises(SystemExit, match="durations"):
        cut(model)
    for node in model.graph.node:
        if node.op_type == "RandomNormalLike":
            node.op_type = "Identity"
    with pytest.raises(SystemExit, match="adds no noise to frames"):
        cut(model)


SHAPE = DecoderShape(kind="llama", layers=1, context=40, plain=14, packed=False)
PROMPT = [3, 5, 7]
NEVER, NOT_FIRST = 67, 66
SETTINGS = {"suppress_tokens": [NEVER], "begin_suppress_tokens": [NOT_FIRST]}


@pytest.fixture(scope="module")
def listener(runtime, opencl, tmp_path_factory) -> Path:
    """An encoder, a first call and a decoder under the names that optimum gives them; its makers
    never want some tokens, or not at first."""
    folder = tmp_path_factory.mktemp("listener")
    (folder / "generation_config.json").write_text(json.dumps(SETTINGS))
    for name, model in (
        ("encoder_model", make_encoder(SHAPE, gives_keys=False)),
        ("decoder_model", make_first_call(SHAPE)),
        ("decoder_model_merged", make_cross_decoder(SHAPE)),
    ):
        onnx.save(model, folder / f"{name}.onnx")
        words = ("--context", "40") if name.endswith("merged") else ()
        compile_model(folder / f"{name}.onnx", folder / f"{name}.adrenoc", *words)
    return folder


def expect_tokens(folder: Path, features: np.ndarray, *, suppress: bool = True) -> list[int]:
    """What onnxruntime picks, of all tokens so far at each step."""
    never, not_first = SETTINGS.values() if suppress else ([], [])

    def run(name: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        session = onnxruntime.InferenceSession(folder / f"{name}.onnx")
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, session.run(None, inputs), strict=True))

    states = run("encoder_model", input_features=features[None])["last_hidden_state"]
    made = run("decoder_model", input_ids=np.array([[3]]), encoder_hidden_states=states)
    given = {n.replace("present", "past_key_values"): v for n, v in made.items() if n != "logits"}
    for kind in ("key", "value"):
        given[f"past_key_values.0.{kind}"] = np.zeros((1, SHAPE.kv_heads, 0, SHAPE.head), "float32")
    tokens: list[int] = []
    for step in range(9):
        ids = np.array([PROMPT + tokens])
        given["attention_mask"] = np.ones_like(ids)
        given["position_ids"] = np.arange(ids.size)[None]
        row = run("decoder_model_merged", input_ids=ids, **given)["logits"][0, -1].copy()
        row[never + not_first * (step == 0)] = -np.inf
        tokens.append(int(row.argmax()))
    return tokens


def test_tokens_are_those_of_onnxruntime(listener):
    sample = load_script("transcribe.py", SAMPLE)
    sound = np.random.default_rng(6).standard_normal(FRAMES * 160) * 0.1
    names = ("encoder_model", "decoder_model", "decoder_model_merged")
    models = [Model(listener / f"{name}.adrenoc") for name in names]
    features = sample.log_mel(sound, FEATURES, FRAMES)
    made = sample.transcribe(*models, features[None], PROMPT, 9)
    assert made == expect_tokens(listener, features)
    assert expect_tokens(listener, features, suppress=False)[:2] == [NOT_FIRST, NEVER]
    for model in models:
        model.close()


def test_a_check_leaves_out_what_is_suppressed(listener):
    features = np.random.default_rng(6).standard_normal((1, FEATURES, FRAMES), np.float32)
    np.save(listener / "features.npy", features)
    model = listener / "decoder_model_merged"
    words = ["run", f"{model}.adrenoc", "--encoder", str(listener / "encoder_model.adrenoc")]
    words += ["--encoder", str(listener / "decoder_model.adrenoc"), "--prompt-ids", "3,5,7"]
    words += ["--input", f"input_features={listener / 'features.npy'}", "--max-tokens", "9"]
    words += ["--check", f"{model}.onnx"]
    told = ask(*words)
    assert told["check"]["equal"] == 9 and not {NEVER} & set(told["tokens"])


def test_sound_is_read_and_written_down(listener):
    sound = np.random.default_rng(6).integers(-5000, 5000, 2 * FRAMES * 160)
    for name, rate in (("right", 16000), ("wrong", 44100)):
        with wave.open(str(listener / f"{name}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(sound.astype("<i2").tobytes())
    words = [sys.executable, str(ROOT / SAMPLE / "transcribe.py"), ".", "--max-tokens", "9"]
    words += ["--prompt-ids", "3,5,7"]

    def write_down(name: str) -> subprocess.CompletedProcess[str]:
        return run_program([*words, f"{name}.wav"], cwd=listener)

    done = write_down("right")
    sample = load_script("transcribe.py", SAMPLE)
    parts = np.split(sound / 32768, 2)
    expected = [expect_tokens(listener, sample.log_mel(part, FEATURES, FRAMES)) for part in parts]
    assert [line.split() for line in done.stdout.splitlines()] == [
        list(map(str, tokens)) for tokens in expected
    ], done.stderr
    assert "wrong.wav has 44100 samples a second" in write_down("wrong").stderr


def test_features_are_those_of_whisper():
    """Of transformers' extractor, for a tone of 440 Hz in noise."""
    random, times = np.random.default_rng(4), np.arange(9 * 16000)
    sound = 0.3 * np.sin(2 * np.pi * 440 * times / 16000) + 0.05 * random.standard_normal(
        times.size
    )
    for bins, expected in (
        (80, (0.46760583, 1.2377461, -0.6638062)),
        (128, (0.2623896, 0.32988465, -0.61675787)),
    ):
        made = load_script("transcribe.py", SAMPLE).log_mel(sound, bins, 3000)
        assert made.shape == (bins, 3000)
        np.testing.assert_allclose(made[[3, 10, 70], [5, 500, 2000]], expected, atol=1e-4)


PICTURES = "docs/samples/text_to_image"
SAID = [0, 5, 30, 8, 33, 1]
STEPS, GUIDANCE = 5, 7.5
PARTS = ("text_encoder", "step", "vae_decoder")


@pytest.fixture(scope="module")
def painter(runtime, opencl, tmp_path_factory) -> Path:
    """The pipeline as exporters write it, its step and the three bundles."""
    folder, step = tmp_path_factory.mktemp("diffusion"), "demo demo/unet/step.onnx --pixels 16"
    made = "scripts/make_diffusion.py demo --size 8"
    run_scripts(folder, made, f"{PICTURES}/guided_step.py {step}")
    for name in PARTS:
        file = "unet/step.onnx" if name == "step" else f"{name}/model.onnx"
        words = ("--state", "latents=next_latents") if name == "step" else ()
        compile_model(folder / "demo" / file, folder / f"{name}.adrenoc", *words)
    draw(3, noise=(1, 4, 8, 8))["noise"].tofile(folder / "noise.raw")
    return folder


@pytest.fixture(scope="module")
def expected(painter) -> np.ndarray:
    """onnxruntime runs the three models that the exporter wrote, and DDIM is written out here."""

    def run(name: str, **inputs: np.ndarray) -> np.ndarray:
        model = str(painter / "demo" / name / "model.onnx")
        return onnxruntime.InferenceSession(model).run(None, inputs)[0]

    alphas = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)
    rows = [[0] + [1] * 76, SAID + [1] * 71]
    text = run("text_encoder", input_ids=np.array(rows))
    latents = np.fromfile(painter / "noise.raw", np.float32).reshape(1, 4, 8, 8)
    for time in (801, 601, 401, 201, 1):
        both = {"sample": np.concatenate([latents, latents]), "encoder_hidden_states": text}
        plain, prompted = run("unet", timestep=np.array([time]), **both)
        noise = plain + GUIDANCE * (prompted - plain)
        here, there = alphas[time], alphas[max(time - 200, 0)]
        image = (latents - (1 - here) ** 0.5 * noise) / here**0.5
        latents = (there**0.5 * image + (1 - there) ** 0.5 * noise).astype(np.float32)
    made = run("vae_decoder", latent_sample=(latents / 0.18215).astype(np.float32))
    return np.clip(made[0].transpose(1, 2, 0) / 2 + 0.5, 0, 1)


def test_the_image_is_that_of_onnxruntime(painter, expected):
    """The second one, too, by constants that a small budget has taken from the device."""
    sample = load_script("text_to_image.py", PICTURES)
    models = [Model(painter / f"{name}.adrenoc") for name in PARTS]
    noise = sample.draw_noise(models[1], painter / "noise.raw", 0)
    before = read_memory().returns
    set_memory_budget(0.5)
    try:
        for _ in range(2):
            image = sample.make_image(*models, SAID, noise, STEPS, GUIDANCE)
            assert image.shape == (16, 16, 3) and image.std() > 0.1
            np.testing.assert_allclose(image, expected, atol=1e-4)
        assert read_memory().returns - before >= 3
    finally:
        set_memory_budget(0)
        for model in models:
            model.close()


def test_it_is_written_as_a_png(painter, expected):
    words = [
        str(ROOT / PICTURES / "text_to_image.py"),
        ".",
        "--noise",
        "noise.raw",
        "-o",
        "out.png",
    ]
    words += ["--ids", ",".join(map(str, SAID)), "--steps", str(STEPS), "--images", "2"]
    subprocess.run([sys.executable, *words], check=True, cwd=painter)
    for name in ("out-1.png", "out-2.png"):
        made = np.asarray(Image.open(painter / name)).astype(int)
        assert np.abs(made - (expected * 255).round()).max() <= 1


def test_other_pipelines_are_refused(painter, tmp_path):
    settings = painter / "demo" / "scheduler" / "scheduler_config.json"
    kept = settings.read_text(encoding="utf-8")
    step = load_script("guided_step.py", PICTURES)
    for change, message in (
        ({"prediction_type": "sample"}, "the U-Net predicts sample, expected epsilon"),
        ({"beta_schedule": "cosine"}, "betas are cosine, expected scaled_linear"),
    ):
        with pytest.raises(SystemExit, match=message):
            step.alphas_of({**json.loads(kept), **change})
    model = onnx.load(painter / "demo" / "unet" / "model.onnx")
    model.graph.input.append(onnx.helper.make_tensor_value_info("time_ids", 1, [2, 6]))
    with pytest.raises(SystemExit, match="takes time_ids, too"):
        step.make_step(model.graph, np.ones(3), extent=8, scale=1.0)


def test_the_same_in_cpp(painter, expected, runtime, opencl, execute):
    source = str(ROOT / PICTURES / "text_to_image.cc")
    program = compile_against(runtime, source, painter / "text_to_image", "-O2")
    words = [painter, ",".join(map(str, SAID)), painter / "cpp.png", f"steps={STEPS}"]
    words += [f"noise={painter / 'noise.raw'}", "budget=1", f"opencl_library={opencl}"]
    execute(program, *words, f"cache_folder={painter / 'cache'}")
    made = np.asarray(Image.open(painter / "cpp.png")).astype(int)
    assert np.abs(made - (expected * 255).round()).max() <= 1
    for word, message in (("noise=none", "cannot read none"), ("steps=0", "expected 1 to 1000")):
        words = [painter, "3,1", painter / "none.png", word, f"opencl_library={opencl}"]
        assert message in execute(program, *words, expect=1).err
