#!/usr/bin/env python3
"""Write a real network with seeded weights: make_model.py mobilenet_v2 out.onnx [--size 224].

ONNX networks: lstm, mobilenet_v2, resnet18, squeezenet, unet, vit.
TFLite networks: mobilenet_v1_small, mixed_small; and in int8 wake_words.
"""

import argparse
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]


def main() -> int:
    """Parse, build, write; return the exit code."""
    # Imported late, so that --help answers at once.
    from model_zoo import onnx_models, tflite_models
    from model_zoo.large_models import LARGE

    from tests.mcu.networks import wake_words

    lite = {**tflite_models.MODELS, "wake_words": wake_words}
    makers: dict[str, Callable[..., Any]] = {
        "lstm": onnx_models.lstm,
        **onnx_models.MODELS,
        **LARGE,
        **lite,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=sorted(makers))
    parser.add_argument("output", type=Path, help="the file to write: .onnx or .tflite")
    parser.add_argument("--size", type=int, help="height and width of the input, or steps")
    parser.add_argument("--width", type=float, help="factor on the numbers of channels")
    parser.add_argument("--classes", type=int, help="number of outputs")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (0)")
    options = parser.parse_args()
    expected = ".tflite" if options.network in lite else ".onnx"
    if options.output.suffix != expected:
        parser.error(f"{options.network} is written as {expected}, not {options.output.suffix}")
    maker = makers[options.network]
    given = {k: getattr(options, k) for k in ("size", "width", "classes", "seed")}
    known = inspect.signature(maker).parameters
    model = maker(**{k: v for k, v in given.items() if v is not None and k in known})
    content = model if isinstance(model, bytes) else model.SerializeToString(deterministic=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_bytes(content)
    print(f"{options.output}: {options.network}, {len(content) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
