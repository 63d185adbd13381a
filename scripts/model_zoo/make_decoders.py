"""Decoders by the names of real ones, in either form of file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import onnx

from model_zoo.decoder_shape import DecoderShape
from model_zoo.decoders import Decoder
from model_zoo.latent_decoders import make_latent_decoder
from model_zoo.plain_decoders import make_plain_decoder

_INT4 = {**asdict(DecoderShape()), "context": 4096, "embedding_bits": 4}
KINDS: dict[str, dict[str, Any]] = {
    "tiny": asdict(DecoderShape()),
    "optimum": {**asdict(DecoderShape()), "plain": 14, "bits": 0},
    "opset23": {**asdict(DecoderShape()), "plain": 23, "bits": 0},
    "qwen3-0.6b": {
        **_INT4,
        "layers": 28,
        "hidden": 1024,
        "heads": 16,
        "kv_heads": 8,
        "head": 128,
        "mlp": 3072,
        "vocabulary": 151936,
        "theta": 1e6,
    },
    "qwen3-1.7b": {
        **_INT4,
        "layers": 28,
        "hidden": 2048,
        "heads": 16,
        "kv_heads": 8,
        "head": 128,
        "mlp": 6144,
        "vocabulary": 151936,
        "theta": 1e6,
    },
    "llama-3.2-1b": {
        **_INT4,
        "kind": "llama",
        "layers": 16,
        "hidden": 2048,
        "heads": 32,
        "kv_heads": 8,
        "head": 64,
        "mlp": 8192,
        "vocabulary": 128256,
        "theta": 5e5,
    },
    "gemma-3-1b": {  # its norms behind products and its GELU are not there
        **_INT4,
        "layers": 26,
        "hidden": 1152,
        "heads": 4,
        "kv_heads": 1,
        "head": 256,
        "mlp": 6912,
        "vocabulary": 262144,
        "window": 512,
        "alternating": True,
    },
    "smollm2-135m": {
        **_INT4,
        "kind": "llama",
        "layers": 30,
        "hidden": 576,
        "heads": 9,
        "kv_heads": 3,
        "head": 64,
        "mlp": 1536,
        "vocabulary": 49152,
        "theta": 1e5,
    },
    "smollm2-360m": {
        **_INT4,
        "kind": "llama",
        "layers": 32,
        "hidden": 960,
        "heads": 15,
        "kv_heads": 5,
        "head": 64,
        "mlp": 2560,
        "vocabulary": 49152,
        "theta": 1e5,
    },
    "phi-4-mini": {  # whose real one rotates 96 of 128 numbers of a head
        **_INT4,
        "kind": "llama",
        "layers": 32,
        "hidden": 3072,
        "heads": 24,
        "kv_heads": 8,
        "head": 128,
        "mlp": 8192,
        "vocabulary": 200064,
    },
}
"""Extents by name: `tiny` for tests, the others those of real models."""


def make_decoder(shape: DecoderShape) -> onnx.ModelProto:
    """Make the model; it takes its weights with it."""
    if shape.latent:
        return make_latent_decoder(shape)
    if shape.plain:
        return make_plain_decoder(shape)
    return Decoder(shape).make()
