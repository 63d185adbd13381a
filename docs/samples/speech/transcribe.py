#!/usr/bin/env python3
"""Write down what is said: transcribe.py FOLDER speech.wav --prompt-ids 50258,50259,50359,50363

FOLDER holds the three models that optimum makes of a Whisper, as bundles: encoder_model.adrenoc,
decoder_model.adrenoc, of which only what it makes of the encoder's states is read, and
decoder_model_merged.adrenoc, which makes tokens; and its tokenizer.json, if there is one.  The
prompt is the model's words for the language, the task, and that no times are told.
"""

from __future__ import annotations

import argparse
import sys
import wave
from pathlib import Path

import numpy as np

from adrenoc.base.errors import AdrenocError
from adrenoc.native.model import Model

RATE, WINDOW, HOP = 16000, 400, 160


def main() -> None:
    """Parse, compute, print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("folder", type=Path)
    words.add_argument("sound", type=Path, help=f"a .wav of one channel, {RATE} samples a second")
    words.add_argument("--prompt-ids", required=True, help="the start token, and those behind it")
    words.add_argument("--max-tokens", type=int, default=0, help="of each 30 seconds")
    given = words.parse_args()
    names = ("encoder_model", "decoder_model", "decoder_model_merged")
    models = [Model(given.folder / f"{name}.adrenoc") for name in names]
    prompt = [int(word) for word in given.prompt_ids.split(",")]
    sound = read_sound(given.sound)
    _, bins, frames = models[0].inputs["input_features"].shape
    for begin in range(0, len(sound), frames * HOP):
        features = log_mel(sound[begin : begin + frames * HOP], bins, frames)
        tokens = transcribe(*models, features[None], prompt, given.max_tokens)
        print(write_text(given.folder / "tokenizer.json", tokens), flush=True)


def transcribe(
    encoder: Model,
    first: Model,
    decoder: Model,
    features: np.ndarray,
    prompt: list[int],
    most: int = 0,
) -> list[int]:
    """Return the tokens of 30 seconds, or at `most` so many."""
    (states,) = encoder.run({"input_features": features}).values()
    start = np.full(first.inputs["input_ids"].shape, prompt[0])
    keys = [name for name in first.outputs if ".encoder." in name]
    made = first.run({"input_ids": start, "encoder_hidden_states": states}, wanted=keys)
    given = {name.replace("present", "past_key_values"): array for name, array in made.items()}
    if "encoder_hidden_states" in decoder.inputs:
        given["encoder_hidden_states"] = states
    decoder.rewind()
    return decoder.generate(prompt, given, max_tokens=most)


def read_sound(path: Path) -> np.ndarray:
    """Return samples of -1 to 1."""
    with wave.open(str(path), "rb") as file:
        form = file.getframerate(), file.getnchannels(), file.getsampwidth()
        if form != (RATE, 1, 2):
            sys.exit(
                f"{path} has {form[0]} samples a second of {form[1]} channels, {8 * form[2]} bits; "
                f"expected {RATE}, one and 16: ffmpeg -i {path} -ar {RATE} -ac 1 other.wav"
            )
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768


def log_mel(sound: np.ndarray, bins: int, frames: int) -> np.ndarray:
    """Return the features of Whisper [bins, frames], of silence beyond the sound's end."""
    padded = np.pad(sound, (0, frames * HOP - len(sound)))
    padded = np.pad(padded, WINDOW // 2, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    pieces = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:frames]
    power = np.abs(np.fft.rfft(pieces * window)) ** 2
    loud = np.log10(np.maximum(mel_filters(bins) @ power.T, 1e-10))
    return ((np.maximum(loud, loud.max() - 8) + 4) / 4).astype(np.float32)


def mel_filters(bins: int) -> np.ndarray:
    """Return triangles on the scale of Slaney, each of the area of one: [bins, frequencies]."""
    step = 200 / 3  # Hz a mel, up to 1000 Hz; then 27 mels for a factor of 6.4
    mels = np.linspace(0, 15 + 27 * np.log(RATE / 2000) / np.log(6.4), bins + 2)
    edges = np.where(mels < 15, step * mels, 1000 * 6.4 ** ((mels - 15) / 27))
    ways = edges[:, None] - np.fft.rfftfreq(WINDOW, 1 / RATE)[None]
    width = np.diff(edges)[:, None]
    rising, falling = -ways[:-2] / width[:-1], ways[2:] / width[1:]
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (edges[2:] - edges[:-2])[:, None]


def write_text(tokenizer: Path, tokens: list[int]) -> str:
    """Return what tokens say, or their numbers where there is no tokenizer."""
    if not tokenizer.is_file():
        return " ".join(map(str, tokens))
    from tokenizers import Tokenizer

    text: str = Tokenizer.from_file(str(tokenizer)).decode(tokens)
    return text


if __name__ == "__main__":
    try:
        main()
    except AdrenocError as error:
        sys.exit(f"{error.message}\n{error.hint}")
