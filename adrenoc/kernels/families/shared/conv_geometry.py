"""A convolution as kernels and cost models see it: geometry, a thread's share, an image's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import bytes_of
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents, Layout, Memory, OperandSpec
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.body_cost import body_instructions, index_instructions
from adrenoc.kernels.families.shared.row_product import CENTRED, MEAN_PARTS
from adrenoc.kernels.weights import group_window


@dataclass(frozen=True, kw_only=True)
class ConvGeometry:
    """What a convolution does, apart from the extents of its tensors."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    """Zeros before the first row and before the first column."""
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def columns(self, pixels: int) -> list[int]:
        """Columns that so many neighbours along W read of one kernel row, from the first one's."""
        return list(_columns(pixels, self.strides[1], self.kernel[1], self.dilation[1]))


POINT = ConvGeometry(kernel=(1, 1))
"""The geometry of a product by a matrix."""


@lru_cache(maxsize=1024)  # cost models ask for each of some thousand tiles
def _columns(pixels: int, stride: int, taps: int, dilation: int) -> tuple[int, ...]:
    found = {p * stride + kx * dilation for p in range(pixels) for kx in range(taps)}
    return tuple(sorted(found))


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Return whether each channel of a convolution's output is made of one channel of its own."""
    out_channels, per_in, _, _ = _extents(
        graph.tensors[node.inputs[1]].shape, str(node.attrs["kernel_layout"])
    )
    in_channels = graph.operand(node.inputs[0]).extents.c
    return int(node.attrs["groups"]) == in_channels == out_channels and per_in == 1


def conv_geometry(graph: Graph, node: Node) -> ConvGeometry:
    """Return the geometry of a two-dimensional convolution."""
    shape = graph.tensors[node.inputs[1]].shape
    _, _, kh, kw = _extents(shape, str(node.attrs["kernel_layout"]))
    return geometry_of(node.attrs, (kh, kw))


def geometry_of(attrs: Mapping[str, Any], kernel: tuple[int, int]) -> ConvGeometry:
    """Return the geometry that Relax's attributes state."""
    top, left = attrs["padding"][0], attrs["padding"][1]
    return ConvGeometry(
        kernel=kernel,
        strides=tuple(attrs["strides"]),
        padding=(top, left),
        dilation=tuple(attrs["dilation"]),
        groups=int(attrs["groups"]),
    )


def _extents(shape: tuple[int, ...], layout: str) -> tuple[int, int, int, int]:
    by_letter = dict(zip(layout, shape, strict=True))
    return by_letter["O"], by_letter["I"], by_letter.get("H", 1), by_letter["W"]


def add_row_axis(weight: np.ndarray, layout: str) -> tuple[np.ndarray, str]:
    """Return weights of a one-dimensional convolution (`OIW`) as those of one row (`OIHW`)."""
    if "H" in layout:
        return weight, layout
    axis = layout.index("W")
    return np.expand_dims(weight, axis), f"{layout[:axis]}H{layout[axis:]}"


def transpose_to_oihw(weight: np.ndarray, layout: str) -> np.ndarray:
    """Return weights of any layout as OIHW."""
    four, letters = add_row_axis(weight, layout)
    return four.transpose([letters.index(letter) for letter in "OIHW"])


Oihw = Callable[[np.ndarray], np.ndarray]


class Route(str, Enum):
    """How the weights reach the arithmetic."""

    TEXTURE = "texture"
    BUFFER = "buffer"
    """From a buffer, at an index that is the same for all threads of a work-group."""
    CONSTANTS = "constants"
    """From the constant file, which each wave fills for itself (`conv2d_constants`)."""
    MATRICES = "matrices"
    """From a buffer, as tiles that matrix units multiply (`conv2d_matrices`)."""
    LOCAL = "local"
    """Through local memory (`conv2d_local`)."""


