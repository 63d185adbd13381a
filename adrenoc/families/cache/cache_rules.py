"""Rules for what keeps and reads keys and values: rows added in place, attention over them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adrenoc.families.cache.append_rows import NewRows, append_rows
from adrenoc.families.cache.cached_attention import (
    CachedOperands,
    CachedTile,
    cached_attention,
)
from adrenoc.families.cache.head_norm import HeadNorm
from adrenoc.families.cache.rotation import Rotation
from adrenoc.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.families.shared.machine import Machine
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.work_group import groups_within
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits


@dataclass(frozen=True, kw_only=True)
class CachedWork:
    """Extents: heads of all tokens, rows of the cache, blocks of four numbers of a head."""

    heads: int
    rows: int
    blocks: int


def append_rows_rule(context: RuleContext, node: Node) -> KernelCall:
    """Inputs: the cache, new rows, the first row's number; perhaps cosines, sines, gains."""
    cache, x, position, *others = node.inputs
    kernel = context.kernel(node, "append_rows")
    _, heads, rows, head = context.graph.tensors[cache].shape
    new = NewRows(
        x=kernel.input(x),
        position=kernel.input(position),
        rotation=rotation_of(kernel, node, others),
        norm=gains_of(kernel, node, others),
        tokens=tokens_of(context.graph.tensors[x].shape),
        heads=heads,
        head=head,
        rows=rows,
        first=int(node.attrs["first"]),
    )
    out, _ = kernel.output()
    append_rows(kernel.builder, new, out)
    return kernel.call()


def cached_attention_rule(context: RuleContext, node: Node) -> KernelCall:
    """Inputs: queries, the first one's row, keys, values; perhaps cosines, sines, gains."""
    attrs = node.attrs
    q, position, keys, values, *others = node.inputs
    _, kv_heads, rows, head = context.graph.tensors[keys].shape
    tokens, heads = tokens_of(context.graph.tensors[q].shape), int(attrs["heads"])
    work = CachedWork(heads=heads * tokens, rows=rows, blocks=head // LANES)
    machine = context.machine
    tile = context.choose(
        node,
        "cached_attention",
        candidates(work, context.limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    kernel = context.kernel(node, "cached_attention")
    operands = CachedOperands(
        q=kernel.input(q),
        keys=kernel.input(keys),
        values=kernel.input(values),
        position=kernel.input(position),
        rotation=rotation_of(kernel, node, others),
        norm=gains_of(kernel, node, others),
        tokens=tokens,
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        rows=rows,
        first=int(attrs["first"]),
        scale=float(attrs["scale"]),
        window=int(attrs["window"]),
        cap=float(attrs["cap"]),
    )
    _, epilogue = kernel.output()
    cached_attention(kernel.builder, tile, operands, epilogue)
    return kernel.call()


def tokens_of(shape: tuple[int, ...]) -> int:
    """Tokens of a tensor of a batch of one, whose last axis holds the channels."""
    return math.prod(shape[:-1])


def candidates(work: CachedWork, limits: Limits, costs: Cost) -> Iterator[CachedTile]:
    """Powers of two of threads that hold a head."""
    for threads in groups_within(costs.cached.threads, limits):
        tile = CachedTile(threads=threads)
        if work.blocks > threads:
            continue
        if tile.shared_bytes(work.blocks) <= limits.local_mem_bytes:
            yield tile


def estimate_clocks(work: CachedWork, tile: CachedTile, machine: Machine) -> float:
    """Clocks with half of the rows there: scores, agreeing on them, values."""
    cost = machine.cost.cached
    runs = math.ceil(work.rows / (2 * tile.threads))
    vectors = work.blocks + math.ceil(tile.threads / tile.turns(work.blocks))
    run = vectors * cost.vector_slots + cost.folds * cost.fold_clocks
    waves = math.ceil(tile.threads / machine.wave)
    groups = math.ceil(work.heads * waves / machine.processors)
    return groups * runs * run


def rotation_of(kernel: NodeKernel, node: Node, others: list[str]) -> Rotation | None:
    """How heads are turned, by the first two of `others`; None where they are not."""
    if not node.attrs["rotated"]:
        return None
    cos, sin = (kernel.flat(name, "angles", np.ravel, _widen, "float32") for name in others[:2])
    return Rotation(
        cos=cos,
        sin=sin,
        width=int(node.attrs["rotated"]),
        interleaved=bool(node.attrs["interleaved"]),
    )


def gains_of(kernel: NodeKernel, node: Node, others: list[str], number: int = 0) -> HeadNorm | None:
    """How heads are normed, by a tensor behind the tables in `others`; None where they are not."""
    if not node.attrs["normed"]:
        return None
    name = others[number + (2 if node.attrs["rotated"] else 0)]
    gains = kernel.flat(name, "gains", np.ravel, _widen, "float32")
    return HeadNorm(gains=gains, epsilon=float(node.attrs["epsilon"]))


def _widen(table: np.ndarray) -> np.ndarray:
    return table.astype(np.float32, copy=False)
