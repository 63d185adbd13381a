"""A convolution as a cost model sees it."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.base.tvmapi import bytes_of
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.ir.operand import Memory, OperandSpec
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.body_cost import body_instructions, index_instructions
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.image_row_plan import RowPlan
from adrenoc.kernels.families.shared.row_product import CENTRED
from adrenoc.kernels.weights import group_window


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
    return ConvWork(
        geometry=geometry,
        out=out,
        in_blocks=window,
        channels=min(in_channels, LANES) if window == 1 else LANES,
        storage_bytes=bytes_of(options.storage_dtype),
        half=options.compute_dtype == "float16",
        texel_work=_texel_work(node.prologue) if node.prologue else 0,
        block_texels=len(node.prologue.sources) - 1 if node.prologue else 0,
        textures=options.textures,
        centred=bool(node.attrs.get(CENTRED)),
        image=source if source.memory is Memory.PLAIN else None,
    )


def pointwise_work(graph: Graph, node: Node, options: CompileOptions) -> ConvWork:
    """Return what it needs of a node that is a 1x1 convolution, beside other things."""
    return conv_work(graph, node, ConvGeometry(kernel=(1, 1)), options)


def _texel_work(prologue: Body) -> int:
    """Instructions that make a texel of what is read."""
    return LANES * body_instructions(prologue) + index_instructions(prologue)
