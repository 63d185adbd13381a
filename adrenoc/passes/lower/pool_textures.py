"""Textures of all sizes in one buffer, each at an offset of its own while it is alive.

Images of their own share memory only with images of their width, height and format.  An image that
is made from a part of a buffer (`cl_khr_image2d_from_buffer`) shares it with any: the plan then
takes what is alive at once, and what rows are padded by.  Such an image is no array, so the layers
of a tensor stand beside each other in its rows, in as few bands as an image is wide enough for:

Before -> after:
    image2d_array_t, 4 layers of 28 x 28        image2d_t, 112 x 28
    texel (x, y) of layer l at (x, y, l)        at (l * 28 + x, y), for x in 0 to 27
    x = -1 reads the border, zeros              x = -1 is sent beyond the image: zeros

Such images are linear, and images of their own are not, which may cost time where windows are read.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from adrenoc.base.tvmapi import bits_of
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import Memory
from adrenoc.ir.program import Program, Step
from adrenoc.kernels.codegen.layers_beside import Grid
from adrenoc.passes.lower.pack_slots import Lifetime
from adrenoc.target.gpu import Limits

_LARGEST_TEXEL_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class PoolPlace:
    """Where a tensor lies in the buffer of the pool, as an image with its layers in a grid."""

    offset: int
    bytes: int
    pitch_texels: int
    grid: Grid

    def overlaps(self, other: PoolPlace) -> bool:
        """Return whether some byte belongs to both."""
        return self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes


def pool_textures(
    program: Program, intervals: Sequence[Lifetime], limits: Limits
) -> dict[str, PoolPlace]:
    """Return a place in the pool for each intermediate texture that can lie there."""
    fitting = _find_fitting(program, intervals, limits)
    step = limits.image_pitch_align_texels * _LARGEST_TEXEL_BYTES
    sized = []
    for interval in intervals:
        grid = fitting.get(interval.name)
        if grid is not None:
            spec = program.graph.operand(interval.name)
            pitch = _pitch(grid, limits)
            held = grid.height * pitch * LANES * bits_of(spec.dtype) // 8
            place = PoolPlace(offset=0, bytes=held, pitch_texels=pitch, grid=grid)
            sized.append((interval, place, -(-held // step) * step))
    found = pack_by_offset([(i.first, i.last, taken) for i, _, taken in sized])
    return {
        interval.name: replace(place, offset=offset)
        for (interval, place, _), offset in zip(sized, found, strict=True)
    }


def pool_bytes(places: Mapping[str, PoolPlace]) -> int:
    """Return what the buffer takes."""
    return max((place.offset + place.bytes for place in places.values()), default=0)


def layer_grids(program: Program, places: Mapping[str, PoolPlace]) -> dict[str, dict[str, Grid]]:
    """Kernel -> parameter -> how layers lie, for parameters that are given such images."""
    grids: dict[str, dict[str, Grid]] = {}
    for step in program.steps:
        if step.place == "gpu":
            params = program.kernels[step.kernel].func.params
            for param, name in zip(params, step.arguments, strict=True):
                place = places.get(_owner(program, name))
                if place is not None:
                    grids.setdefault(step.kernel, {})[param.name] = place.grid
    return grids


def arrange_layers(layers: int, rows: int, columns: int, limits: Limits) -> Grid | None:
    """All layers beside each other, or in bands of a power of two, padded least; None where no
    image is wide and high enough.

    Bands are whole: a layer that a tensor does not have then lies below its image, and zeros are
    read there.
    """
    whole = Grid(columns=columns, rows=rows, layers=layers)
    if _is_within(whole, limits):
        return whole
    powers = (1 << power for power in range(layers.bit_length()))
    banded = [
        Grid(columns=columns, rows=rows, layers=power, bands=layers // power)
        for power in powers
        if layers % power == 0
    ]
    within = [grid for grid in banded if _is_within(grid, limits)]
    return min(within, key=lambda g: (_pitch(g, limits) * g.height, g.bands), default=None)


def _is_within(grid: Grid, limits: Limits) -> bool:
    """Return whether there are images so wide and high."""
    return (
        grid.width <= limits.image2d_max_width_texels
        and grid.height <= limits.image2d_max_height_texels
    )


def _pitch(grid: Grid, limits: Limits) -> int:
    """Texels from one row to the next."""
    align = limits.image_pitch_align_texels
    return -(-grid.width // align) * align


def _find_fitting(
    program: Program, intervals: Sequence[Lifetime], limits: Limits
) -> dict[str, Grid]:
    """Tensors that only kernels touch, within limits; a kernel gets one kind of image for each
    parameter, whatever step launches it."""
    graph = program.graph
    fitting: dict[str, Grid] = {}
    for interval in intervals:
        spec = graph.operand(interval.name)
        if spec.memory is Memory.TEXTURE:
            layers, rows, columns, _ = spec.physical
            grid = arrange_layers(layers, rows, columns, limits)
            if grid is not None:
                fitting[interval.name] = grid
    for part, step in _all_steps(program):
        for name in step.arguments:
            owner = _owner(part, name)
            if owner in fitting and not (part is program and _is_whole(program, step, name)):
                del fitting[owner]
    while lost := _find_mixed(program, fitting):
        fitting = {name: grid for name, grid in fitting.items() if name not in lost}
    return fitting


def _is_whole(program: Program, step: Step, name: str) -> bool:
    """Return whether a kernel is given the image with the rows and columns that its memory has."""
    graph = program.graph
    own, whole = graph.operand(name).physical, graph.operand(graph.owner(name)).physical
    return step.place == "gpu" and own[1:] == whole[1:]


def _find_mixed(program: Program, fitting: Mapping[str, Grid]) -> set[str]:
    """Tensors that share a parameter of a kernel with others that lie elsewhere, or in bands where
    others do not lie in the same."""
    given: dict[tuple[str, int], set[str]] = defaultdict(set)
    outside: set[tuple[str, int]] = set()
    for part, step in _all_steps(program):
        for number, name in enumerate(step.arguments):
            owner = _owner(part, name)
            if part is program and owner in fitting:
                given[step.kernel, number].add(owner)
            else:
                outside.add((step.kernel, number))
    lost = set[str]().union(*(given[place] for place in outside & given.keys()))
    for names in given.values():
        found = {(fitting[name].macro, fitting[name].numbers) for name in names}
        if len(found) > 1:
            lost |= {name for name in names if fitting[name].bands > 1}
    return lost


def _all_steps(program: Program) -> Iterator[tuple[Program, Step]]:
    for part in (program, *program.regions.values()):
        for step in part.steps:
            yield part, step


def _owner(program: Program, name: str) -> str:
    """Return the tensor whose memory a step is given; of a packed constant, its own name."""
    return name if name in program.params else program.graph.owner(name)


# Offsets


_Sized = tuple[int, int, int]
"""(first step, last step, bytes)."""

_ORDERS: tuple[Callable[[_Sized], tuple[int, ...]], ...] = (
    lambda i: (-i[2], i[0]),
    lambda i: (i[0], -i[2]),
    lambda i: (-i[2] * (i[1] - i[0] + 1), i[0]),
    lambda i: (i[0] - i[1], -i[2]),
    lambda i: (-i[1], -i[0]),
)


def pack_by_offset(sized: Sequence[_Sized]) -> list[int]:
    """Return an offset for each, such that no two that are alive at once overlap; the least end
    found."""
    best: list[int] = []
    least = math.inf
    for order in _ORDERS:
        offsets = [0] * len(sized)
        placed: list[int] = []
        for number in sorted(range(len(sized)), key=lambda n: order(sized[n])):
            first, last, held = sized[number]
            at = 0
            beside = (n for n in placed if sized[n][0] <= last and first <= sized[n][1])
            for other in sorted(beside, key=offsets.__getitem__):
                if at + held <= offsets[other]:
                    break
                at = max(at, offsets[other] + sized[other][2])
            offsets[number] = at
            placed.append(number)
        end = max((offsets[n] + sized[n][2] for n in placed), default=0)
        if end < least:
            best, least = offsets, end
    return best
