"""How the threads of attention share its rows and keys."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.ir.layout import FLOAT_BYTES, LANES

FOLDED_BYTES = FLOAT_BYTES
"""Bytes of a number that threads hand each other through local memory to fold it."""
ROWS = LANES
"""Query rows a thread: the lanes of a vector of scores."""


@dataclass(frozen=True, kw_only=True)
class AttentionTile:
    """`work_group` is (blocks of four value channels, rows / 4, 1).

    A thread makes the scores of `key_blocks` times four keys of a run.  `unroll` is the blocks of
    depth, and of four keys, whose texels it asks for before it waits.
    """

    work_group: tuple[int, int, int]
    key_blocks: int = 1
    unroll: int = 1

    @property
    def run(self) -> int:
        """Keys between two steps of the softmax."""
        return self.work_group[0] * self.key_blocks * LANES

    def shared_bytes(self, power_bytes: int, depth_blocks: int, query_bytes: int) -> int:
        """Local memory of a work-group, by the size of an exponential and of a query's number."""
        x, y, _ = self.work_group
        folded = 0 if power_bytes == FOLDED_BYTES else x * y * FOLDED_BYTES
        queries = depth_blocks * LANES * y * query_bytes
        return LANES * (self.run * y * power_bytes + folded + queries)
