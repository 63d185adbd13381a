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
    """`work_group` is (blocks of four value channels, rows / 4, parts of the keys).

    A thread makes the scores of `key_blocks` times four keys of a run.  `unroll` is the blocks of
    depth, and of four keys, whose texels it asks for before it waits.  Threads of several parts
    walk over runs of their own, and their results are merged at the end.
    """

    work_group: tuple[int, int, int]
    key_blocks: int = 1
    unroll: int = 1

    @property
    def run(self) -> int:
        """Keys between two steps of the softmax."""
        return self.work_group[0] * self.key_blocks * LANES

    @property
    def parts(self) -> int:
        """Parts of the keys, each of which has threads of its own."""
        return self.work_group[2]

    def runs(self, keys: int) -> int:
        """Runs of a part."""
        return -(-keys // (self.run * self.parts))

    def fills_parts(self, keys: int) -> bool:
        """Return whether each part has a key: one without any has no largest score."""
        return self.runs(keys) * self.run * (self.parts - 1) < keys

    def shared_bytes(self, power_bytes: int, depth_blocks: int, query_bytes: int) -> int:
        """Local memory of a work-group, by the size of an exponential and of a query's number."""
        _, y, parts = self.work_group
        # Exponentials as halves leave no place for what threads tell each other in float.
        told = 0 if power_bytes == FOLDED_BYTES else self.told * FOLDED_BYTES
        queries = depth_blocks * LANES * y * query_bytes
        return LANES * (self.run * y * parts * power_bytes + told + queries)

    @property
    def told(self) -> int:
        """Vectors that threads tell each other at a time: a largest score each, or four sums."""
        x, y, parts = self.work_group
        return x * y * parts * (ROWS if parts > 1 else 1)
