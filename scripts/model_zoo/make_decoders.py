"""Decoders by the names of real ones, in either form of file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import onnx

from model_zoo.decoder_shape import DecoderShape
from model_zoo.decoders import Decoder
from model_zoo.plain_decoders import make_plain_decoder

KINDS: dict[str, dict[str, Any]] = {
    "tiny": asdict(DecoderShape()),
    "optimum": {**asdict(DecoderShape()), "plain": 14, "bits": 0},
    "opset23": {**asdict(DecoderShape()), "plain": 23, "bits": 0},
    "qwen3-0.6b": {
        **asdict(DecoderShape()),
        "layers": 28,
        "hidden": 1024,
        "heads": 16,
        "kv_heads": 8,
        "head": 128,
        "mlp": 3072,
        "vocabulary": 151936,
        "context": 4096,
        "theta": 1e6,
        "embedding_bits": 4,
    },
    "llama-3.2-1b": {
        **asdict(DecoderShape()),
        "kind": "llama",
        "layers": 16,
        "hidden": 2048,
        "heads": 32,
        "kv_heads": 8,
        "head": 64,
        "mlp": 8192,
        "vocabulary": 128256,
        "context": 4096,
        "theta": 5e5,
        "embedding_bits": 4,
    },
}
"""Extents by name: `tiny` for tests, the others those of real models."""


def make_decoder(shape: DecoderShape) -> onnx.ModelProto:
    """Make the model; it takes its weights with it."""
    if shape.plain:
        return make_plain_decoder(shape)
    return Decoder(shape).make()
