"""Transposed convolution by output phase: no zeros are inserted, none are multiplied.

Along an axis of stride s, output position o with pad p reads the taps k = r + s t with
r = (o + p) mod s, and the input at floor((o + p) / s) - t.  So each of the s phases r is an
ordinary small convolution with every s-th tap.  One thread makes all phases along W, which
read the same inputs; the phase along H chooses the weights.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst, lane, minimum, splat
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.conv.conv_rules import estimate_clocks, local_weights
from adrenoc.kernels.families.conv.conv_tile_local import local_candidates
from adrenoc.kernels.families.conv.local_conv import WIDEST_ROW, Phases, conv2d_local
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, Pack, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import (
    ConvGeometry,
    add_row_axis,
    conv_work,
)
from adrenoc.kernels.families.shared.conv_weights import has_texel_weights
from adrenoc.kernels.weights import blocks, group_window, pack_conv

MOST_PHASES = 4
"""Most phases along W that one thread makes: each needs accumulators of its own."""


@dataclass(frozen=True, kw_only=True)
class TransposedGeometry:
    """What a transposed convolution does; `kernel` counts the zeros between dilated taps."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    """Rows cut from the top and columns cut from the left of the full result."""
    groups: int = 1

    @property
    def taps(self) -> tuple[int, int]:
        """Taps of one phase along H and W; the shorter phases are filled up with zeros."""
        return (-(-self.kernel[0] // self.strides[0]), -(-self.kernel[1] // self.strides[1]))


def spread_taps(weight: np.ndarray, dilation: tuple[int, int]) -> np.ndarray:
    """Return `[I, O/groups, KH, KW]` with the zeros that a dilation puts between the taps."""
    if dilation == (1, 1):
        return weight
    kh, kw = weight.shape[2:]
    spans = ((kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1)
    spread = np.zeros((*weight.shape[:2], *spans), weight.dtype)
    spread[:, :, :: dilation[0], :: dilation[1]] = weight
    return spread


def pack_transposed(weight: np.ndarray, geometry: TransposedGeometry) -> np.ndarray:
    """Pack `[I, O/groups, KH, KW]` as `[SH * SW * TH * TW, O/4, window * 4, 4]`.

    S are the strides, T the taps of a phase; the rest is as in `weights.pack_conv`.
    """
    in_channels, per_out, kh, kw = weight.shape
    groups = geometry.groups
    by_group = weight.reshape(groups, in_channels // groups, per_out, kh, kw)
    oihw = by_group.transpose(0, 2, 1, 3, 4).reshape(groups * per_out, -1, kh, kw)
    (sh, sw), (th, tw) = geometry.strides, geometry.taps
    padded = np.pad(oihw, ((0, 0), (0, 0), (0, th * sh - kh), (0, tw * sw - kw)))
    phases = [padded[:, :, y::sh, x::sw] for y in range(sh) for x in range(sw)]
    return np.concatenate([pack_conv(phase, groups) for phase in phases])


def _convolve_back(
    kernel: NodeKernel, geometry: TransposedGeometry, x: Access, weight: Access
) -> KernelCall:
    """Make the transposed convolution of x with packed weights (`pack_transposed`).

    Shapes:
        x: roles N, C, H, W
        weight: [SH * SW * TH * TW, O/4, window * 4, 4]
    """
    builder, (out, epilogue) = kernel.builder, kernel.output()
    e = out.extents
    tile = _Tile(geometry, e)
    gx, gy, gz = builder.threads(tile.columns, e.h, e.n * e.blocks)
    n, block = (iconst(0), gz) if e.n == 1 else (floordiv(gz, e.blocks), floormod(gz, e.blocks))
    (sh, _), (th, tw) = geometry.strides, geometry.taps
    row = builder.let(gy + iconst(geometry.padding[0]), "row")
    row_phase, row0 = builder.let(floormod(row, sh), "phase"), builder.let(floordiv(row, sh), "y")
    col0, phases = tile.columns_of_thread(builder, gx)
    sums = builder.registers(tile.pixels, fill=0.0)
    window, per_in = group_window(e.c, x.extents.c, geometry.groups)
    of_group = floordiv(block * iconst(LANES), e.c // geometry.groups) * iconst(per_in)
    first_in = builder.let(floordiv(of_group, LANES), "ib") if geometry.groups > 1 else iconst(0)
    with builder.loop(th, "ty") as ty, builder.loop(window, "i") as i:
        in_block: Expr = i
        if geometry.groups > 1:  # the window of a last group may end behind the last block
            in_block = builder.let(minimum(first_in + i, iconst(x.extents.blocks - 1)), "in")
        for tx in range(tw):
            read = x.padded_texel(n, in_block, row0 - ty, col0 - iconst(tx))
            pixel = builder.let(read, "a")
            for p, phase in enumerate(phases):
                if tile.is_filler(p, tx):
                    continue
                at = (row_phase * iconst(geometry.strides[1]) + phase) * iconst(th) + ty
                layer = builder.let(at * iconst(tw) + iconst(tx), "tap")
                for c in range(LANES):
                    col = i * iconst(LANES) + iconst(c)
                    texel = builder.let(weight.texel(layer, iconst(0), block, col), "k")
                    sums[p] = sums[p] + splat(lane(pixel, c)) * texel
    for p in range(tile.pixels):
        column = builder.let(tile.out_column(gx, p), "x")
        with builder.when(tile.guard_column(column)):
            epilogue.write(n, block, gy, column, sums[p])
    return kernel.call()


class _Tile:
    """The output columns of one thread: all phases of one input column, or a single column."""

    def __init__(self, geometry: TransposedGeometry, extents: Extents) -> None:
        self._geometry = geometry
        self._width = extents.w
        stride, pad = geometry.strides[1], geometry.padding[1]
        self._all = stride <= MOST_PHASES
        self.pixels = stride if self._all else 1
        self._first = pad // stride if self._all else 0
        last = (extents.w - 1 + pad) // stride if self._all else extents.w - 1
        self.columns = last - self._first + 1

    def columns_of_thread(self, builder: KernelBuilder, gx: Expr) -> tuple[Expr, list[Expr]]:
        """Return the input column of tap 0, and the phase of each output column."""
        stride, pad = self._geometry.strides[1], self._geometry.padding[1]
        if self._all:
            return gx + iconst(self._first), [iconst(p) for p in range(stride)]
        at = builder.let(gx + iconst(pad), "col")
        return builder.let(floordiv(at, stride), "c"), [builder.let(floormod(at, stride), "px")]

    def is_filler(self, phase: int, tap: int) -> bool:
        """Return whether a tap is one of the zeros that fill up a phase."""
        stride = self._geometry.strides[1]
        return self._all and phase + stride * tap >= self._geometry.kernel[1]

    def out_column(self, gx: Expr, index: int) -> Expr:
        """Return where the output column `index` of the thread lies."""
        if not self._all:
            return gx
        stride, pad = self._geometry.strides[1], self._geometry.padding[1]
        return gx * iconst(stride) + iconst(index + self._first * stride - pad)

    def guard_column(self, column: Expr) -> Expr | None:
        """Return the test that a column needs; None where all columns exist."""
        stride, pad = self._geometry.strides[1], self._geometry.padding[1]
        if not self._all:
            return None
        begin = self._first * stride - pad
        if begin == 0 and self.columns * stride == self._width:
            return None
        return (column >= iconst(0)) & (column < iconst(self._width))


def conv2d_transpose_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a transposed convolution by constant weights, of rows and columns."""
    x_name, weight_name = node.inputs[:2]
    layout = str(node.attrs["kernel_layout"])
    dilation = (int(node.attrs["dilation"][0]), int(node.attrs["dilation"][1]))
    geometry = transposed_geometry(context.graph, node)
    phases = Phases(strides=geometry.strides, padding=geometry.padding, taps=geometry.taps)
    by_phases = geometry.groups == 1 and dilation == (1, 1) and geometry.taps[1] <= WIDEST_ROW
    # Those tiles share their weights through local memory.
    if by_phases and context.limits.local_mem_bytes:
        return _convolve_by_phases(
            context, node, phases, partial(_split_into_phases, layout=layout, phases=phases)
        )
    kernel = context.kernel(node, "conv2d_transpose")
    x = kernel.input(x_name)
    pack = partial(_pack, layout=layout, geometry=geometry, dilation=dilation)
    steps = "x".join(map(str, (*geometry.strides, *dilation)))
    packed = kernel.pack_constant(weight_name, f"transposed{geometry.groups}_{steps}", pack)
    return _convolve_back(kernel, geometry, x, packed)


