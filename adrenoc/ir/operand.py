"""A tensor as kernels see it: its shape, its dtype, and the memory that it lies in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from adrenoc.ir.layout import Extents, Layout

GLOBAL = "global"
TEXTURE = "global.texture"
POOL = "global.pool"
"""Memory scopes, in TVM's terms; the last is of a buffer that images are made from."""


WORDS = 4
"""Words of four channels that one 16-byte read of bytes gives."""


class Memory(str, Enum):
    """The kinds of memory that a tensor can live in."""

    TEXTURE = "texture"
    """Blocks of four channels as the texels of an image2d_array."""

    BLOCKED = "blocked"
    """The same blocks in a buffer."""

    BYTES = "bytes"
    """Whole numbers as bytes in a buffer: blocks of sixteen channels, four in each 32-bit word."""

    PLAIN = "plain"
    """Row-major in a buffer, as the model states the shape."""

    CPU = "cpu"
    """Row-major in the CPU's memory."""


@dataclass(frozen=True)
class Window:
    """Which blocks of a larger tensor a tensor is: those from `first` on, of `blocks` in all."""

    first: int
    blocks: int


@dataclass(frozen=True)
class OperandSpec:
    """A kernel's view of one tensor.

    `shape` is the logical shape, `dtype` the dtype in memory.  `layout` gives the axes their
    roles, of a plain tensor too; only a plain tensor can do without (None: no axis has a role).
    `window` is set where the tensor is a range of channels of another one, whose memory it is.
    `low` is the number that a byte of zero stands for.
    """

    shape: tuple[int, ...]
    dtype: str
    memory: Memory
    layout: Layout | None
    window: Window | None = None
    low: int = 0

    @property
    def scope(self) -> str:
        """The memory scope in TVM's terms."""
        return TEXTURE if self.memory is Memory.TEXTURE else GLOBAL

    @property
    def physical(self) -> tuple[int, ...]:
        """The shape of the memory that a kernel is given: that of the larger tensor of a window."""
        if self.memory in (Memory.PLAIN, Memory.CPU):
            return self.shape
        if self.memory is Memory.BYTES:
            return self.roles.texture_shape(self.shape, -(-self.extents.blocks // WORDS))
        blocks = None if self.window is None else self.window.blocks
        return self.roles.texture_shape(self.shape, blocks)

    @property
    def alone(self) -> OperandSpec:
        """The tensor as if it had memory of its own."""
        return self if self.window is None else replace(self, window=None)

    @property
    def roles(self) -> Layout:
        """The layout, where there must be one."""
        if self.layout is None:
            raise ValueError("a tensor without roles has no layout")
        return self.layout

    @property
    def extents(self) -> Extents:
        """Extents of the roles N, C, H, W."""
        return self.roles.extents(self.shape)
