"""A convolution as a cost model sees it."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.kernels.conv2d import ConvGeometry
from adrenoc.kernels.image_rows import RowPlan
from adrenoc.layout import LANES, Extents
from adrenoc.operand import OperandSpec


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
    """Of one element in memory: 2 or 4."""
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
    image: OperandSpec | None = None
    """The input where it is an image that lies row-major in a buffer, as the model is given it."""

    def loads(self, pixels: int) -> int:
        """Texels, or loads of numbers of an image, of one input block and kernel row."""
        rows = self.image_rows(pixels)
        return len(self.geometry.columns(pixels)) if rows is None else rows.count

    def image_rows(self, pixels: int) -> RowPlan | None:
        """How a thread of so many pixels reads the image; None where it is none."""
        if self.image is None:
            return None
        return RowPlan.of(self.image, self.geometry, self.out, pixels)

    @property
    def load_bytes(self) -> int:
        """Of a number that is loaded."""
        return self.storage_bytes if self.image is None else 4

    @property
    def pixel_bytes(self) -> int:
        """Of all channels of an input pixel."""
        if self.image is None:
            return self.in_blocks * LANES * self.storage_bytes
        return self.image.extents.c * self.load_bytes