def transposed_geometry(graph: Graph, node: Node) -> TransposedGeometry:
    """Return the geometry that Relax's attributes state."""
    shape, layout = graph.tensors[node.inputs[1]].shape, str(node.attrs["kernel_layout"])
    by_letter = dict(zip(layout, shape, strict=True))
    taps, dilation = (by_letter.get("H", 1), by_letter["W"]), node.attrs["dilation"]
    return TransposedGeometry(
        kernel=((taps[0] - 1) * int(dilation[0]) + 1, (taps[1] - 1) * int(dilation[1]) + 1),
        strides=tuple(node.attrs["strides"]),
        padding=(node.attrs["padding"][0], node.attrs["padding"][1]),
        groups=int(node.attrs["groups"]),
    )


def _convolve_by_phases(context: RuleContext, node: Node, phases: Phases, oihw: Pack) -> KernelCall:
    """Return a convolution that makes the output's pixels of all phases."""
    out = context.graph.operand(node.output).extents
    one = conv_work(context.graph, node, ConvGeometry(kernel=phases.taps), context.options)
    work, machine = replace(one, out=phases.grid(out)), context.machine
    # The threads of a tile begin to read at one place.
    alike = phases.alike(0) and phases.alike(1)
    tiles = local_candidates(work, context.limits, machine.cost).where(
        lambda tile: alike or out.blocks % tile.out_blocks == 0
    )
    tile = context.choose(
        node, "conv2d_transpose", tiles, lambda tile: estimate_clocks(work, tile, machine)
    )
    kernel = context.kernel(node, "conv2d_transpose", half=work.half)
    x = kernel.input(node.inputs[0])
    steps = "x".join(map(str, (*phases.strides, *phases.padding)))
    as_texels = has_texel_weights(work, machine)
    kind, name = f"phases{steps}", node.inputs[1]
    weight = local_weights(kernel, name, kind, tile, oihw, texels=as_texels)
    return conv2d_local(kernel, work.geometry, tile, x, weight, phases=phases)


