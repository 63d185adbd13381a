"""Extents and variants of decoders, and what their files say of them."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """Extents and variants of a decoder; `kind` is `qwen3` (norms of queries and keys) or `llama`.

    `bits` 0 leaves weights in float; `zeros` packs zero points; `packed` makes one product of
    queries, keys and values; `embedding_bits` 4 is GatherBlockQuantized; `half` is float16 for all
    that is float; `positions` makes position_ids an input; `rotary_apart` rotates by nodes of
    RotaryEmbedding, which read it; `plain` takes the standard's operators alone
    (`plain_decoders.py`), with `multi_head` onnxruntime's MultiHeadAttention; `fused_norms` has
    those of queries and keys in GroupQueryAttention; `qdq` opens weights by DequantizeLinear;
    `biased` adds biases to the projections that it names of q, k and v; `sinks` are scores of no
    row; `slopes` an attention_bias that grows along the rows (ALiBi); `alternating` has windows in
    every other layer; `slides` lets their caches slide; `conv_taps` makes every other layer, from
    the first on, a short convolution of so many, or `linear` attention behind one; `streams` has
    three positions a token; `cache_bits` 8 or 4 keeps keys and values in so many; `open_heads`
    leaves the last axis of caches open, as newer builders do; with `latent` the first cache has so
    many numbers a row, of which keys and values of all heads are made, and the second one what is
    rotated of keys, half a head (MLA).
    """

    kind: str = "qwen3"
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head: int = 16
    mlp: int = 128
    vocabulary: int = 97
    context: int = 64
    bits: int = 4
    block: int = 32
    zeros: bool = False
    packed: bool = True
    embedding_bits: int = 0
    theta: float = 10000.0
    window: int = -1
    softcap: float = 0.0
    half: bool = False
    positions: bool = False
    rotary_apart: bool = False
    plain: int = 0
    multi_head: bool = False
    fused_norms: bool = False
    qdq: bool = False
    biased: str = ""
    sinks: bool = False
    slopes: bool = False
    alternating: bool = False
    slides: bool = False
    conv_taps: int = 0
    linear: bool = False
    streams: bool = False
    cache_bits: int = 0
    open_heads: bool = False
    latent: int = 0
    seed: int = 0

    @property
    def float_type(self) -> np.dtype[Any]:
        return np.dtype(np.float16 if self.half else np.float32)

    @property
    def turned(self) -> int:
        """How many numbers of a head are rotated."""
        return self.head // 2 if self.latent else self.head

    @property
    def has_positions(self) -> bool:
        return (
            self.positions
            or self.streams
            or self.rotary_apart
            or (self.plain > 0 and self.kind != "learned")
        )

    def has_state(self, layer: int) -> bool:
        """Whether a layer carries a state in place of a cache."""
        return self.conv_taps > 0 and layer % 2 == 0

    def has_window(self, layer: int) -> bool:
        """Whether a layer sees its window alone."""
        return self.window > 0 and (not self.alternating or layer % 2 == 1)


def genai_config(shape: DecoderShape, file: str = "model.onnx") -> str:
    """What the builder writes beside the model, as far as a compiler reads it."""
    names = {
        "input_ids": "input_ids",
        "attention_mask": "attention_mask",
        "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value",
    }
    if shape.has_positions:
        names["position_ids"] = "position_ids"
    model: dict[str, Any] = {
        "context_length": shape.context,
        "eos_token_id": shape.vocabulary - 1,
        "type": shape.kind,
        "vocab_size": shape.vocabulary,
        "decoder": {
            "filename": file,
            "head_size": shape.head,
            "hidden_size": shape.hidden,
            "inputs": names,
            "outputs": {
                "logits": "logits",
                "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
            "num_attention_heads": shape.heads,
            "num_hidden_layers": shape.layers,
            "num_key_value_heads": shape.kv_heads,
        },
    }
    if shape.slides:
        layers = [layer for layer in range(shape.layers) if shape.has_window(layer)]
        said = {"window_size": shape.window, "layers": layers, "cache_slack": 0}
        model["decoder"]["sliding_window"] = {"slide_key_value_cache": False, **said}
    return json.dumps({"model": model, "search": {"max_length": shape.context}}, indent=4) + "\n"
