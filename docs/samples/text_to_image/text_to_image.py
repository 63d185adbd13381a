#!/usr/bin/env python3
"""Make an image of a prompt: text_to_image.py FOLDER --prompt "a red fox" -o fox.png

FOLDER holds three bundles: text_encoder.adrenoc, step.adrenoc (of guided_step.py's model), whose
state is the latents, and vae_decoder.adrenoc.
"""

from __future__ import annotations

import argparse
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

from adrenoc.base.errors import AdrenocError
from adrenoc.native.model import Model, read_memory, set_memory_budget

TRAINED_STEPS, OFFSET = 1000, 1
"""Timesteps of Stable Diffusion 1.5, and the last one that a schedule has."""


def main() -> None:
    """Parse, and make images."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("folder", type=Path)
    words.add_argument("--prompt", help="needs transformers, and --tokenizer")
    words.add_argument("--tokenizer", type=Path, help="the pipeline's folder of that name")
    words.add_argument("--ids", help="tokens of the prompt in place of it, the end token as well")
    words.add_argument("--steps", type=int, default=20)
    words.add_argument("--guidance", type=float, default=7.5)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--noise", type=Path, help="first latents, raw floats; without it drawn")
    words.add_argument("--images", type=int, default=1)
    words.add_argument("--budget", type=float, default=0, help="MB that the models may hold")
    words.add_argument("-o", "--output", type=Path, required=True, help="a .png")
    given = words.parse_args()
    if (given.prompt is None) == (given.ids is None):
        words.error("expected one of --prompt and --ids")
    if not 1 <= given.steps <= TRAINED_STEPS:
        words.error(f"--steps {given.steps}, expected 1 to {TRAINED_STEPS}")
    set_memory_budget(given.budget)
    names = ("text_encoder", "step", "vae_decoder")
    models = [Model(given.folder / f"{name}.adrenoc") for name in names]
    prompt = tokenise(given.tokenizer, given.prompt) if given.prompt else read_ids(given.ids)
    for number in range(given.images):
        noise = draw_noise(models[1], given.noise, given.seed + number)
        image = make_image(*models, prompt, noise, given.steps, given.guidance)
        path = given.output
        if given.images > 1:
            path = path.with_stem(f"{path.stem}-{number + 1}")
        write_png(path, image)
        memory = read_memory()
        print(f"{path}: by {models[1].device}, whose models hold {memory.used / 1e6:.1f} MB")
    print(f"constants left the device {memory.evictions} times, and came back {memory.returns}")


def read_ids(text: str) -> list[int]:
    """Return numbers between commas."""
    return [int(word) for word in text.split(",")]


def tokenise(folder: Path, prompt: str) -> list[int]:
    """Return the tokens of a prompt, from the begin to the end token."""
    from transformers import CLIPTokenizer

    found: list[int] = CLIPTokenizer.from_pretrained(folder)(prompt)["input_ids"]
    return found


def draw_noise(step: Model, path: Path | None, seed: int) -> np.ndarray:
    """Return the latents that all begins with."""
    shape = step.inputs["latents"].shape
    if path is not None:
        return np.fromfile(path, np.float32).reshape(shape)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def make_image(
    text_encoder: Model,
    step: Model,
    vae_decoder: Model,
    prompt: list[int],
    noise: np.ndarray,
    steps: int,
    guidance: float,
) -> np.ndarray:
    """Return pixels of 0 to 1, [height, width, 3]."""
    length = text_encoder.inputs["input_ids"].shape[1]
    # Without and with the prompt; the end token fills both.
    rows = [[*ids, *[ids[-1]] * length][:length] for ids in ([prompt[0], prompt[-1]], prompt)]
    text = text_encoder.run({"input_ids": np.array(rows)})["last_hidden_state"]
    given = {"encoder_hidden_states": text, "guidance": np.array([guidance])}
    stride = TRAINED_STEPS // steps
    latents = {"latents": noise}
    for number in reversed(range(steps)):
        now = number * stride + OFFSET
        then = {"from_timestep": np.array([now]), "to_timestep": np.array([max(now - stride, -1)])}
        wanted = ["latent_sample"] if number == 0 else []
        made = step.run({**given, **latents, **then}, wanted=wanted)
        latents = {}  # they are the state from now on
    (pixels,) = vae_decoder.run(made).values()
    return np.clip(pixels[0].transpose(1, 2, 0) / 2 + 0.5, 0, 1)


def write_png(path: Path, pixels: np.ndarray) -> None:
    """Write pixels of 0 to 1."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in (pixels * 255).round().astype(np.uint8))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    with path.open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for name, data in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
            check = struct.pack(">I", zlib.crc32(name + data))
            file.write(struct.pack(">I", len(data)) + name + data + check)


if __name__ == "__main__":
    try:
        main()
    except AdrenocError as error:
        sys.exit(f"{error.message}\n{error.hint}")
