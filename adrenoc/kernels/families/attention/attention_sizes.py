"""How large one head of an attention is, as its kernels walk over it."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.ir.layout import LANES


@dataclass(frozen=True, kw_only=True)
class AttentionSizes:
    """Of one head: rows, keys at most, channels of both, blocks of value channels; the batch."""

    rows: int
    keys: int
    depth: int
    value_blocks: int
    n: int
    h: int

    @property
    def depth_blocks(self) -> int:
        """Blocks of four channels of a query."""
        return -(-self.depth // LANES)
