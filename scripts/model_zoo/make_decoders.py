"""Decoders by the names of real ones, in either form of file."""

from dataclasses import asdict
from typing import Any

import onnx

from model_zoo.decoder_shape import DecoderShape
from model_zoo.decoders import Decoder
from model_zoo.plain_decoders import LatentDecoder, PlainDecoder


def _like(extents: str, **more: Any) -> dict[str, Any]:
    """Return a shape of four bits: layers, hidden, heads, kv_heads, head, mlp, vocabulary."""
    names = ("layers", "hidden", "heads", "kv_heads", "head", "mlp", "vocabulary")
    sizes = dict(zip(names, map(int, extents.split()), strict=True))
    return {**asdict(DecoderShape()), "context": 4096, "embedding_bits": 4, **sizes, **more}


_LLAMA = {"kind": "llama"}
KINDS: dict[str, dict[str, Any]] = {
    "tiny": asdict(DecoderShape()),
    "optimum": {**asdict(DecoderShape()), "plain": 14, "bits": 0},
    "opset23": {**asdict(DecoderShape()), "plain": 23, "bits": 0},
    "qwen3-0.6b": _like("28 1024 16 8 128 3072 151936", theta=1e6),
    "qwen3-1.7b": _like("28 2048 16 8 128 6144 151936", theta=1e6),
    "llama-3.2-1b": _like("16 2048 32 8 64 8192 128256", theta=5e5, **_LLAMA),
    # Its norms behind products and its GELU are not there.
    "gemma-3-1b": _like("26 1152 4 1 256 6912 262144", window=512, alternating=True),
    "smollm2-135m": _like("30 576 9 3 64 1536 49152", theta=1e5, **_LLAMA),
    "smollm2-360m": _like("32 960 15 5 64 2560 49152", theta=1e5, **_LLAMA),
    # The real one rotates 96 of 128 numbers of a head.
    "phi-4-mini": _like("32 3072 24 8 128 8192 200064", **_LLAMA),
}
"""Extents by name: `tiny` for tests, the others those of real models."""


def make_decoder(shape: DecoderShape) -> onnx.ModelProto:
    """Make the model; it takes its weights with it."""
    kind = LatentDecoder if shape.latent else PlainDecoder if shape.plain else Decoder
    return kind(shape).make()