@dataclass(frozen=True, kw_only=True)
class ConvTile:
    """The share of one thread: `pixels` along W times `out_blocks` blocks of four channels.
    `work_group` is in threads; None leaves it to the builder."""

    pixels: int
    out_blocks: int
    route: Route = Route.TEXTURE
    work_group: tuple[int, int, int] | None = None
    bands: int = 1
    """Runs of `out_blocks` that a work-group makes (local route)."""
    split_k: int = 1
    """Threads that share the input blocks of one tile (local route)."""
    chunk: int = 1
    """Input blocks of a split whose weights are in local memory at a time (local route)."""
    unroll: int = 1
    """Input blocks whose texels are asked for together (local route, constants)."""

    @property
    def k_step(self) -> int:
        """Input blocks that all splits take in one k-step of their loop (local route)."""
        return self.split_k * self.unroll

    @property
    def packing(self) -> tuple[int, int, int]:
        """Return what the order of its weights depends on (`weights.pack_local`)."""
        return self.out_blocks, self.bands, self.k_step

    @property
    def packed_as(self) -> str:
        """`packing` as part of a constant's name: its numbers with an x between them."""
        return "x".join(map(str, self.packing))


class LoadReach(Enum):
    """Where the numbers of one load lie, over all threads of a row."""

    WITHIN = "within"
    BEFORE = "before"
    """Only numbers of the first thread may lie before the row; all others lie within."""
    BEHIND = "behind"
    """Only numbers of the last thread may lie behind the row; all others lie within."""
    EITHER = "either"
    """One number at a time, each with a test."""


