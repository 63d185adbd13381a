"""A depthwise convolution and the 1x1 convolution after it, in one kernel.

The result of a depthwise convolution is as large as what it reads, and all that it does waits for
memory.  Here it never gets there: a thread computes it for its pixels, one input block after the
other, and multiplies it for its output blocks at once.  Work is repeated where several threads
make output blocks of the same pixels, so this is for convolutions to few channels.

```
for chunk of input blocks:
    each thread: weights and taps of the chunk -> shared         barrier
    for input blocks of chunk:
        texels * taps from shared                                -> pixels
        sums += pixels * weights from shared
    barrier
```

The loops are those of `conv2d_local`, whose texels are computed here.

Attributes of the pair are those of the depthwise convolution, with `pointwise_layout`, the order
of the other weights, and `between`, the tensor between the two, which no memory holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import Expr, cast, iconst, minimum, vector_dtype
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.body_cost import body_instructions, body_operations
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.conv.local_conv import ConvPlan, LocalConv
from adrenoc.kernels.families.depthwise import TapSums
from adrenoc.kernels.families.shared.context import NodeKernel
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, ConvTile, geometry_of
from adrenoc.kernels.families.shared.conv_weights import load_run
from adrenoc.kernels.fused_bodies import Epilogue, Finished, is_of_channels
from adrenoc.kernels.statements import SharedArray
from adrenoc.kernels.walk import ACCUMULATOR
from adrenoc.kernels.weights import pack_depthwise, whole_k_steps

FINISH = "finish"
"""The part of a joined node that is applied to the sums of its first convolution."""


def join_products(node: Node, reader: Node, op: str, attrs: Mapping[str, Any]) -> Node:
    """Return node `op` in the place of `reader`, which computes `node`, that it alone reads, too.

    Inputs are what `node` reads, its weights, those of `reader`, and what else both read.
    """
    source, weights, *others = node.inputs
    _, more_weights, *rest = reader.inputs
    return replace(
        reader,
        op=op,
        inputs=(source, weights, *dict.fromkeys((more_weights, *others, *rest))),
        attrs=attrs,
        parts={} if node.epilogue is None else {FINISH: node.epilogue},
        fused=(*node.operators, *reader.operators),
        also=(node.name,),
    )


def prepare_first_finish(kernel: NodeKernel) -> tuple[Finished, Mapping[str, Access]]:
    """Prepare what is applied to the sums of the first of two joined convolutions.

    Returns the epilogue of that convolution, and the constants of one number a channel that it
    reads, by name, which a kernel may load once."""
    finish, between = kernel.node.parts.get(FINISH), kernel.node.attrs["between"]
    of_channels = {}
    for buffer, name in finish.sources.items() if finish is not None else ():
        if name != Node.RESULT:
            access = kernel.input(name)
            if finish is not None and is_of_channels(finish, buffer, access, between):
                of_channels[name] = access
    return Finished(kernel.builder, finish, kernel.accesses, between), of_channels


def finish_work(node: Node) -> int:
    """Return scalar instructions that make four elements of the sums of the first convolution."""
    finish = node.parts.get(FINISH)
    return LANES * body_instructions(finish) if finish is not None else 0


def finish_texels(node: Node) -> int:
    """Return texels that those instructions read of each block of channels, beside the sums."""
    finish = node.parts.get(FINISH)
    return sum(name != Node.RESULT for name in finish.sources.values()) if finish else 0


def finish_operations(_graph: Graph, node: Node) -> int:
    """Return operations of what is applied to the sums of the first convolution."""
    finish = node.parts.get(FINISH)
    if finish is None:
        return 0
    return body_operations(finish) * math.prod(node.attrs["between"].shape)


def depthwise_geometry(graph: Graph, node: Node, taps: str) -> ConvGeometry:
    """Return the geometry of the depthwise part, whose taps are the tensor of that name."""
    letters = str(node.attrs["kernel_layout"])
    by_letter = dict(zip(letters, graph.tensors[taps].shape, strict=True))
    return geometry_of(node.attrs, (by_letter["H"], by_letter["W"]))


@dataclass(frozen=True, kw_only=True)
class SeparableTile(ConvTile):
    """The share of one thread."""

    rolled: bool = False
    """Whether the loop over the rows of taps stays one: it waits for each, in fewer registers."""


def separable(
    builder: KernelBuilder,
    depthwise: ConvGeometry,
    tile: SeparableTile,
    x: Access,
    taps: Access,
    weight: Access,
    finish: Finished,
    of_channels: Mapping[str, Access],
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit both convolutions, with taps packed by `pack_k_steps` and weights by `pack_local`.

    `finish` is applied to the results of the first; `of_channels` are the constants that it reads
    of each channel.

    Shapes:
        x: roles N, C, H, W
        out: roles N, O, OH, OW
    """
    per_work_group = tile.out_blocks * tile.bands
    blocks = x.extents.blocks
    plan = ConvPlan(
        blocks=blocks,
        window=whole_k_steps(blocks, tile.k_step),
        taps=1,
        channels=x.extents.c if blocks == 1 else LANES,
        channel_groups=-(-out.extents.blocks // per_work_group),
        vectors=LANES * per_work_group,
    )
    pointwise = ConvGeometry(kernel=(1, 1))
    kernel = _SeparableConv(builder, pointwise, tile, plan, x, weight, out.extents)
    kernel.prepare(depthwise, tile, taps, finish, of_channels)
    kernel.accumulate(weights_by_row=False)
    kernel.write(epilogue, out.extents)


class _SeparableConv(LocalConv):
    """One kernel while it is written: pixels that it computes where `LocalConv` reads them."""

    parts_by_chunk = True

    def prepare(
        self,
        depthwise: ConvGeometry,
        tile: SeparableTile,
        taps: Access,
        finish: Finished,
        of_channels: Mapping[str, Access],
    ) -> None:
        """Reserve local memory, and find the first row and column that are read."""
        builder = self.b
        self.taps, self.finish = taps, finish
        self.count = depthwise.kernel[0] * depthwise.kernel[1]
        self.shared_taps = builder.allocate_shared(self.span * self.count, dtype=ACCUMULATOR)
        self.given = {
            name: (access, builder.allocate_shared(self.span, dtype=ACCUMULATOR))
            for name, access in of_channels.items()
        }
        self.rectangle = TapSums(
            builder=builder,
            geometry=depthwise,
            rows=1,
            pixels=tile.pixels,
            x=self.x,
            shared=self.shared_taps,
            rolled=tile.rolled,
        )
        self.dtype = builder.compute
        (sy, sx), (top, left) = depthwise.strides, depthwise.padding
        self.first_row = builder.let(self.gy * iconst(sy) - iconst(top), "dr")
        self.first_col = builder.let(self.left * iconst(sx) - iconst(left), "dc")

    def bring(self, start: Expr, span: int, first_load: Expr, shared: SharedArray) -> None:
        """Weights and taps, and what else belongs to the channels."""
        self.start = start
        asked = list(self._ask_channels(start, span))
        self.bring_weights(span * self.plan.vectors, first_load, shared)
        for array, done, count, value in asked:
            with self.b.when(self.thread < iconst(count) if count < self.threads else None):
                array[self.thread + iconst(done)] = value

    def _ask_channels(self, start: Expr, span: int) -> Iterator[tuple[SharedArray, int, int, Expr]]:
        """Yield taps, and what else is read of each channel: (where to, from, how many, value).

        They are asked for before the weights, so that a thread waits for all of them once.
        """
        builder = self.b
        with builder.computing(ACCUMULATOR):
            first, total = start * iconst(self.count), span * self.count
            for done in range(0, total, self.threads):
                count = min(total - done, self.threads)
                at = builder.let(first + self._clamp_thread(count), "tap")
                tap = builder.let(load_run(builder, self.taps, at, done, ACCUMULATOR), "t")
                yield self.shared_taps, done, count, tap
            for access, held in self.given.values():
                for done in range(0, span, self.threads):
                    count = min(span - done, self.threads)
                    block = self.existing(start + self._clamp_thread(count) + iconst(done))
                    texel = access.texel(iconst(0), block, iconst(0), iconst(0))
                    yield held, done, count, builder.let(texel, "t")

    def _clamp_thread(self, count: int) -> Expr:
        """Return the thread's number, or the last of so many."""
        return minimum(self.thread, iconst(count - 1)) if count < self.threads else self.thread

    def row(self, in_block: Expr, row: Expr) -> dict[int, Expr]:
        """Return the depthwise convolution's results at the thread's pixels."""
        builder, pixels = self.b, self.tile.pixels
        # TVM puts an expression that only has a name into each place that uses it.
        held = builder.registers(pixels, dtype=self.dtype)
        of_chunk = builder.let(in_block - self.start, "of_chunk")
        with builder.computing(ACCUMULATOR):
            given = {n: builder.let(kept[of_chunk], "of") for n, (_, kept) in self.given.items()}
            first_tap = builder.let(of_chunk * iconst(self.count), "wd")
            sums = self.rectangle.rectangle(
                self.n, in_block, self.first_row, self.first_col, first_tap
            )
            for p in range(pixels):
                col = self.left + iconst(p)
                value = self.finish.value(self.n, in_block, self.gy, col, sums[p], given)
                held[p] = cast(value, vector_dtype(self.dtype))
        return {p: held[p] for p in range(pixels)}


def pack_k_steps(weight: np.ndarray, k_step: int) -> np.ndarray:
    """Pack `[C, 1, KH, KW]` as [block, tap, 4], flat; blocks are filled up to whole k-steps."""
    texels = pack_depthwise(weight)[0]
    taps, blocks, _ = texels.shape
    padded = np.zeros((whole_k_steps(blocks, k_step), taps, LANES), weight.dtype)
    padded[:blocks] = texels.transpose(1, 0, 2)
    return padded.reshape(-1)
