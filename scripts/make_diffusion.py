#!/usr/bin/env python3
"""Write a small text-to-image pipeline with seeded weights: make_diffusion.py FOLDER [--size 16].

FOLDER gets text_encoder, unet, vae_decoder and the scheduler's settings, as optimum exports them.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import onnx
from model_zoo.large_models import SETTINGS, make_text_encoder, make_unet, make_vae_decoder


def main() -> int:
    """Parse, build, write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=16, help="extents of the latents (16)")
    options = parser.parse_args()
    folder, size = options.folder, options.size
    parts = {
        "text_encoder": make_text_encoder(),
        "unet": make_unet(size),
        "vae_decoder": make_vae_decoder(size),
    }
    for name, model in parts.items():
        path = folder / name / "model.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.with_name("model.onnx_data")
        data.unlink(missing_ok=True)  # onnx appends to it
        # As of a U-Net of gigabytes.
        onnx.save(model, path, save_as_external_data=name == "unet", location=data.name)
        print(path)
    for name, settings in SETTINGS.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
