#!/usr/bin/env python3
"""Write equivalents of the networks of LiteRT's leaderboard: make_board.py FOLDER [NETWORK...].

What is published are times of torchvision's networks as TFLite; these are the same architectures
with seeded weights as ONNX, at the extents of torchvision's own transforms (`scripts/bench_models
--board FOLDER` holds their estimates beside the published times). Needs torch, torchvision and
onnxruntime (which quantises); the speech and text models of the leaderboard have no maker here.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

OPSET = 17


def classifier(name: str, size: int = 224, **options: Any) -> tuple[Any, int]:
    """An image network of torchvision, and the side of its input."""
    from torchvision import models

    return models.get_model(name, weights=None, **options), size


def segmenter(name: str) -> tuple[Any, int]:
    """A network that labels pixels, without the head that only training uses."""
    import torch
    from torchvision import models

    whole = models.get_model(name, weights=None, weights_backbone=None)

    class Labels(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, x: Any) -> Any:
            return self.whole(x)["out"]

    return Labels(), 520


auxiliary = {"aux_logits": False, "init_weights": False, "transform_input": False}
MAKERS: dict[str, Callable[[], tuple[Any, int]]] = {
    **{
        name: partial(classifier, name)
        for name in (
            "mobilenet_v2",
            "mobilenet_v3_small",
            "mobilenet_v3_large",
            "efficientnet_b0",
            "resnet18",
            "resnet50",
            "squeezenet1_1",
            "shufflenet_v2_x0_5",
            "convnext_tiny",
        )
    },
    "efficientnet_v2_s": partial(classifier, "efficientnet_v2_s", 384),
    "googlenet": partial(classifier, "googlenet", **auxiliary),
    "inception_v3": partial(classifier, "inception_v3", 299, **auxiliary),
    "vit_b16": partial(classifier, "vit_b_16"),
    "lraspp_mobilenet_v3_large": partial(segmenter, "lraspp_mobilenet_v3_large"),
    "deeplabv3_resnet50": partial(segmenter, "deeplabv3_resnet50"),
}
QUANTISED = {"mobilenet_v2_int8": "mobilenet_v2"}


def write(name: str, folder: Path) -> Path:
    """Export one network with seeded weights."""
    import torch

    torch.manual_seed(0)
    model, size = MAKERS[name]()
    path = folder / f"{name}.onnx"
    example = torch.randn(1, 3, size, size)
    torch.onnx.export(
        model.eval(), (example,), str(path), opset_version=OPSET, dynamo=False,
        input_names=["input"], output_names=["output"],
    )  # fmt: skip
    return path


def quantise(name: str, folder: Path) -> Path:
    """A network in eight bits, each channel of its weights with a scale of its own."""
    import numpy as np
    from onnxruntime import quantization

    base = folder / f"{QUANTISED[name]}.onnx"
    if not base.exists():
        write(QUANTISED[name], folder)
    random = np.random.default_rng(0)
    examples = [{"input": random.standard_normal((1, 3, 224, 224), np.float32)} for _ in range(2)]

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Any] | None:
            return examples.pop() if examples else None

    path = folder / f"{name}.onnx"
    quantization.quantize_static(
        str(base), str(path), Reader(), per_channel=True, quant_format=quantization.QuantFormat.QDQ
    )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("networks", nargs="*", choices=[*MAKERS, *QUANTISED, []])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.networks or [*MAKERS, *QUANTISED]:
        path = (quantise if name in QUANTISED else write)(name, options.folder)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
