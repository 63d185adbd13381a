"""Decoders of latent attention (MLA), as torch's exporters write MiniCPM3's and DeepSeek's.

The caches are of one head: `latent` numbers a row, of which products make each head's keys and
values, and the part of keys that is rotated, which all heads share.
"""

import numpy as np

from model_zoo.plain_decoders import PlainDecoder


class LatentDecoder(PlainDecoder):
    """The same decoder, its keys and values out of rows of few numbers."""

    def attention(self, prefix: str, layer: int, x: str) -> str:
        """Queries by heads; a row to keep; keys and values of all rows that are kept."""
        s, at = self.shape, f"{prefix}/attn"
        plain, width = s.head - s.turned, s.heads * s.head
        self.product(f"{at}/q_proj", x, s.hidden, width, out=f"{at}/q")
        self.product(f"{at}/kv_a_proj", x, s.hidden, s.latent + s.turned, out=f"{at}/a")
        self._split(f"{at}/a", (s.latent, s.turned), (f"{at}/raw", f"{at}/key"))
        weight = self.floats(f"{at}/a_norm/weight", self.gains(s.latent))
        normed = self._scaled(f"{at}/a_norm", f"{at}/raw", weight)
        past, present = (
            [f"{name}.{layer}.{kind}" for kind in ("key", "value")]
            for name in ("past_key_values", "present")
        )
        rows = self._turn(self._by_heads(f"{at}/key", 1, s.turned))
        for old, new, name in zip(
            past, (self._by_heads(normed, 1, s.latent), rows), present, strict=True
        ):
            self.node("Concat", [old, new], [name], axis=2)
        keys, values = self._open(at, present, plain)
        self._split(self._by_heads(f"{at}/q", s.heads, s.head), (plain, s.turned), (
            f"{at}/q/plain", f"{at}/q/far",
        ))  # fmt: skip
        query = f"{at}/query"
        self.node("Concat", [f"{at}/q/plain", self._turn(f"{at}/q/far")], [query], axis=-1)
        return self._project_back(at, self._mix(at, query, keys, values))

    def _open(self, at: str, present: list[str], plain: int) -> tuple[str, str]:
        """Keys and values of each head, out of all rows."""
        s = self.shape
        opened = self.floats(f"{at}/kv_b", self.weights(s.latent, s.heads * (plain + s.head)))
        flat = self.constant(f"{at}/kv_b/flat", np.array([1, -1, s.latent], np.int64))
        self.node("Reshape", [present[0], flat], [f"{at}/latent"])
        self.node("MatMul", [f"{at}/latent", opened], [f"{at}/opened"])
        both = self._by_heads(f"{at}/opened", s.heads, plain + s.head)
        self._split(both, (plain, s.head), (f"{at}/k/plain", f"{at}/v"))
        ones = self.constant(f"{at}/ones", np.array([1, s.heads, 1, 1], np.int64))
        self.node("Expand", [present[1], ones], [f"{at}/k/far"])
        self.node("Concat", [f"{at}/k/plain", f"{at}/k/far"], [f"{at}/k"], axis=-1)
        return f"{at}/k", f"{at}/v"

    def _mix(self, at: str, query: str, keys: str, values: str) -> str:
        if self.shape.plain >= 23:
            out, scale = f"{at}/out", float(self.shape.head**-0.5)
            self.node("Attention", [query, keys, values, "mask"], [out], scale=scale)
            return out
        return super()._mix(at, query, keys, values)

    def _by_heads(self, x: str, heads: int, head: int) -> str:
        shape = self.constant(f"{x}/heads", np.array([0, 0, heads, head], np.int64))
        self.node("Reshape", [x, shape], [f"{x}/split"])
        self.node("Transpose", [f"{x}/split"], [f"{x}/apart"], perm=[0, 2, 1, 3])
        return f"{x}/apart"

    def _split(self, x: str, widths: tuple[int, int], names: tuple[str, str]) -> None:
        sizes = self.constant(f"{x}/widths", np.array(widths, np.int64))
        self.node("Split", [x, sizes], list(names), axis=-1)