@dataclass(frozen=True)
class Load:
    """Four numbers from `at` on, or one; counted from the first of the thread's own pixels."""

    at: int
    reach: LoadReach

    @property
    def count(self) -> int:
        """Return how many numbers it gives."""
        return 1 if self.reach is LoadReach.EITHER else LANES


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """What a thread reads of one row of an image.  Numbers are counted along the row of one run: a
    channel's (NCHW), or all channels' (NHWC)."""

    width: int
    """Numbers of a row."""
    pitch: int
    """Numbers from one pixel to the next: the channels where they lie beside each other."""
    runs: int
    """The channels where each has rows of its own, else 1."""
    step: int
    """Numbers from one thread's first pixel to that of the next thread."""
    last: int
    """The place in the row of the last thread's first pixel, in numbers."""
    padding: int
    """Columns before a thread's own pixels."""
    columns: tuple[int, ...]
    """Columns that a thread reads, from the first of the padding on."""
    aligned: bool
    """Whether every vector begins at a multiple of 16 bytes."""

    @staticmethod
    def from_image(
        spec: OperandSpec, geometry: ConvGeometry, out: Extents, pixels: int
    ) -> RowPlan | None:
        """Return the plan of a convolution; None where the image lies in another order."""
        strides, e = _strides(spec.roles, spec.shape), spec.extents
        planar = e.w == 1 or strides["W"] == 1
        beside = (e.c == 1 or strides["C"] == 1) and (e.w == 1 or strides["W"] == e.c)
        if e.c > LANES or not (planar or beside):
            return None
        pitch = 1 if planar else e.c
        step = pixels * geometry.strides[1] * pitch
        others = [strides[role] for role in ("NHC" if planar else "NH") if role in strides]
        return RowPlan(
            width=e.w * pitch,
            pitch=pitch,
            runs=e.c if planar else 1,
            step=step,
            last=(-(-out.w // pixels) - 1) * step,
            padding=geometry.padding[1],
            columns=tuple(geometry.columns(pixels)),
            aligned=not any(n % LANES for n in (step, *others)),
        )

    @property
    def loads(self) -> Iterator[Load]:
        """Yield the loads of one run."""
        wanted = [
            (column - self.padding) * self.pitch + i
            for column in self.columns
            for i in range(self.pitch)
        ]
        for at in sorted({number // LANES * LANES for number in wanted}):
            numbers = [n for n in wanted if at <= n < at + LANES]
            reach = self._reach(at)
            if len(numbers) > 1 and reach is not LoadReach.EITHER:
                yield Load(at, reach)
            else:
                yield from (Load(n, LoadReach.EITHER) for n in numbers)

    def _reach(self, at: int) -> LoadReach:
        """Return how four numbers lie, where they can be loaded together."""
        end = at + LANES
        if at >= 0 and self.last + end <= self.width:
            return LoadReach.WITHIN
        if self.width < LANES:
            return LoadReach.EITHER
        if end <= 0 and (self.last == 0 or at + self.step >= 0) and self.last + end <= self.width:
            return LoadReach.BEFORE
        before_last = self.last - self.step + at
        behind = at >= 0 and self.last + at >= self.width
        if behind and 0 <= before_last <= self.width - LANES:
            return LoadReach.BEHIND
        return LoadReach.EITHER

    @property
    def count(self) -> int:
        """Loads of a row; compilers split a vector of which they cannot know that it is aligned."""
        split = 1 if self.aligned else LANES
        return self.runs * sum(split if load.count > 1 else 1 for load in self.loads)


def _strides(layout: Layout, shape: tuple[int, ...]) -> dict[str, int]:
    """Return numbers from one to the next along each axis that has a role."""
    strides, step = {}, 1
    for role, extent in zip(reversed(layout.roles), reversed(shape), strict=True):
        strides[role] = step
        step *= extent
    return strides


@dataclass(frozen=True, kw_only=True)
class ConvWork:
    """One convolution: its extents and precisions."""

    geometry: ConvGeometry
    out: Extents
    in_blocks: int
    """Input blocks that one output block reads."""
    channels: int
    """Lanes of an input block that hold anything."""
    storage_bytes: int
    """Bytes of one element in memory: 2 or 4."""
    half: bool
    """Whether arithmetic is in half precision."""
    weight_sets: int = 1
    """Output rows that have weights of their own, or 1 for all alike (Winograd's planes)."""
    texel_work: int = 0
    """Scalar instructions that make an activation texel of what is read (a prologue)."""
    block_texels: int = 0
    """Further texels that a thread reads of each input block: what the prologue reads beside."""
    words: int = 0
    """Instructions of a dot product, where a load gives bytes, four in each of four words."""
    textures: bool = False
    """Whether weights may lie in a texture."""
    image: OperandSpec | None = None
    """The input where it is an image that lies row-major in a buffer, as the model is given it."""

    centred: bool = False
    """Whether it takes in the layer norm of what it reads."""
    mean_parts: tuple[int, int] | None = None
    """Rows and columns of work-groups, each of which makes a part of the mean of the result too."""

    def loads(self, pixels: int) -> int:
        """Texels, or loads of numbers of an image, of one input block and kernel row."""
        rows = self.image_rows(pixels)
        return len(self.geometry.columns(pixels)) if rows is None else rows.count

    def image_rows(self, pixels: int) -> RowPlan | None:
        """Return how a thread of so many pixels reads the image; None where it is none."""
        if self.image is None:
            return None
        return RowPlan.from_image(self.image, self.geometry, self.out, pixels)

    @property
    def load_bytes(self) -> int:
        """Bytes of a number that a thread loads: the model's own image holds floats."""
        return self.storage_bytes if self.image is None else FLOAT_BYTES

    @property
    def pixel_bytes(self) -> int:
        """Bytes of all channels of an input pixel."""
        if self.image is None:
            return self.in_blocks * LANES * self.storage_bytes
        return self.image.extents.c * self.load_bytes


def conv_work(
    graph: Graph, node: Node, geometry: ConvGeometry, options: CompileOptions
) -> ConvWork:
    """Return what a cost model needs of a convolution."""
    out = graph.operand(node.output).extents
    source = graph.operand(node.inputs[0])
    in_channels = source.extents.c
    window, _ = group_window(out.c, in_channels, geometry.groups)
    prologue, texel_work = node.prologue, 0
    if prologue is not None:
        texel_work = LANES * body_instructions(prologue) + index_instructions(prologue)
    return ConvWork(
        geometry=geometry,
        out=out,
        in_blocks=window,
        channels=min(in_channels, LANES) if window == 1 else LANES,
        storage_bytes=bytes_of(options.storage_dtype),
        half=options.compute_dtype == "float16",
        texel_work=texel_work,
        block_texels=len(prologue.sources) - 1 if prologue else 0,
        textures=options.textures,
        centred=bool(node.attrs.get(CENTRED)),
        mean_parts=node.attrs.get(MEAN_PARTS),
        image=source if source.memory is Memory.PLAIN else None,
    )


def pointwise_work(graph: Graph, node: Node, options: CompileOptions) -> ConvWork:
    """Return what it needs of a node that is a 1x1 convolution, beside other things."""
    return conv_work(graph, node, POINT, options)
