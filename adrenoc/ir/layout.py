"""Where each element of a tensor, or of a packed constant, lies: pure arithmetic, no TVM.

Every tensor that the GPU holds in blocks of four channels has the physical shape
`[layers, rows, cols, 4]`: one RGBA texel per (layer, row, col) of an image2d_array, or four
adjacent elements of a buffer.  A `Layout` says which logical axis plays which role (batch N,
channel C, height H, width W) and which layer, row and column a texel lies at.

Since a layout names roles and not positions, an NHWC tensor and its NCHW transpose are the
same bits: transposes between the two cost nothing and need no kernel.

Padding lanes (channels of the last block beyond C) always hold zero.

Packing only moves elements.  Where each of them lies is a sum of places, one for each axis of what
was packed, and a place is a sum over digits of the index: a few numbers tell it of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

import numpy as np

FLOAT_BYTES = 4
LANES = 4
"""Channels a texel: RGBA."""

MAX_BLOCKED_AXES = 4
"""Axes of extent above one that the roles N, C, H, W can carry."""


class TexelOrder(str, Enum):
    """How (n, c/4, h, w) becomes (layer, row, col)."""

    PLANES = "planes"
    """layer = n * C/4 + c/4, row = h, col = w.  The clamp border of each layer is zero padding."""

    ROWS = "rows"
    """layer = n, row = h * W + w, col = c/4.  For many channels and few pixels."""


class Extents(NamedTuple):
    """The extents of the roles, 1 where no axis plays the role."""

    n: int
    c: int
    h: int
    w: int

    @property
    def blocks(self) -> int:
        """Blocks of four channels, the last one padded."""
        return -(-self.c // LANES)


@dataclass(frozen=True)
class Layout:
    """Roles of the logical axes, one letter an axis, and the order of texels in an image.  Letters
    are N, C, H, W, each at most once, or 1 for an axis of extent one.  Examples: `NCHW` for a
    convolution's activation in ONNX, `NHWC` in TFLite, `NWC` for tokens, `1NHWC` for a rank 5
    tensor whose first extent is one."""

    roles: str
    order: TexelOrder = TexelOrder.PLANES

    def __post_init__(self) -> None:
        letters = [r for r in self.roles if r != "1"]
        if len(set(letters)) != len(letters) or set(letters) - set("NCHW"):
            raise ValueError(f"roles {self.roles!r}: want each of N, C, H, W at most once, or 1")

    def __str__(self) -> str:
        suffix = "" if self.order is TexelOrder.PLANES else f"/{self.order.value}"
        return f"{self.roles}4c{suffix}"

    def axis(self, role: str) -> int | None:
        """Return the logical axis that plays `role`, or None."""
        found = self.roles.find(role)
        return None if found < 0 else found

    def extents(self, shape: Sequence[int]) -> Extents:
        """Return the extents of N, C, H, W of a tensor of this logical shape."""
        by_role = dict(zip(self.roles, shape, strict=True))
        return Extents(*(by_role.get(role, 1) for role in "NCHW"))

    def texture_shape(
        self, shape: Sequence[int], blocks: int | None = None
    ) -> tuple[int, int, int, int]:
        """Return physical `(layers, rows, cols, 4)` of a tensor of this logical shape.  `blocks`
        are those of its channels where they are not as many as its own."""
        e = self.extents(shape)
        blocks = e.blocks if blocks is None else blocks
        if self.order is TexelOrder.PLANES:
            return (e.n * blocks, e.h, e.w, LANES)
        return (e.n, e.h * e.w, blocks, LANES)

    def permute(self, axes: Sequence[int]) -> Layout:
        """Return the layout of the same bits after `permute_dims(axes)`."""
        return Layout("".join(self.roles[a] for a in axes), self.order)

    def reorder(self, order: TexelOrder) -> Layout:
        """Return the layout of the same roles with texels in another order."""
        return Layout(self.roles, order)


def agree(a: Layout, b: Layout, shape: Sequence[int]) -> bool:
    """Return whether two layouts of one shape give every axis of extent above one the same role."""
    return all(extent == 1 or x == y for x, y, extent in zip(a.roles, b.roles, shape, strict=True))


_DEFAULT_ROLES = {0: "", 1: "C", 2: "WC", 3: "NWC", 4: "NCHW"}


def default_layout(shape: Sequence[int]) -> Layout | None:
    """Return the layout of a tensor that no neighbour decides; None where none can hold it.  Up to
    four axes of extent above one are carried; of a rank above four the last such axis becomes the
    channel."""
    rank = len(shape)
    if rank in _DEFAULT_ROLES:
        return Layout(_DEFAULT_ROLES[rank])
    wide = [axis for axis, extent in enumerate(shape) if extent != 1]
    if len(wide) > MAX_BLOCKED_AXES:
        return None
    roles = ["1"] * rank
    for axis, role in zip(reversed(wide), "CWHN", strict=False):
        roles[axis] = role
    return Layout("".join(roles))


def channels_last(rank: int) -> Layout | None:
    """Return the layout of a product's operand: the last axis is the channel, rows run along W."""
    roles = {1: "C", 2: "WC", 3: "NWC", 4: "NHWC"}.get(rank)
    return None if roles is None else Layout(roles)


