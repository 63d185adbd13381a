#!/usr/bin/env python3
"""Speak a text: speak.py FOLDER --text "Good morning" --tokenizer FOLDER -o morning.wav

FOLDER holds front.onnx, which onnxruntime computes on the CPU, and voice.adrenoc, compiled for
some numbers of frames: the smallest that there is room in makes the sound.
"""

from __future__ import annotations

import argparse
import sys
import wave
from pathlib import Path

import numpy as np
import onnxruntime

from adrenoc.base.errors import AdrenocError
from adrenoc.native.model import Model


def main() -> None:
    """Parse, compute, write."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("folder", type=Path)
    words.add_argument("--text", help="needs transformers, and --tokenizer")
    words.add_argument("--tokenizer", type=Path, help="the model's folder")
    words.add_argument("--ids", help="tokens in place of a text")
    words.add_argument("--rate", type=int, default=16000, help="the model's samples a second")
    words.add_argument("-o", "--output", type=Path, required=True, help="a .wav")
    given = words.parse_args()
    if (given.text is None) == (given.ids is None):
        words.error("expected one of --text and --ids")
    ids = tokenise(given.tokenizer, given.text) if given.text else given.ids.split(",")
    front = onnxruntime.InferenceSession(given.folder / "front.onnx")
    with Model(given.folder / "voice.adrenoc") as voice:
        sound = speak(front, voice, np.array([ids], np.int64))
        print(f"{given.output}: {len(sound) / given.rate:.2f} s of sound by {voice.device}")
    with wave.open(str(given.output), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(given.rate)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())


def tokenise(folder: Path, text: str) -> list[int]:
    """Return a text's tokens."""
    from transformers import AutoTokenizer

    found: list[int] = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    return found


def speak(front: onnxruntime.InferenceSession, voice: Model, ids: np.ndarray) -> np.ndarray:
    """Return samples of -1 to 1."""
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    latents, mask = front.run(["latents", "mask"], feeds)
    frames = latents.shape[2]
    rooms = [bucket["latents"].shape[2] for bucket in voice.buckets]
    fitting = [room for room in rooms if room >= frames]
    if not fitting:
        sys.exit(
            f"the text takes {frames} frames, voice.adrenoc {max(rooms)} at most: speak it in "
            f"parts, or compile with --shape latents:1,{latents.shape[1]},{frames}"
        )
    rest = ((0, 0), (0, 0), (0, min(fitting) - frames))
    (made,) = voice.run({"latents": np.pad(latents, rest), "mask": np.pad(mask, rest)}).values()
    return made.ravel()[: frames * made.size // min(fitting)]


if __name__ == "__main__":
    try:
        main()
    except AdrenocError as error:
        sys.exit(f"{error.message}\n{error.hint}")
