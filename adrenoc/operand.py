"""A tensor as kernels see it: its shape, its dtype, and the memory that it lies in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from adrenoc.layout import Extents, Layout

GLOBAL = "global"
TEXTURE = "global.texture"
"""Memory scopes, in TVM's terms."""


class Memory(str, Enum):
    """The kinds of memory that a tensor can live in."""

    TEXTURE = "texture"
    """Blocks of four channels as the texels of an image2d_array."""

    BLOCKED = "blocked"
    """The same blocks in a buffer."""

    PLAIN = "plain"
    """Row-major in a buffer, as the model states the shape."""

    CPU = "cpu"
    """Row-major in the CPU's memory."""


@dataclass(frozen=True)
class OperandSpec:
    """A kernel's view of one tensor.

    `shape` is the logical shape, `dtype` the dtype in memory.  `layout` gives the axes their
    roles, of a plain tensor too; only a plain tensor can do without (None: no axis has a role).
    """

    shape: tuple[int, ...]
    dtype: str
    memory: Memory
    layout: Layout | None

    @property
    def scope(self) -> str:
        """The memory scope in TVM's terms."""
        return TEXTURE if self.memory is Memory.TEXTURE else GLOBAL

    @property
    def physical(self) -> tuple[int, ...]:
        """The shape that the runtime allocates."""
        if self.memory in (Memory.PLAIN, Memory.CPU):
            return self.shape
        return self.roles.texture_shape(self.shape)

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
