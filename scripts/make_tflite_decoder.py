#!/usr/bin/env python3
"""Write a small decoder in TFLite with seeded weights: make_tflite_decoder.py FILE [--bits 4].

FILE ends in .tflite, or in .task or .litertlm for a container around it.
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from model_zoo.containers import write_litertlm, write_task
from model_zoo.tflite_decoders import TFLiteDecoder, make_tflite_decoder

_WRITERS = {".tflite": bytes, ".task": write_task, ".litertlm": write_litertlm}


def main() -> int:
    """Parse, build, write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--lengths", type=int, nargs="*", help="tokens of signatures for prompts")
    for one in fields(TFLiteDecoder):
        kind = type(one.default)
        if kind is tuple:
            continue
        flag = {"action": argparse.BooleanOptionalAction} if kind is bool else {"type": kind}
        parser.add_argument(f"--{one.name.replace('_', '-')}", default=None, **flag)
    said = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    path = said.pop("file")
    if path.suffix not in _WRITERS:
        parser.error(f"{path} ends in none of {', '.join(_WRITERS)}")
    said["lengths"] = tuple(said.get("lengths", TFLiteDecoder.lengths))
    content = _WRITERS[path.suffix](make_tflite_decoder(TFLiteDecoder(**said)))
    path.write_bytes(content)
    print(f"{path}: {len(content)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
