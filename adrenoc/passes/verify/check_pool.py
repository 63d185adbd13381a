"""Is a place in the pool of textures one that the image fits, and that a device can take?"""

from __future__ import annotations

from collections.abc import Mapping

from adrenoc.base.errors import DefectError
from adrenoc.base.tvmapi import bits_of
from adrenoc.bundle.manifest import MemorySlot
from adrenoc.ir.operand import POOL, Memory, OperandSpec
from adrenoc.passes.lower.pool_textures import PoolPlace
from adrenoc.target.gpu import Limits


def check_place(
    name: str, spec: OperandSpec, place: PoolPlace, slot: MemorySlot, limits: Limits
) -> None:
    """Hold a place against the image that lies there, its slot and the target.

    Raises:
        DefectError: the image does not fit, or no device makes one there.
    """
    if spec.memory is not Memory.TEXTURE or slot.scope != POOL:
        raise DefectError(f"{name}, in {spec.scope}, is at {place} of a slot in {slot.scope}")
    layers, rows, columns, lanes = spec.physical
    texel = lanes * bits_of(spec.dtype) // 8
    align = limits.image_pitch_align_texels
    grid = place.grid
    fits = (
        (grid.columns, grid.rows, grid.layers * grid.bands) == (columns, rows, layers)
        and (grid.bands == 1 or grid.layers & (grid.layers - 1) == 0)
        and grid.width <= min(place.pitch_texels, limits.image2d_max_width_texels)
        and grid.height <= limits.image2d_max_height_texels
        and place.pitch_texels % align == 0
        and place.offset % (align * texel) == 0
        and place.bytes == grid.height * place.pitch_texels * texel
        and place.offset + place.bytes <= slot.bytes
    )
    if not fits:
        raise DefectError(
            f"{name}, {columns} x {rows} texels of {texel} bytes in {layers} layers, does not fit "
            f"{place} of {slot.bytes} bytes, in rows of multiples of {align} texels"
        )


def overlap(places: Mapping[str, PoolPlace], one: str, other: str) -> bool:
    """Return whether two tensors are in the pool, and share bytes there."""
    return one in places and other in places and places[one].overlaps(places[other])
