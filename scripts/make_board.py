#!/usr/bin/env python3
"""Write equivalents of the networks of LiteRT's leaderboard: make_board.py FOLDER [NETWORK...].

What is published are times of torchvision's networks and of transformers' as TFLite; these are the
same architectures with seeded weights as ONNX, at the extents of torchvision's own transforms
(`scripts/bench_models --board FOLDER` holds their estimates beside the published times). Speech: a
file's converter gives its decoder eight tokens a second, in multiples of 32; of Whisper-tiny the
nodes that were counted are those of an encoder. Gecko is assumed to be an encoder as BERT-base, by
its 110 million weights. The others that are made are published for other GPUs or by other engines.
Needs torch, torchvision, transformers and onnxruntime (which quantises).
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

OPSET = 17
BY_PROGRAM = {"whisper_base": 18, "moonshine_tiny": 18}
"""Networks that only torch's newer exporter takes, and the opset that it writes."""


def image(size: int) -> tuple[Any, ...]:
    """One image of so many pixels a side."""
    import torch

    return (torch.randn(1, 3, size, size),)


def classifier(name: str, size: int = 224, **options: Any) -> tuple[Any, tuple[Any, ...]]:
    """An image network of torchvision, and its input."""
    from torchvision import models

    return models.get_model(name, weights=None, **options), image(size)


def finished(whole: Any, finish: Callable[[Any], Any]) -> Any:
    """A network of which only what `finish` makes of its results is an output."""
    import torch

    class Finished(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, x: Any) -> Any:
            return finish(self.whole(x))

    return Finished()


def segmenter(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A network that labels pixels, without the head that only training uses."""
    from torchvision import models

    whole = models.get_model(name, weights=None, weights_backbone=None)
    return finished(whole, lambda made: made["out"]), image(520)


def transformer(kind: str, *names: str, **extents: Any) -> Any:
    """A network of transformers of drawn weights."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(**extents, attn_implementation="eager")
    return getattr(transformers, "".join((kind, *names)))(config)


def whisper(width: int, heads: int, layers: int, tokens: int) -> tuple[Any, tuple[Any, ...]]:
    """Whisper's encoder of thirty seconds, and its decoder for so many tokens, if any."""
    import torch

    extents = {"d_model": width, "encoder_layers": layers, "decoder_layers": layers}
    extents |= {f"{part}_attention_heads": heads for part in ("encoder", "decoder")}
    extents |= {f"{part}_ffn_dim": 4 * width for part in ("encoder", "decoder")}
    model = transformer("Whisper", "ForConditionalGeneration", **extents)
    return speech(model, torch.randn(1, 80, 3000), tokens)


def speech(model: Any, sound: Any, tokens: int) -> tuple[Any, tuple[Any, ...]]:
    """An encoder of sound, and a decoder that sees its tokens at once: no cache is written."""
    import torch

    class Transcriber(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = model

        def forward(self, sound: Any, ids: Any = None) -> Any:
            heard = self.whole.get_encoder()(sound).last_hidden_state
            if ids is None:
                return heard
            decoder = self.whole.get_decoder()
            made = decoder(input_ids=ids, encoder_hidden_states=heard, use_cache=False)
            return self.whole.proj_out(made.last_hidden_state)

    ids = torch.arange(tokens)[None]
    return Transcriber(), (sound, ids) if tokens else (sound,)


def moonshine() -> tuple[Any, tuple[Any, ...]]:
    """Moonshine-tiny of five seconds of sound."""
    import torch

    model = transformer("Moonshine", "ForConditionalGeneration")
    return speech(model, torch.randn(1, 80_000), 64)


def embedder() -> tuple[Any, tuple[Any, ...]]:
    """An encoder of text of BERT-base's extents, of 256 tokens."""
    import torch

    whole = transformer("Bert", "Model", vocab_size=32_128)
    ids = torch.arange(256)[None]
    return finished(whole, lambda made: made.last_hidden_state.mean(1)), (ids,)


def segformer() -> tuple[Any, tuple[Any, ...]]:
    """SegFormer-B0 with its labels."""
    whole = transformer("Segformer", "ForSemanticSegmentation", num_labels=150)
    return finished(whole, lambda made: made.logits), image(512)


auxiliary = {"aux_logits": False, "init_weights": False, "transform_input": False}
MAKERS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
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
    "whisper_tiny": partial(whisper, 384, 6, 4, 0),
    "whisper_base": partial(whisper, 512, 8, 6, 256),
    "moonshine_tiny": moonshine,
    "gecko_256": embedder,
    "whisper_base_encoder": partial(whisper, 512, 8, 6, 0),
    "whisper_small_encoder": partial(whisper, 768, 12, 12, 0),
    "segformer_b0": segformer,
}
QUANTISED = {"mobilenet_v2_int8": "mobilenet_v2"}


def write(name: str, folder: Path) -> Path:
    """Export one network with seeded weights."""
    import torch

    torch.manual_seed(0)
    model, example = MAKERS[name]()
    path = folder / f"{name}.onnx"
    torch.onnx.export(
        model.eval(), example, str(path), opset_version=BY_PROGRAM.get(name, OPSET),
        dynamo=name in BY_PROGRAM, external_data=False,
        input_names=["input", "ids"][: len(example)], output_names=["output"],
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