def _split_into_phases(weight: np.ndarray, layout: str, phases: Phases) -> np.ndarray:
    """Return weights as `[phase * O, I, TH, TW]`, the O of each phase filled up to whole blocks."""
    four, letters = add_row_axis(weight, layout)
    oihw = four.transpose([letters.index(letter) for letter in "OIHW"])
    out_channels, in_channels, kh, kw = oihw.shape
    (sh, sw), (th, tw) = phases.strides, phases.taps
    filled = np.zeros((blocks(out_channels) * LANES, in_channels, th * sh, tw * sw), weight.dtype)
    filled[:out_channels, :, :kh, :kw] = oihw
    # Input rows and columns go forward, the taps that they are multiplied by go back.
    parts = [
        filled[:, :, phases.first_tap(0, y) :: sh, phases.first_tap(1, x) :: sw][:, :, ::-1, ::-1]
        for y in range(sh)
        for x in range(sw)
    ]
    return np.concatenate(parts)


def _pack(
    weight: np.ndarray, layout: str, geometry: TransposedGeometry, dilation: tuple[int, int]
) -> np.ndarray:
    four, letters = add_row_axis(weight, layout)
    iohw = four.transpose([letters.index(letter) for letter in "IOHW"])
    return pack_transposed(spread_taps(iohw, dilation), geometry)