def rows_along_w(shape: Sequence[int]) -> Layout | None:
    """Return the layout of vectors that one matrix multiplies: the last axis is the channel.  The
    last other one of several runs along W, where a thread makes some beside each other.  Tokens
    that come first, as [197, 1, 768], are then those of [1, 197, 768]."""
    wide = [axis for axis, extent in enumerate(shape[:-1]) if extent != 1]
    if len(shape) < len("NWC") or not wide or wide[-1] == len(shape) - 2:
        return channels_last(len(shape))
    roles = ["1"] * (len(shape) - 1)
    for axis, role in zip(reversed(wide), "WHN", strict=False):
        roles[axis] = role
    return Layout("".join([*roles, "C"]))


def channel_at(channel: int, rank: int) -> Layout:
    """Return the layout whose channel is this axis, rows along the last of the others."""
    letters = "WN" if rank == 3 else "WHN"  # as `channels_last` has them
    roles = dict(zip((a for a in reversed(range(rank)) if a != channel), letters, strict=False))
    return Layout("".join(roles.get(axis, "C") for axis in range(rank)))


def bytes_of(physical: Sequence[int], bits: int) -> int:
    """Return bytes of a tensor of this physical shape with elements of `bits` bits."""
    return math.prod(physical) * bits // 8


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
class BlockRange:
    """Which blocks of a larger tensor a tensor is: those from `first` on, of `blocks` in all."""

    first: int
    blocks: int


