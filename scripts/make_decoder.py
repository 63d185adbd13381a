#!/usr/bin/env python3
"""Write a decoder with seeded weights: make_decoder.py FOLDER [--like qwen3-0.6b] [--layers 2].

FOLDER gets model.onnx and genai_config.json, as onnxruntime-genai's builder writes them.
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import onnx
from model_zoo.decoder_shape import DecoderShape, genai_config
from model_zoo.make_decoders import KINDS, make_decoder


def main() -> int:
    """Parse, build, write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--like", choices=sorted(KINDS), default="tiny", help="extents to begin at")
    for one in fields(DecoderShape):
        kind = type(one.default)
        flag = {"action": argparse.BooleanOptionalAction} if kind is bool else {"type": kind}
        parser.add_argument(f"--{one.name.replace('_', '-')}", default=None, **flag)
    options = parser.parse_args()
    names = [one.name for one in fields(DecoderShape)]
    said = {n: v for n in names if (v := getattr(options, n)) is not None}
    shape = DecoderShape(**{**KINDS[options.like], **said})
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "model.onnx"
    data = options.folder / "model.onnx.data"
    data.unlink(missing_ok=True)  # onnx appends to it
    onnx.save(
        make_decoder(shape),
        path,
        save_as_external_data=True,
        location=data.name,
        size_threshold=1024,
    )
    (options.folder / "genai_config.json").write_text(genai_config(shape), encoding="utf-8")
    print(f"{path}: {shape.kind}, {data.stat().st_size / 1e6:.1f} MB of weights")
    return 0


if __name__ == "__main__":
    sys.exit(main())
