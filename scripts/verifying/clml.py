"""Offload models to emulated OpenCL ML and compare both variants: verify clml FILES.

Each model is compiled for the host with `--clml all` and `--clml auto`, and run three times with
the same inputs (the .npz beside the model where there is one): by the emulator, by the texture
kernels of the same bundle, and on onnxruntime's or LiteRT's reference.  One line a model and mode.
"top 5" says whether the five largest outputs are the same ones in the same order by both variants,
which is what TVM's tests of networks ask (tests/python/contrib/test_clml/test_network.py of 0.18).
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from scripts.verifying.commands import adrenoc

HEAD = (
    "model",
    "preset",
    "mode",
    "regions",
    "operators",
    "of",
    "copies",
    "inner",
    "est. textures us",
    "est. CLML us",
    "est. copies us",
    "CLML/textures",
    "CLML/reference",
    "top 5",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--presets", default="fp32", help="names with commas")
    parser.add_argument("--modes", default="all,auto", help="names with commas")
    parser.add_argument("--version", default="4", help="the CLML interface")
    parser.add_argument("--device", default="host:730", help="whose figures `auto` reckons with")
    options = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    failed = False
    for model in options.models:
        for preset in options.presets.split(","):
            for mode in options.modes.split(","):
                with tempfile.TemporaryDirectory(prefix="adrenoc-clml-") as folder:
                    given = ("--device", options.device, "--set", f"clml_version={options.version}")
                    row, bad = verify(model, preset, mode, given, Path(folder))
                print("| " + " | ".join(row) + " |", flush=True)
                failed |= bad
    return int(failed)


def verify(
    model: Path, preset: str, mode: str, given: tuple[str, ...], folder: Path
) -> tuple[list[str], bool]:
    """The line of one compilation, and whether its numbers are wrong."""
    bundle = folder / "model.adrenoc"
    compiled = ["compile", str(model), *given, "--preset", preset, "--no-cache"]
    adrenoc(*compiled, "--clml", mode, "-o", str(bundle))
    manifest = json.loads((bundle / "manifest.json").read_text())
    decisions = json.loads((bundle / "decisions.json").read_text())
    by_clml = run(bundle, model, folder / "clml.npz", emulator="{}")
    by_textures = run(bundle, model, folder / "textures.npz", emulator='{"extension": false}')
    regions = manifest["regions"]
    used = [region for region in by_clml["regions"] if region["used"]]
    stay = sum(staying(d["taken"]) for d in decisions)
    offloaded = sum(len(region["operators"]) for region in regions)
    between = difference(folder / "clml.npz", folder / "textures.npz")
    reference = max(t["range_error"] for t in by_clml["check"]["tensors"])
    limit = 1e-4 if preset == "fp32" else 2e-2
    good = len(used) == len(regions) and between <= limit and by_textures["check"]["passed"]
    row = [
        model.stem,
        preset,
        mode,
        str(len(regions)),
        str(offloaded),
        str(offloaded + stay),
        str(sum(region["border_copies"] for region in used)),
        str(sum(region["inner_copies"] for region in used)),
        *(estimates(decisions, regions)),
        f"{between:.1e}",
        f"{reference:.1e}",
        same_five(folder / "clml.npz", folder / "textures.npz"),
    ]
    return row, not good


def staying(taken: str) -> int:
    """How many operators a decision leaves to textures."""
    region = re.match(r"(\d+) operators stay in textures", taken)
    return int(region[1]) if region else int("stays in textures" in taken)


def estimates(decisions: list[dict[str, str]], regions: list[dict[str, Any]]) -> tuple[str, ...]:
    """Estimated times of the regions that were kept, and how many were not."""
    keys = ("texture_us", "clml_us", "copies_us")
    sums = [str(sum(region[key] for region in regions)) for key in keys]
    refused = sum("operators stay in textures" in d["taken"] for d in decisions)
    if refused:
        sums[0] += f" ({refused} refused)"
    return tuple(sums)


def same_five(first: Path, second: Path) -> str:
    """Whether the five largest of the first output are the same, in order."""
    with np.load(first) as a, np.load(second) as b:
        best = [np.argsort(data[data.files[0]].reshape(-1))[-5:].tolist() for data in (a, b)]
    return "same" if best[0] == best[1] else f"{best[0]} by CLML, {best[1]} in textures"


def difference(first: Path, second: Path) -> float:
    """The largest difference over the range of an output."""
    worst = 0.0
    with np.load(first) as a, np.load(second) as b:
        for name in a.files:
            size = max(float(np.ptp(b[name])), float(np.abs(b[name]).max())) or 1.0
            worst = max(worst, float(np.abs(a[name] - b[name]).max()) / size)
    return worst


def run(bundle: Path, model: Path, save: Path, *, emulator: str) -> dict[str, Any]:
    """Run a bundle; what `adrenoc run --json` says."""
    inputs = model.with_suffix(".npz")
    given = []
    if inputs.is_file():
        names = {t["name"] for t in json.loads((bundle / "manifest.json").read_text())["inputs"]}
        with np.load(inputs) as stored:
            for name in names & set(stored.files):
                np.save(save.parent / f"{len(given)}.npy", stored[name])
                given += ["--input", f"{name}={save.parent / f'{len(given)}.npy'}"]
    options = ["--check", str(model), "--tolerance", "1", "--repeat", "1", "--save", str(save)]
    return dict(adrenoc("run", str(bundle), *given, *options, ADRENOC_CLML_EMULATOR=emulator))