@dataclass(frozen=True)
class OperandSpec:
    """A kernel's view of one tensor.  `shape` is the logical shape, `dtype` the dtype in memory.
    `layout` gives the axes their roles, of a plain tensor too; only a plain tensor can do without
    (None: no axis has a role).  `window` is set where the tensor is a range of channels of another
    one, whose memory it is.  `low` is the number that a byte of zero stands for."""

    shape: tuple[int, ...]
    dtype: str
    memory: Memory
    layout: Layout | None
    window: BlockRange | None = None
    low: int = 0

    @property
    def scope(self) -> str:
        """Return the memory scope in TVM's terms."""
        return TEXTURE if self.memory is Memory.TEXTURE else GLOBAL

    @property
    def physical(self) -> tuple[int, ...]:
        """Return the shape of the memory that a kernel is given, of a window the larger one's."""
        if self.memory in (Memory.PLAIN, Memory.CPU):
            return self.shape
        if self.memory is Memory.BYTES:
            return self.roles.texture_shape(self.shape, -(-self.extents.blocks // WORDS))
        blocks = None if self.window is None else self.window.blocks
        return self.roles.texture_shape(self.shape, blocks)

    @property
    def alone(self) -> OperandSpec:
        """Return the tensor as if it had memory of its own."""
        return self if self.window is None else replace(self, window=None)

    @property
    def roles(self) -> Layout:
        """Return the layout, where there must be one."""
        if self.layout is None:
            raise ValueError("a tensor without roles has no layout")
        return self.layout

    @property
    def extents(self) -> Extents:
        """Extents of the roles N, C, H, W."""
        return self.roles.extents(self.shape)


MOST_DIGITS = 6
UNBOUNDED = 2**31 - 1
_BASE = 100
"""Indices are told by packing their digits, plus one, as elements: they fit any dtype."""
_FORMS = {"int8": ("int8",), "uint32": ("int8", "float16")}
"""How to look at the elements of a packed constant of a dtype, if not as what they are."""

Digits = tuple[tuple[int, int], ...]
"""Radix and stride of each digit of an index, the lowest first."""


def forms_of(dtype: str) -> tuple[str, ...]:
    """Return the dtypes that elements of a packed constant of `dtype` may be of."""
    return _FORMS.get(dtype, (dtype,))


def pack_indices(
    constant: np.ndarray, pack: Callable[[np.ndarray], np.ndarray], packed_bytes: int
) -> list[np.ndarray]:
    """Return the digits of each element's index, plus one, packed as it is: the lowest first.
    Nothing where what is packed so has another size than the constant."""
    numbers = np.arange(constant.size, dtype=np.int64).reshape(constant.shape)
    found, power = [], 1
    while power <= constant.size:
        packed = pack((numbers // power % _BASE + 1).astype(constant.dtype))
        if packed.nbytes != packed_bytes:
            return []
        found.append(np.ascontiguousarray(packed).reshape(-1))
        power *= _BASE
    return found


def read_places(packed: list[np.ndarray], count: int, form: str) -> np.ndarray | None:
    """Return where each of `count` elements lies among those of what `pack_indices` gave.  None
    where packing did more than move them, or left one out."""
    views = [one.view(form) for one in packed]
    for digits in views:
        if not ((digits >= 0) & (digits <= _BASE)).all() or (digits != np.rint(digits)).any():
            return None
    filled, held = views[0] > 0, np.zeros(views[0].size, np.int64)
    for place, digits in enumerate(views):
        held += (digits.astype(np.int64) - 1) * _BASE**place
    places = np.full(count, -1, np.int64)
    if not filled.any() or held[filled].max() >= count or held[filled].min() < 0:
        return None
    places[held[filled]] = np.flatnonzero(filled)
    return places if (places >= 0).all() else None


def find_axis_digits(places: np.ndarray) -> tuple[Digits, ...] | None:
    """Return the digits along each axis of places, counted from the first; None of others."""
    first = places.flat[0]
    lines = [
        places[tuple(slice(None) if a == axis else 0 for a in range(places.ndim))] - first
        for axis in range(places.ndim)
    ]
    digits = tuple(d for line in lines if (d := find_digits(line)) is not None)
    if len(digits) < len(lines) or not np.array_equal(places, _join_axes(lines) + first):
        return None
    return digits


def _join_axes(lines: list[np.ndarray]) -> np.ndarray:
    whole = lines[0]
    for line in lines[1:]:
        whole = whole[..., None] + line
    return whole


def find_digits(line: np.ndarray) -> Digits | None:
    """Return radices and strides that give these places; None where there are too many."""
    found: list[tuple[int, int]] = []
    while len(line) > 1:
        stride = int(line[1])
        apart = np.flatnonzero(line != np.arange(len(line)) * stride)
        radix = int(apart[0]) if len(apart) else len(line)
        whole = line[::radix]
        again = (whole[:, None] + np.arange(radix) * stride).reshape(-1)
        if not np.array_equal(line, again[: len(line)]):
            return None
        found.append((radix if len(whole) > 1 else UNBOUNDED, stride))
        line = whole
    return tuple(found or [(UNBOUNDED, 0)]) if len(found) <= MOST_DIGITS else None
