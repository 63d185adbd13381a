"""The sample of text to image, with a small pipeline: its image is onnxruntime's."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

from adrenoc.cli.main import main
from adrenoc.native.model import Model, read_memory, set_memory_budget
from tests.runtime.programs import compile_against
from tests.script_module import load_script

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "docs/samples/text_to_image"
PROMPT = [0, 5, 30, 8, 33, 1]
STEPS, GUIDANCE = 5, 7.5
PARTS = ("text_encoder", "step", "vae_decoder")


@pytest.fixture(scope="module")
def folder(runtime, opencl, tmp_path_factory) -> Path:
    """The pipeline as exporters write it, its step and the three bundles."""
    folder = tmp_path_factory.mktemp("diffusion")
    for words in (
        ("scripts/make_diffusion.py", "demo", "--size", "8"),
        (f"{SAMPLE}/guided_step.py", "demo", "demo/unet/step.onnx", "--pixels", "16"),
    ):
        subprocess.run([sys.executable, ROOT / words[0], *words[1:]], check=True, cwd=folder)
    for name in PARTS:
        model = folder / "demo" / name.replace("step", "unet")
        command = ["compile", str(model / ("step.onnx" if name == "step" else "model.onnx"))]
        command += ["--state", "latents=next_latents"] * (name == "step")
        command += ["--device", "host", "--preset", "fp32", "-o", str(folder / f"{name}.adrenoc")]
        assert main(command) == 0
    noise = np.random.default_rng(3).standard_normal((1, 4, 8, 8)).astype(np.float32)
    noise.tofile(folder / "noise.raw")
    return folder


@pytest.fixture(scope="module")
def expected(folder) -> np.ndarray:
    """onnxruntime runs the three models that the exporter wrote, and DDIM is written out here."""

    def run(name: str, **inputs: np.ndarray) -> np.ndarray:
        model = str(folder / "demo" / name / "model.onnx")
        return onnxruntime.InferenceSession(model).run(None, inputs)[0]

    alphas = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)
    rows = [[0] + [1] * 76, PROMPT + [1] * 71]
    text = run("text_encoder", input_ids=np.array(rows))
    latents = np.fromfile(folder / "noise.raw", np.float32).reshape(1, 4, 8, 8)
    for time in (801, 601, 401, 201, 1):
        both = {"sample": np.concatenate([latents, latents]), "encoder_hidden_states": text}
        plain, prompted = run("unet", timestep=np.array([time]), **both)
        noise = plain + GUIDANCE * (prompted - plain)
        here, there = alphas[time], alphas[max(time - 200, 0)]
        image = (latents - (1 - here) ** 0.5 * noise) / here**0.5
        latents = (there**0.5 * image + (1 - there) ** 0.5 * noise).astype(np.float32)
    made = run("vae_decoder", latent_sample=(latents / 0.18215).astype(np.float32))
    return np.clip(made[0].transpose(1, 2, 0) / 2 + 0.5, 0, 1)


def test_the_image_is_that_of_onnxruntime(folder, expected):
    """The second one, too, by constants that a small budget has taken from the device."""
    sample = load_script("text_to_image.py", SAMPLE)
    models = [Model(folder / f"{name}.adrenoc") for name in PARTS]
    noise = sample.draw_noise(models[1], folder / "noise.raw", 0)
    before = read_memory().returns
    set_memory_budget(0.5)
    try:
        for _ in range(2):
            image = sample.make_image(*models, PROMPT, noise, STEPS, GUIDANCE)
            assert image.shape == (16, 16, 3) and image.std() > 0.1
            np.testing.assert_allclose(image, expected, atol=1e-4)
        assert read_memory().returns - before >= 3
    finally:
        set_memory_budget(0)
        for model in models:
            model.close()


def test_it_is_written_as_a_png(folder, expected):
    words = [str(ROOT / SAMPLE / "text_to_image.py"), ".", "--noise", "noise.raw", "-o", "out.png"]
    words += ["--ids", ",".join(map(str, PROMPT)), "--steps", str(STEPS), "--images", "2"]
    subprocess.run([sys.executable, *words], check=True, cwd=folder)
    for name in ("out-1.png", "out-2.png"):
        made = np.asarray(Image.open(folder / name)).astype(int)
        assert np.abs(made - (expected * 255).round()).max() <= 1


def test_other_pipelines_are_refused(folder, tmp_path):
    settings = folder / "demo" / "scheduler" / "scheduler_config.json"
    kept = settings.read_text(encoding="utf-8")
    step = load_script("guided_step.py", SAMPLE)
    for change, message in (
        ({"prediction_type": "sample"}, "the U-Net predicts sample, expected epsilon"),
        ({"beta_schedule": "cosine"}, "betas are cosine, expected scaled_linear"),
    ):
        with pytest.raises(SystemExit, match=message):
            step.alphas_of({**json.loads(kept), **change})
    model = onnx.load(folder / "demo" / "unet" / "model.onnx")
    model.graph.input.append(onnx.helper.make_tensor_value_info("time_ids", 1, [2, 6]))
    with pytest.raises(SystemExit, match="takes time_ids, too"):
        step.make_step(model.graph, np.ones(3), extent=8, scale=1.0)


def test_the_same_in_cpp(folder, expected, runtime, opencl, execute):
    source = str(ROOT / SAMPLE / "text_to_image.cc")
    program = compile_against(runtime, source, folder / "text_to_image", "-O2")
    words = [folder, ",".join(map(str, PROMPT)), folder / "cpp.png", f"steps={STEPS}"]
    words += [f"noise={folder / 'noise.raw'}", "budget=1", f"opencl_library={opencl}"]
    execute(program, *words, f"cache_folder={folder / 'cache'}")
    made = np.asarray(Image.open(folder / "cpp.png")).astype(int)
    assert np.abs(made - (expected * 255).round()).max() <= 1
    for word, message in (("noise=none", "cannot read none"), ("steps=0", "expected 1 to 1000")):
        words = [folder, "3,1", folder / "none.png", word, f"opencl_library={opencl}"]
        assert message in execute(program, *words, expect=1).err
