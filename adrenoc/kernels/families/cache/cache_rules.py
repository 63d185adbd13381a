"""Rules for what keeps and reads keys and values: rows added in place, attention over them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from adrenoc.base import tvmapi
from adrenoc.importers.relax.cache_constants import (
    OF_ATTENTION,
    OF_ROWS,
    head_of,
    name_constants,
    rows_of,
)
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import OperandSpec
from adrenoc.kernels.access import Access
from adrenoc.kernels.families.attention.attention_rule import (
    AttentionWork,
    candidates,
    estimate_clocks,
)
from adrenoc.kernels.families.attention.attention_tile import AttentionTile
from adrenoc.kernels.families.cache.append_rows import NewRows, append_rows
from adrenoc.kernels.families.cache.cached_attention import CachedOperands, cached_attention
from adrenoc.kernels.families.cache.head_norm import HeadNorm
from adrenoc.kernels.families.cache.quanta import Quanta
from adrenoc.kernels.families.cache.rotation import Rotation
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext


def append_rows_rule(context: RuleContext, node: Node) -> KernelCall:
    """Inputs: the cache, new rows, the first row's number; perhaps cosines, sines, gains."""
    cache, x, position, *others = node.inputs
    kernel = context.kernel(node, "append_rows")
    held = name_constants(OF_ROWS, node.attrs, others)
    _, heads, count, width = context.graph.tensors[cache].shape
    new = NewRows(
        x=kernel.input(x),
        position=kernel.input(position),
        rotation=rotation_of(kernel, node, held["tables"]),
        norm=gains_of(kernel, node, held["gains"]),
        quanta=quanta_of(kernel, node, held["scales"]),
        tokens=tokens_of(context.graph.tensors[x].shape),
        heads=heads,
        head=head_of(width, int(node.attrs["bits"])),
        rows=rows_of(count, node.attrs),
        held=count,
        first=int(node.attrs["first"]),
    )
    out, _ = kernel.output()
    append_rows(kernel.builder, new, out)
    return kernel.call()


def cached_attention_rule(context: RuleContext, node: Node) -> KernelCall:
    """Inputs: queries, the first one's row, keys, values; perhaps constants (`OF_ATTENTION`)."""
    attrs = node.attrs
    q, position, keys, values, *others = node.inputs
    constants = name_constants(OF_ATTENTION, attrs, others)
    _, kv_heads, count, width = context.graph.tensors[keys].shape
    head = head_of(width, int(attrs["bits"]))
    tokens, heads = tokens_of(context.graph.tensors[q].shape), int(attrs["heads"])
    tile = _choose_tile(context, node, tokens * (heads // kv_heads), context.graph.operand(keys))
    kernel = context.kernel(node, "cached_attention")
    operands = CachedOperands(
        q=kernel.input(q),
        keys=kernel.input(keys),
        values=kernel.input(values),
        position=kernel.input(position),
        rotation=rotation_of(kernel, node, constants["tables"]),
        norm=gains_of(kernel, node, constants["gains"]),
        sinks=numbers_of(kernel, constants["sinks"], "sinks"),
        bias=numbers_of(kernel, constants["bias"], "bias"),
        quanta=both_quanta_of(kernel, node, constants["scales"]),
        tokens=tokens,
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        rows=rows_of(count, attrs),
        held=count,
        first=int(attrs["first"]),
        scale=float(attrs["scale"]),
        window=int(attrs["window"]),
        cap=float(attrs["cap"]),
    )
    _, epilogue = kernel.output()
    held = _held_dtype(context)
    cached_attention(kernel.builder, tile, operands, (held, held), epilogue)
    return kernel.call()


def _choose_tile(context: RuleContext, node: Node, rows: int, keys: OperandSpec) -> AttentionTile:
    """Return the schedule for so many rows of queries a head of keys, half of whose rows are
    there."""
    _, kept, there, width = keys.shape
    head = head_of(width, int(node.attrs["bits"]))
    machine, limits = context.machine, context.limits
    held_bytes = tvmapi.bytes_of(_held_dtype(context))
    work = AttentionWork(
        heads=kept,
        rows=rows,
        keys=-(-there // 2),
        depth_blocks=head // LANES,
        value_blocks=head // LANES,
        storage_bytes=tvmapi.bytes_of(keys.dtype),
        power_bytes=held_bytes,
        query_bytes=held_bytes,
    )
    return context.choose(
        node,
        "cached_attention",
        candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine, limits),
    )


def _held_dtype(context: RuleContext) -> str:
    """Of exponentials and queries in local memory."""
    return "float16" if context.options.compute_dtype == "float16" else "float32"


def tokens_of(shape: tuple[int, ...]) -> int:
    """Tokens of a tensor of a batch of one, whose last axis holds the channels."""
    return math.prod(shape[:-1])


def rotation_of(kernel: NodeKernel, node: Node, tables: Sequence[str]) -> Rotation | None:
    """Return how heads are turned, by cosines and sines; None where they are not."""
    if not tables:
        return None
    cos, sin = (kernel.flat(name, "angles", np.ravel, _widen, "float32") for name in tables)
    return Rotation(
        cos=cos,
        sin=sin,
        width=int(node.attrs["rotated"]),
        interleaved=bool(node.attrs["interleaved"]),
    )


def gains_of(kernel: NodeKernel, node: Node, names: Sequence[str]) -> HeadNorm | None:
    """Return how heads are normed, by at most one constant; None where they are not."""
    gains = numbers_of(kernel, names, "gains")
    return None if gains is None else HeadNorm(gains=gains, epsilon=float(node.attrs["epsilon"]))


def quanta_of(kernel: NodeKernel, node: Node, names: Sequence[str]) -> Quanta | None:
    """Return how a cache keeps its numbers, by at most one constant; None where as they are."""
    scales = numbers_of(kernel, names, "scales")
    return None if scales is None else Quanta(scales=scales, bits=int(node.attrs["bits"]))


def both_quanta_of(
    kernel: NodeKernel, node: Node, names: Sequence[str]
) -> tuple[Quanta | None, Quanta | None]:
    """Return the same of keys and of values."""
    return quanta_of(kernel, node, names[:1]), quanta_of(kernel, node, names[1:])


def numbers_of(kernel: NodeKernel, names: Sequence[str], kind: str) -> Access | None:
    """At most one constant, flat in float32; None where there is none."""
    held = [kernel.flat(name, kind, np.ravel, _widen, "float32") for name in names]
    return held[0] if held else None


def _widen(table: np.ndarray) -> np.ndarray:
    return table.astype(np.float32, copy=False)
